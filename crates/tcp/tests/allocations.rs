//! The engine does not allocate per write, per packet or per read once it is warm.

use plimsoll_buf::Pool;
use plimsoll_tcp::{
    Arrival, Below, Config, Connection, Context, Counters, Duration, Ecn, Input, Instant,
    OpenParams, Options, Segment, Serial, State, Transmit,
};
use plimsoll_wire::SeqNum;

/// Two ends on a path that delivers at once.
struct Pair {
    ends: [Connection; 2],
    config: Config,
    counters: Counters,
    now: Instant,
}

fn params(port: u16, max_super_segment: usize) -> OpenParams {
    OpenParams {
        local_port: port,
        remote_port: 3 - port,
        iss: SeqNum(u32::MAX - 5000),
        ts_offset: 0,
        seed: 1,
        mtu: 1500.into(),
        ip_header_len: 20,
        max_super_segment,
        options: Options::default().into(),
        pool: Pool::new(),
    }
}

fn to_segment(packet: Transmit) -> Segment {
    Segment { repr: packet.repr, payload: packet.payload, segs: packet.segs, ecn: Ecn::NotEct }
}

impl Pair {
    fn open(max_super_segment: usize) -> Pair {
        let (config, counters) = (Config::default(), Counters::new());
        let now = Instant::from_millis(1000);
        let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
        let mut client = Connection::connect(&cx, params(1, max_super_segment));
        let syn = client.poll_transmit(&cx).expect("a SYN");
        let server = Connection::accept(&cx, params(2, max_super_segment), &to_segment(syn));
        let mut pair = Pair { ends: [client, server], config, counters, now };
        pair.settle();
        assert_eq!(pair.ends[0].state(), State::Established);
        pair
    }

    fn call<T>(&mut self, end: usize, call: impl FnOnce(&mut Connection, &Context) -> T) -> T {
        let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
        let (config, counters) = (&self.config, &self.counters);
        call(&mut self.ends[end], &Context { now: self.now, below, config, counters })
    }

    /// Carries packets until nothing leaves any more.
    fn settle(&mut self) {
        loop {
            let mut left = false;
            for end in [0, 1] {
                while let Some(packet) = self.call(end, |conn, cx| conn.poll_transmit(cx)) {
                    self.call(1 - end, |conn, cx| {
                        conn.handle(cx, Input::Segment(&mut to_segment(packet), Arrival::default()))
                    });
                    left = true;
                }
                let _ = self.ends[end].poll_event();
            }
            if !left {
                return;
            }
        }
    }

    /// A millisecond passes.
    fn tick(&mut self) {
        self.now += Duration::from_millis(1);
        for end in [0, 1] {
            self.call(end, |conn, cx| conn.handle(cx, Input::Timeout));
        }
        self.settle();
    }

    /// End `from` writes `data` in one call, and the other end reads it.
    fn send(&mut self, from: usize, data: &[u8], out: &mut [u8]) {
        let (mut written, mut read) = (0, 0);
        while read < data.len() {
            written += self.call(from, |conn, cx| conn.write(cx, &data[written..])).unwrap_or(0);
            self.settle();
            while let Ok(count) = self.call(1 - from, |conn, cx| conn.read(cx, out)) {
                read += count;
            }
            self.tick();
        }
    }
}

/// `round` allocates nothing after some repetitions.
#[track_caller]
fn assert_no_allocations(mut round: impl FnMut()) {
    for _ in 0..300 {
        round();
    }
    let seen = allocation_counter::measure(|| {
        for _ in 0..300 {
            round();
        }
    });
    assert_eq!(seen.count_total, 0, "{seen:?}");
}

#[test]
fn bulk() {
    // With super-segments, and with as many segments as an empty queue keeps room for.
    for (largest, len) in [(65_000, 60_000), (0, 20_000)] {
        let mut pair = Pair::open(largest);
        let (data, mut out) = (vec![7; len], vec![0; 65_536]);
        assert_no_allocations(|| pair.send(0, &data, &mut out));
    }
}

#[test]
fn a_long_burst_of_single_segments_allocates_a_few_times() {
    // An idle connection gives its queues back, and the next burst lets them grow again: that is
    // paid per burst, and not per packet.
    let mut pair = Pair::open(0);
    let (data, mut out) = (vec![7; 60_000], vec![0; 65_536]);
    let bursts = 100;
    let mut round = || (0..bursts).for_each(|_| pair.send(0, &data, &mut out));
    round();
    let seen = allocation_counter::measure(round);
    assert!(seen.count_total <= 4 * bursts, "{seen:?}");
}

#[test]
fn small_writes() {
    let mut pair = Pair::open(65_000);
    let mut out = vec![0; 65_536];
    assert_no_allocations(|| {
        for _ in 0..100 {
            let wrote = pair.call(0, |conn, cx| conn.write(cx, &[7; 128]));
            assert_eq!(wrote, Ok(128));
        }
        pair.send(0, &[7; 128], &mut out);
        while pair.call(1, |conn, cx| conn.read(cx, &mut out)).is_ok() {}
        pair.tick();
    });
}

#[test]
fn requests_and_responses() {
    let mut pair = Pair::open(65_000);
    let mut out = vec![0; 65_536];
    assert_no_allocations(|| {
        pair.send(0, &[1], &mut out);
        pair.send(1, &[2; 4096], &mut out);
    });
}

#[test]
fn reads_without_a_copy() {
    let mut pair = Pair::open(65_000);
    let data = vec![7; 60_000];
    assert_no_allocations(|| {
        let (mut written, mut read) = (0, 0);
        while read < data.len() {
            written += pair.call(0, |conn, cx| conn.write(cx, &data[written..])).unwrap_or(0);
            pair.settle();
            while let Ok(slices) = pair.call(1, |conn, cx| conn.read_shared(cx, 65_536)) {
                read += slices.len();
            }
            pair.tick();
        }
    });
}
