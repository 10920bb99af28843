//! `sacked SEGMENTS [ROUNDS]`: what an ACK with SACK costs, with so many segments in flight.
//!
//! One connection, no device and no clock. It sends SEGMENTS segments of the least MSS that a peer
//! may announce. The peer then SACKs every second of them, in an order without a pattern: an ACK
//! for each, with the three blocks before it beside the new one. What the connection sends again
//! meanwhile counts as well. Printed as a line of JSON: how many ACKs there were, the nanoseconds
//! of processor time that one of them took in the best of the rounds, and in all of them by order.
//!
//! `cargo xtask bench sacked` runs this. It uses the public interface only, so that it can be built
//! with older versions of the stack.

use std::hint::black_box;
use std::time::Instant as Clock;

use anyhow::{Context as _, Result, ensure};
use plimsoll_buf::{Pool, Slices};
use plimsoll_tcp::{
    Arrival, Below, Config, Connection, Context, Counters, Duration, Ecn, Input, Instant,
    OpenParams, Options, Segment, Serial, State,
};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr};
use serde_json::json;

/// The least MSS that a peer may announce (`tcp_min_snd_mss`).
const MSS: u32 = 48;

/// Our initial sequence number and the peer's; ours wraps.
const ISS: SeqNum = SeqNum(u32::MAX - 5000);
const IRS: SeqNum = SeqNum(7000);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| -> Result<u32> {
        words.get(at).map_or(Ok(default), |word| word.parse().context("a number"))
    };
    let segments = number(0, 1000)?;
    let rounds = number(1, 5)?;
    ensure!((8..=1_000_000).contains(&segments), "SEGMENTS is from 8 to 1000000");
    ensure!((1..=1000).contains(&rounds), "ROUNDS is from 1 to 1000");
    let mut nanos = Vec::new();
    for _ in 0..rounds {
        nanos.push(round(segments)?);
    }
    nanos.sort_by(f64::total_cmp);
    let figures = json!({ "segments": segments, "acks": segments / 2 - 4,
        "ns_per_ack": nanos[0], "rounds": nanos });
    println!("{figures}");
    Ok(())
}

/// Nanoseconds for each ACK.
fn round(segments: u32) -> Result<f64> {
    let mut sender = Sender::new(segments)?;
    let order = every_second(segments);
    let acks: Vec<Segment> = (3..order.len() - 1)
        .map(|at| {
            let blocks = [0, 1, 2, 3].map(|ago| {
                let left = ISS + 1 + order[at - ago] * MSS;
                SackBlock { left, right: left + MSS }
            });
            ack(&blocks)
        })
        .collect();
    let count = acks.len() as f64;
    sender.now += Duration::from_millis(50);
    let start = Clock::now();
    for segment in acks {
        sender.take(segment);
    }
    let taken = start.elapsed();
    ensure!(sender.conn.info(&sender.config).sacked > 0, "no SACK was taken");
    Ok(taken.as_nanos() as f64 / count)
}

/// A connection with data in flight.
struct Sender {
    conn: Connection,
    config: Config,
    counters: Counters,
    now: Instant,
}

impl Sender {
    fn new(segments: u32) -> Result<Sender> {
        let len = segments as usize * MSS as usize;
        let config = Config {
            tcp_timestamps: false,
            // Everything leaves in one round trip, and nothing asks for an answer.
            initcwnd: segments,
            tcp_early_retrans: 0,
            ..Config::default()
        };
        let counters = Counters::new();
        let now = Instant::from_millis(1000);
        let params = OpenParams {
            local_port: 1,
            remote_port: 2,
            iss: ISS,
            ts_offset: 0,
            seed: 1,
            mtu: 1500_u16.into(),
            ip_header_len: 20,
            max_super_segment: 0,
            options: Options::default().sndbuf(Some(2 * len + (1 << 20))).into(),
            pool: Pool::new(),
        };
        let cx = Context { now, below: below(), config: &config, counters: &counters };
        let mut conn = Connection::connect(&cx, params);
        ensure!(conn.poll_transmit(&cx).is_some(), "a SYN");
        let mut sender = Sender { conn, config, counters, now: now + Duration::from_millis(50) };
        let mut repr = ack(&[]).repr;
        repr.flags = TcpFlags::SYN | TcpFlags::ACK;
        repr.seq = IRS;
        repr.options.syn_mut().mss = Some(MSS as u16);
        repr.options.syn_mut().window_scale = Some(14);
        repr.options.syn_mut().sack_permitted = true;
        sender.take(segment(repr));
        ensure!(sender.conn.state() == State::Established, "the handshake");
        // The window of a SYN-ACK is not scaled.
        sender.take(ack(&[]));
        let data = vec![7; len];
        let mut written = 0;
        while written < len {
            let (conn, cx) = sender.parts();
            match conn.write(&cx, &data[written..]) {
                Ok(count) => written += count,
                Err(error) => anyhow::bail!("{written} bytes were written: {error:?}"),
            }
            sender.send();
        }
        let unacked = sender.conn.info(&sender.config).unacked;
        ensure!(unacked == segments, "{unacked} segments are in flight, not {segments}");
        Ok(sender)
    }

    fn parts(&mut self) -> (&mut Connection, Context<'_>) {
        let (config, counters) = (&self.config, &self.counters);
        (&mut self.conn, Context { now: self.now, below: below(), config, counters })
    }

    fn take(&mut self, mut segment: Segment) {
        let (conn, cx) = self.parts();
        conn.handle(&cx, Input::Segment(&mut segment, Arrival::default()));
        self.send();
    }

    fn send(&mut self) {
        let (conn, cx) = self.parts();
        while let Some(packet) = conn.poll_transmit(&cx) {
            black_box(packet);
        }
    }
}

fn below() -> Below {
    Below { completed: Serial(u64::MAX), ..Below::default() }
}

/// An ACK of our SYN with SACK blocks.
fn ack(blocks: &[SackBlock]) -> Segment {
    let mut repr = TcpRepr {
        src_port: 2,
        dst_port: 1,
        seq: IRS + 1,
        ack: ISS + 1,
        flags: TcpFlags::ACK,
        window: u16::MAX,
        urgent: 0,
        ..TcpRepr::default()
    };
    for &block in blocks {
        let _ = repr.options.sack_mut().try_push(block);
    }
    segment(repr)
}

fn segment(repr: TcpRepr) -> Segment {
    Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct }
}

/// Every second number below `count`, in an order without a pattern, the same every time.
fn every_second(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count / 2).map(|index| 2 * index + 1).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(index, (state >> 33) as usize % (index + 1));
    }
    order
}
