//! Random walks: the properties of the tail policies, and that everything leaves in bounded time.

use plimsoll_wire::SeqNum;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::format;
use std::vec::Vec;

use crate::config::{SetOption, TsoTail};
use crate::mtu::PathEvent;
use crate::output::Hold;
use crate::segment::{Below, SendKind, Transmit};
use crate::send::WriteFlags;
use crate::serial::Serial;
use crate::testing::{ISS, Setup, Trace, pattern, show, under_miri};
use crate::time::Duration;
use crate::timer::Timer;

/// An event of a connection.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    /// A write with MSG_MORE, MSG_EOR or MSG_OOB.
    Flagged(usize, WriteFlags),
    /// The peer acknowledges this share of the data in flight, in percent.
    Ack(u32),
    /// The same, with another window.
    Window(u32, u16),
    /// Microseconds pass.
    Wait(u64),
    Mtu(u16),
    NoDelay(bool),
    Cork(bool),
    Policy(TsoTail),
    /// The device completes the packets below.
    Complete,
}

fn flagged() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![
        Just(WriteFlags { more: true, ..WriteFlags::default() }),
        Just(WriteFlags { eor: true, ..WriteFlags::default() }),
        Just(WriteFlags { urgent: true, ..WriteFlags::default() }),
    ];
    (1_usize..4000, flags).prop_map(|(len, flags)| Step::Flagged(len, flags))
}

/// Writes, ACKs, windows, time and MTUs.
fn plain_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_usize..4000).prop_map(Step::Write),
        1 => (4000_usize..100_000).prop_map(Step::Write),
        6 => (0_u32..=100).prop_map(Step::Ack),
        1 => (0_u32..=100, 0_u16..8000).prop_map(|(ack, window)| Step::Window(ack, window)),
        1 => (0_u32..=100, 8000_u16..60_000).prop_map(|(ack, window)| Step::Window(ack, window)),
        3 => (1_u64..3000).prop_map(Step::Wait),
        1 => (3000_u64..400_000).prop_map(Step::Wait),
        1 => prop::sample::select(std::vec![576, 900, 1040, 1500]).prop_map(Step::Mtu),
    ]
}

/// Everything.
fn any_step() -> impl Strategy<Value = Step> {
    let policy = prop::sample::select(TsoTail::ALL.to_vec());
    prop_oneof![
        12 => plain_step(),
        3 => flagged(),
        1 => any::<bool>().prop_map(Step::NoDelay),
        1 => any::<bool>().prop_map(Step::Cork),
        1 => policy.prop_map(Step::Policy),
        2 => Just(Step::Complete),
    ]
}

/// A connection, its inputs, and its packets.
struct Walk {
    t: Trace,
    una: u32,
    /// End of the last packet that was not a whole number of segments, while unacknowledged.
    small: Option<SeqNum>,
    /// The end of sent data when output began, if anything was in flight.
    busy_at: Option<SeqNum>,
    nodelay: bool,
    /// Packets that have not completed, with their lengths.
    below: Vec<(Serial, u32)>,
}

type Checked = Result<(), TestCaseError>;

impl Walk {
    fn new(setup: Setup, rtt: u64) -> Walk {
        let mut setup = setup;
        setup.options.sndbuf = Some(1 << 22);
        // A probe of either kind sends a tail on purpose.
        setup.config.tcp_frto = 0;
        let mut t = Trace::established(setup);
        if rtt > 0 {
            t.set_round_trip(rtt);
        }
        Walk { t, una: 1, small: None, busy_at: None, nodelay: false, below: Vec::new() }
    }

    fn nxt(&self) -> u32 {
        self.t.conn.snd.nxt().since(ISS)
    }

    fn write(&mut self, len: usize, flags: WriteFlags) {
        let at = self.t.conn.snd.write_end().since(ISS) as usize - 1;
        let data: Vec<u8> = (at..at + len).map(pattern).collect();
        let taken = self.t.call(|conn, cx| conn.write_with(cx, &[&data], flags));
        assert_eq!(taken, Ok(len));
    }

    fn acknowledge(&mut self, percent: u32, window: Option<u16>) {
        self.una += (self.nxt() - self.una) * percent / 100;
        let window = window.map(|window| format!(" win {window}")).unwrap_or_default();
        self.t.recv(&format!(". 1:1 ack {}{window}", self.una));
        let una = ISS + self.una;
        self.small = self.small.filter(|&end| una < end);
    }

    fn wait(&mut self, micros: u64) {
        let then = self.t.now + Duration::from_micros(micros);
        while let Some(at) = self.t.conn.poll_timeout().filter(|&at| at <= then) {
            self.t.now = at.max(self.t.now);
            self.t.call(|conn, cx| conn.handle_timeout(cx));
            self.drain(|_, _, _| Ok(())).expect("nothing is checked");
        }
        self.t.now = then;
    }

