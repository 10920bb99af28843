//! Work of many connections: one after the other, and side by side.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use plimsoll::Connector;

use super::pair::{HERE, Pair, Shape, THERE};
use super::{OPENING, counted, when};

/// Connections of the table in which one is looked for.
const MANY: usize = 1000;

/// Connections that we open and close, the peer behind us. The unit is a connection, up to its
/// TIME-WAIT.
pub(crate) fn connect(rounds: usize) -> Result<usize> {
    let pair = Pair::new(Shape::default())?;
    let there = THERE.parse().context("an address")?;
    for round in 0..OPENING + rounds {
        let ours = when(round >= OPENING, || Connector::new(&pair.measured).start(there))?;
        pair.other_turn();
        when(round >= OPENING, || pair.measured.poll());
        pair.other_turn();
        let (mut theirs, _) = pair.there.accept().context("our connection arrives")?;
        theirs.set_nonblocking(true)?;
        when(round >= OPENING, || drop(ours));
        pair.other_turn();
        assert_eq!(theirs.read(&mut [0]).context("the end of our stream")?, 0);
        drop(theirs);
        pair.other_turn();
        when(round >= OPENING, || pair.measured.poll());
        pair.settle();
    }
    Ok(rounds)
}

/// Connections that we accept and close behind the peer. The unit is a connection.
pub(crate) fn accept(rounds: usize) -> Result<usize> {
    let pair = Pair::new(Shape::default())?;
    let here = HERE.parse().context("an address")?;
    for round in 0..OPENING + rounds {
        let theirs = Connector::new(&pair.other).start(here)?;
        pair.other_turn();
        when(round >= OPENING, || pair.measured.poll());
        pair.other_turn();
        let (mut ours, _) = when(round >= OPENING, || {
            pair.measured.poll();
            pair.here.accept()
        })
        .context("their connection arrives")?;
        ours.set_nonblocking(true)?;
        drop(theirs);
        pair.other_turn();
        when(round >= OPENING, || -> Result<()> {
            pair.measured.poll();
            assert_eq!(ours.read(&mut [0]).context("the end of their stream")?, 0);
            drop(ours);
            Ok(())
        })?;
        pair.other_turn();
        when(round >= OPENING, || pair.measured.poll());
        pair.settle();
    }
    Ok(rounds)
}

/// Polls that find a segment of one byte, of one connection after the other among many. The unit is
/// a poll. Reading is not counted.
pub(crate) fn demux(rounds: usize) -> Result<usize> {
    let pair = Pair::new(Shape::default())?;
    let mut streams = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        streams.push(pair.connection()?);
    }
    // A multiple of this step visits all of them, and no neighbours one after the other.
    for round in 0..rounds {
        let (ours, theirs) = &mut streams[round * 381 % MANY];
        theirs.write_all(&[1])?;
        pair.other_turn();
        counted(|| pair.measured.poll());
        ours.read_exact(&mut [0]).context("the byte is there")?;
        pair.settle();
    }
    Ok(rounds)
}
