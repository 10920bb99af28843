//! Conversations of two programs over one connection, written down as who writes how much.
//!
//! `c100,c200,s1000` is a request in two writes and its answer. Each side writes its own pieces
//! with one call each, and reads what the other side says up to its own next piece. What is looked
//! for are stalls: somebody holds a small piece until an acknowledgement comes (Nagle), and the
//! other side delays that acknowledgement, by 40 ms or more.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Who connects, and begins.
    Client,
    /// Who accepts.
    Server,
}

/// A round of the conversation: who writes how many bytes, piece by piece.
pub(crate) struct Script(Vec<(Side, usize)>);

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Script> {
        let piece = |word: &str| -> Result<(Side, usize)> {
            let side = match word.as_bytes().first() {
                Some(b'c') => Side::Client,
                Some(b's') => Side::Server,
                _ => bail!("`{word}` begins with c or s"),
            };
            Ok((side, word[1..].parse().with_context(|| format!("`{word}` has no size"))?))
        };
        let pieces = text.split(',').map(piece).collect::<Result<Vec<_>>>()?;
        ensure!(!pieces.is_empty(), "a script without pieces");
        Ok(Script(pieces))
    }

    /// One round, as `side` sees it.
    pub(crate) fn walk(&self, side: Side, mut stream: impl Read + Write) -> std::io::Result<()> {
        let longest = self.0.iter().map(|&(_, len)| len).sum();
        let mut block = vec![0x5a; longest];
        let mut to_read = 0;
        for &(who, len) in &self.0 {
            if who != side {
                to_read += len;
                continue;
            }
            stream.read_exact(&mut block[..to_read])?;
            to_read = 0;
            stream.write_all(&block[..len])?;
        }
        stream.read_exact(&mut block[..to_read])
    }
}

/// How long each round took, at the client.
pub(crate) struct Rounds(Vec<Duration>);

/// What counts as a stall: less than the shortest delay of an acknowledgement by the kernel.
const STALL: Duration = Duration::from_millis(35);

impl Rounds {
    /// Goes through a script some times, as the client.
    pub(crate) fn run(
        script: &Script,
        rounds: usize,
        mut stream: impl Read + Write,
    ) -> Result<Rounds> {
        let mut times = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let start = Instant::now();
            script.walk(Side::Client, &mut stream).with_context(|| format!("round {round}"))?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(Rounds(times))
    }

    /// Median, 99th percentile and maximum in microseconds, and how many rounds stalled.
    pub(crate) fn json(&self) -> Value {
        let micros = |time: Option<&Duration>| time.map(|time| time.as_secs_f64() * 1e6);
        let at = |part: f64| micros(self.0.get((self.0.len() as f64 * part) as usize));
        let stalls = self.0.iter().filter(|&&time| time >= STALL).count();
        json!({
            "rounds": self.0.len(), "p50": at(0.5), "p99": at(0.99), "max": micros(self.0.last()),
            "stalls": stalls,
        })
    }
}