    fn complete(&mut self) {
        if let Some(&(serial, _)) = self.below.last() {
            self.below.clear();
            self.t.below = Below { bytes: 0, completed: serial, ..self.t.below };
            self.t.call(|conn, cx| conn.handle_completion(cx));
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(len) => self.write(len, WriteFlags::default()),
            Step::Flagged(len, flags) => self.write(len, flags),
            Step::Ack(percent) => self.acknowledge(percent, None),
            Step::Window(percent, window) => self.acknowledge(percent, Some(window)),
            Step::Wait(micros) => self.wait(micros),
            Step::Mtu(mtu) => {
                self.t.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(mtu)))
            }
            Step::NoDelay(on) => {
                self.nodelay = on;
                self.t.call(|conn, cx| conn.set_option(cx, SetOption::NoDelay(on)));
            }
            Step::Cork(on) => self.t.call(|conn, cx| conn.set_option(cx, SetOption::Cork(on))),
            Step::Policy(policy) => {
                self.t.call(|conn, cx| conn.set_option(cx, SetOption::TsoTail(Some(policy))));
            }
            Step::Complete => self.complete(),
        }
    }

    /// Takes all that leaves. `check` sees each packet of new data that is no whole number of
    /// segments and was not cut by the peer's window, and where it ends.
    fn drain(&mut self, check: impl Fn(&Walk, &Transmit, SeqNum) -> Checked) -> Checked {
        let nxt = self.t.conn.snd.nxt();
        self.busy_at = self.t.conn.snd.has_unacked().then_some(nxt);
        while let Some(packet) = self.t.next() {
            if let Some(serial) = packet.serial.filter(|_| self.t.below.completions) {
                self.below.push((serial, packet.payload.len() as u32));
                self.t.below.bytes += packet.payload.len() as u32;
            }
            let end = packet.repr.seq + packet.payload.len() as u32;
            let whole = packet.payload.len() % usize::from(packet.segment_size) == 0;
            if packet.kind != SendKind::New || whole {
                continue;
            }
            if end != self.t.conn.snd.window_end() {
                check(self, &packet, end)?;
            }
            self.small = Some(end);
        }
        Ok(())
    }

    /// Waiting data always has an event that will end the wait.
    fn check_awaited(&self) -> Checked {
        let conn = &self.t.conn;
        if conn.unsent_len() > 0 {
            let awaits = conn.awaits_completion() && !self.below.is_empty();
            prop_assert!(awaits || conn.poll_timeout().is_some(), "{:?} for ever", conn.hold());
            prop_assert!(conn.hold().is_some(), "nothing holds what waits");
            let timer = match conn.hold() {
                Some(Hold::TsoDefer) => Some(Timer::TsoDefer),
                Some(Hold::Pacing) => Some(Timer::Pacing),
                _ if conn.snd.has_unacked() || !self.below.is_empty() => None,
                Some(Hold::Rwnd | Hold::SillyWindow | Hold::Cork) => Some(Timer::Persist),
                hold => panic!("{hold:?} holds an idle sender"),
            };
            prop_assert!(timer.is_none_or(|timer| conn.timers.is_armed(timer)), "{timer:?}");
        }
        Ok(())
    }

    /// The peer accepts everything from now on: all data must leave within `bound`, or within twice
    /// the RTO if that is longer. A cork and a silly window hold an idle sender for one RTO, which
    /// depends on earlier measurements, and may still grow while old data is acknowledged.
    fn finish(&mut self, bound: Duration) -> Checked {
        let began = self.t.now;
        let mut bound = bound;
        loop {
            self.drain(|_, _, _| Ok(()))?;
            self.check_awaited()?;
            self.complete();
            self.acknowledge(100, Some(60_000));
            self.drain(|_, _, _| Ok(()))?;
            if self.t.conn.is_drained() {
                return Ok(());
            }
            if self.t.conn.snd.has_unacked() || !self.below.is_empty() {
                continue;
            }
            bound = bound.max(self.t.info().rto * 2);
            self.t.sleep();
            prop_assert!(self.t.now.since(began) <= bound, "{:?} too long", self.t.conn.hold());
        }
    }
}

fn setup(policy: TsoTail, tso: bool, defer: bool) -> Setup {
    let mut setup = if tso { Setup::tso() } else { Setup::default() };
    setup.options.tso_tail = Some(policy);
    setup.config.tcp_tso_defer = defer;
    setup
}

/// The longest time for which anything except the RTO holds data that the peer would accept, and
/// the time that a walk needs to end.
const BOUND: Duration = Duration::from_secs(2);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(under_miri(512, 1)))]

    /// The default policy: without NODELAY, end of record, urgent data or FIN, at most one segment
    /// that is not full is unacknowledged, each ends where written data ended when it was cut, and
    /// nothing waits for Nagle's rule when none is in flight.
    #[test]
    fn one_small_segment_at_a_time(
        steps in prop::collection::vec(plain_step(), 1..60),
        tso in any::<bool>(),
        defer in any::<bool>(),
        rtt in 0_u64..3,
    ) {
        let mut walk = Walk::new(setup(TsoTail::Nagle, tso, defer), rtt);
        for step in &steps {
            walk.step(step);
            walk.drain(|walk, packet, end| {
                prop_assert_eq!(walk.small, None, "a second one: {}", show(packet));
                let written = walk.t.conn.snd.write_end();
                prop_assert_eq!(end, written, "not where data ends: {}", show(packet));
                Ok(())
            })?;
            let held = walk.t.conn.hold() == Some(Hold::Nagle);
            prop_assert!(!held || walk.small.is_some(), "Nagle's rule holds without a reason");
            walk.check_awaited()?;
        }
        walk.finish(BOUND)?;
    }

    /// `trim`: a super-segment never carries a tail while data may follow, and one that leaves by
    /// itself does so where data ends and follows nothing that was in flight before.
    #[test]
    fn trim_has_no_small_segment_inside_bulk(
        steps in prop::collection::vec(plain_step(), 1..60),
        tso in any::<bool>(),
        defer in any::<bool>(),
        rtt in 0_u64..3,
    ) {
        let mut walk = Walk::new(setup(TsoTail::Trim, tso, defer), rtt);
        for step in &steps {
            walk.step(step);
            walk.drain(|walk, packet, end| {
                prop_assert_eq!(packet.segs, 1, "a tail travels: {}", show(packet));
                let written = walk.t.conn.snd.write_end();
                prop_assert_eq!(end, written, "not where data ends: {}", show(packet));
                prop_assert_eq!(walk.busy_at, None, "data was in flight: {}", show(packet));
                Ok(())
            })?;
            walk.check_awaited()?;
        }
        walk.finish(BOUND)?;
    }

    /// With any settings and any layer below: no data waits for ever.
    #[test]
    fn everything_leaves_in_bounded_time(
        steps in prop::collection::vec(any_step(), 1..60),
        policy in prop::sample::select(TsoTail::ALL.to_vec()),
        (tso, defer, completions) in any::<(bool, bool, bool)>(),
        rtt in 0_u64..3,
    ) {
        let mut walk = Walk::new(setup(policy, tso, defer), rtt);
        let completed = Serial(walk.t.conn.snd.next_serial().0 - 1);
        if completions {
            walk.t.below = Below { completed, completions, ..Below::default() };
        }
        for step in &steps {
            walk.step(step);
            walk.drain(|_, _, _| Ok(()))?;
            walk.check_awaited()?;
        }
        walk.finish(BOUND)?;
    }

    /// A stream that is shut down ends, and its FIN is the last number.
    #[test]
    fn the_end_of_a_stream_leaves(
        steps in prop::collection::vec(any_step(), 1..30),
        policy in prop::sample::select(TsoTail::ALL.to_vec()),
        defer in any::<bool>(),
    ) {
        let mut walk = Walk::new(setup(policy, true, defer), 1);
        for step in &steps {
            walk.step(step);
            walk.drain(|_, _, _| Ok(()))?;
        }
        let end = walk.t.conn.snd.write_end();
        walk.t.call(|conn, cx| conn.shutdown(cx));
        walk.finish(BOUND)?;
        prop_assert_eq!(walk.t.conn.snd.nxt(), end + 1);
    }
}

/// The first round trips take a second, so that the RTO is more than two: this is the ceiling of
/// the cork.
#[test]
fn a_corked_tail_leaves_after_one_timeout_also_if_that_is_long() {
    let mut walk = Walk::new(setup(TsoTail::Split, false, false), 2);
    let completed = Serial(walk.t.conn.snd.next_serial().0 - 1);
    walk.t.below = Below { completed, completions: true, ..Below::default() };
    let write = [Step::Write(1852), Step::Cork(true), Step::Write(1)];
    let wait = [343_346, 375_663, 356_336].map(Step::Wait);
    for step in write.iter().chain(&wait).chain(&[Step::Ack(54)]) {
        walk.step(step);
        walk.drain(|_, _, _| Ok(())).expect("nothing is checked");
        walk.check_awaited().expect("something ends the wait");
    }
    walk.acknowledge(100, Some(60_000));
    walk.drain(|_, _, _| Ok(())).expect("nothing is checked");
    assert_eq!(walk.t.conn.hold(), Some(Hold::Cork));
    let (began, rto) = (walk.t.now, walk.t.info().rto);
    assert!(BOUND < rto, "{rto:?}");
    walk.finish(BOUND).expect("all leaves");
    assert_eq!(walk.t.now.since(began), rto);
}
