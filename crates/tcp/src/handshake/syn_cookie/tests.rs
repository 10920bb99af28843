//! SYN-ACKs with cookies, and the ACKs that return them.

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;
use proptest::prelude::*;

use super::*;
use crate::config::Options;
use crate::counters::Counters;
use crate::segment::Below;
use crate::state::State;
use crate::time::Duration;

const COOKIE: SeqNum = SeqNum(0x1234_5678);
const IRS: SeqNum = SeqNum(1000);

fn params(ip_header_len: u16) -> OpenParams {
    OpenParams {
        local_port: 80,
        remote_port: 5000,
        iss: COOKIE,
        ts_offset: 0xffff_ff00,
        seed: 1,
        mtu: 1500.into(),
        ip_header_len,
        max_super_segment: 0,
        options: Options::default().into(),
        pool: Pool::new(),
    }
}

fn segment(seq: SeqNum, ack: u32, flags: TcpFlags, options: TcpOptions) -> Segment {
    let repr = TcpRepr {
        src_port: 5000,
        dst_port: 80,
        seq,
        ack: SeqNum(ack),
        flags,
        window: 500,
        urgent: 0,
        options,
    };
    Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct }
}

fn offer() -> TcpOptions {
    TcpOptions {
        timestamps: Some(Timestamps { val: 77, ecr: 0 }),
        syn_or_sack: SynOrSack::Syn(SynOptions {
            mss: Some(1400),
            window_scale: Some(7),
            sack_permitted: true,
            ..SynOptions::default()
        }),
        ..TcpOptions::default()
    }
}

/// Opens by a SYN with `options`; the ACK comes after `delay`.
fn open(config: &Config, options: TcpOptions, delay: Duration) -> (TcpRepr, Connection) {
    let counters = Counters::new();
    let below = Below::default();
    let now = Instant::from_millis(1_000_000);
    let cx = Context { now, below, config, counters: &counters };
    let syn = segment(IRS, 0, TcpFlags::SYN | syn_flags(Mode::Classic), options);
    let datum = cookie_datum(&cx, &params(20), &syn);
    let answer = cookie_syn_ack(&cx, &params(20), &syn);
    assert_eq!((answer.seq, answer.ack), (COOKIE, IRS + 1));
    let stamps = answer.options.timestamps.map(|t| Timestamps { val: 78, ecr: t.val });
    let options = TcpOptions { timestamps: stamps, ..TcpOptions::default() };
    let mut ack = segment(IRS + 1, (COOKIE + 1).0, TcpFlags::ACK, options);
    let cx = Context { now: now + delay, ..cx };
    let mut conn = Connection::accept_cookie(&cx, params(20), &ack, datum).unwrap();
    conn.handle_segment(&cx, &mut ack);
    assert_eq!(conn.state(), State::Established);
    assert!(conn.poll_transmit(&cx).is_none());
    (answer, conn)
}

#[test]
fn everything_comes_back_in_the_timestamp() {
    let config = Config { tcp_ecn: 2, ..Config::default() };
    let (answer, conn) = open(&config, offer(), Duration::from_millis(100));
    assert!(answer.options.syn().sack_permitted && answer.options.syn().window_scale.is_some());
    assert!(answer.flags.contains(TcpFlags::ECE) && !answer.flags.contains(TcpFlags::CWR));
    let info = conn.info(&config);
    assert_eq!((info.snd_mss, info.snd_wscale, info.snd_wnd), (1288, 7, 500 << 7));
    assert!(info.sack && info.timestamps && info.window_scaling && conn.ecn.is_on());
    // The cookie's clock has steps of 64 ms.
    let rtt = info.rtt.as_millis();
    assert!((100..164).contains(&rtt), "{rtt}");
}

#[test]
fn without_timestamps_only_the_mss_is_left() {
    let config = Config { tcp_ecn: 2, ..Config::default() };
    let options = TcpOptions { timestamps: None, ..offer() };
    let (answer, conn) = open(&config, options, Duration::from_millis(100));
    assert!(!answer.options.syn().sack_permitted && answer.options.syn().window_scale.is_none());
    assert!(!answer.flags.contains(TcpFlags::ECE));
    let info = conn.info(&config);
    assert!(!info.sack && !info.timestamps && !info.window_scaling && !conn.ecn.is_on());
    assert_eq!((info.snd_wnd, info.rtt, info.rto), (500, Duration::ZERO, Duration::from_secs(3)));
}

#[test]
fn an_mss_is_rounded_down() {
    let cases = [
        (20, None, 0),
        (20, Some(100), 0),
        (20, Some(1299), 0),
        (20, Some(1300), 1),
        (20, Some(1459), 2),
        (20, Some(9000), 3),
        (40, Some(1219), 0),
        (40, Some(1440), 2),
        (40, Some(8940), 3),
    ];
    for (len, mss, index) in cases {
        assert_eq!(mss_index(len, mss), index, "{len} {mss:?}");
    }
}

#[test]
fn what_the_settings_forbid_was_never_offered() {
    let counters = Counters::new();
    let refused = |config: Config| {
        let (now, below) = (Instant::from_millis(5000), Below::default());
        let cx = Context { now, below, config: &config, counters: &counters };
        let bits = SACK | 3;
        let ecr = bits.wrapping_add(params(20).ts_offset);
        let stamps = Some(Timestamps { val: 1, ecr });
        let options = TcpOptions { timestamps: stamps, ..TcpOptions::default() };
        let ack = segment(IRS + 1, (COOKIE + 1).0, TcpFlags::ACK, options);
        assert!(Connection::accept_cookie(&cx, params(20), &ack, 9).is_none());
        Connection::accept_cookie(&cx, params(20), &ack, 1).is_none()
    };
    assert!(!refused(Config::default()));
    assert!(refused(Config { tcp_sack: false, ..Config::default() }));
    assert!(refused(Config { tcp_timestamps: false, ..Config::default() }));
    assert!(refused(Config { tcp_window_scaling: false, ..Config::default() }));
}

/// The right edge that the SYN-ACK shows to a SYN with `options`, and the one that the connection
/// begins with; if `stripped`, the ACK has no timestamps. With a cookie, or remembered.
fn edges(params: OpenParams, options: TcpOptions, stripped: bool, cookie: bool) -> [SeqNum; 2] {
    let (config, counters) = (Config::default(), Counters::new());
    let (now, below) = (Instant::from_millis(5000), Below::default());
    let cx = Context { now, below, config: &config, counters: &counters };
    let syn = segment(IRS, 0, TcpFlags::SYN, options);
    let mut remembered = Connection::accept(&cx, params.clone(), &syn);
    let answer = match cookie {
        true => cookie_syn_ack(&cx, &params, &syn),
        false => remembered.poll_transmit(&cx).unwrap().repr,
    };
    let shown = answer.ack + u32::from(answer.window);
    let stamps = answer.options.timestamps.map(|t| Timestamps { val: 78, ecr: t.val });
    let stamps = stamps.filter(|_| !stripped);
    let options = TcpOptions { timestamps: stamps, ..TcpOptions::default() };
    let mut ack = segment(IRS + 1, (COOKIE + 1).0, TcpFlags::ACK, options);
    let datum = cookie_datum(&cx, &params, &syn);
    let mut conn = match cookie {
        true => Connection::accept_cookie(&cx, params, &ack, datum).unwrap(),
        false => remembered,
    };
    conn.handle_segment(&cx, &mut ack);
    [shown, conn.rcv.adv()]
}

#[test]
fn a_window_is_counted_as_the_syn_ack_has_counted_it() {
    for stripped in [false, true] {
        let edges = edges(params(20), offer(), stripped, true);
        assert_eq!(edges, [IRS + 1 + 45 * 1448; 2], "{stripped}");
    }
}

proptest! {
    /// For any options of a SYN, the ACK returns them and the socket has them: the right edge that
    /// the SYN-ACK has shown never moves left.
    #[test]
    fn the_first_window_is_never_taken_back(
        (stamps, scale, sack, stripped, cookie) in any::<(bool, bool, bool, bool, bool)>(),
        v6 in any::<bool>(),
        mss in proptest::option::of(1_u16..9000),
        rcvbuf in proptest::option::of(1_usize..300_000),
        clamp in proptest::option::of(1_u32..100_000),
        initrwnd in proptest::option::of(1_u32..100),
    ) {
        let mut options = Options { rcvbuf, window_clamp: clamp, ..Options::default() };
        options.route.initrwnd = initrwnd;
        let ip_header_len = if v6 { 40 } else { 20 };
        let params = OpenParams { options: options.into(), ..params(ip_header_len) };
        let syn = SynOptions {
            mss,
            window_scale: scale.then_some(7),
            sack_permitted: sack,
            ..SynOptions::default()
        };
        let timestamps = offer().timestamps.filter(|_| stamps);
        let syn_or_sack = SynOrSack::Syn(syn);
        let offer = TcpOptions { timestamps, syn_or_sack, ..TcpOptions::default() };
        let [shown, kept] = edges(params, offer, stripped, cookie);
        prop_assert!(kept >= shown, "{shown:?} {kept:?}");
    }

    /// The clock of a cookie is never ahead, and never far behind.
    #[test]
    fn cookies_do_not_disturb_the_clock(millis in 0_u64..1 << 34, offset: u32, bits in 0_u32..64) {
        let ts = TimestampState::new(offset);
        let now = Instant::from_millis(millis);
        let val = val_with(&ts, now, bits);
        prop_assert!(ts.val(now).wrapping_sub(val) < 64);
        prop_assert_eq!(val.wrapping_sub(offset) & BITS, bits);
    }

    /// Any ACK makes a consistent connection, or none.
    #[test]
    fn any_ack_is_taken_or_refused(seq: u32, ack: u32, window: u16, val: u32, ecr: u32, mss: u8) {
        let (config, counters) = (Config::default(), Counters::new());
        let (now, below) = (Instant::from_millis(5000), Below::default());
        let cx = Context { now, below, config: &config, counters: &counters };
        let stamps = Some(Timestamps { val, ecr });
        let options = TcpOptions { timestamps: stamps, ..TcpOptions::default() };
        let mut segment = segment(SeqNum(seq), ack, TcpFlags::ACK, options);
        segment.repr.window = window;
        let params = OpenParams { iss: SeqNum(ack) - 1, ..params(40) };
        if let Some(mut conn) = Connection::accept_cookie(&cx, params, &segment, mss) {
            conn.handle_segment(&cx, &mut segment);
            prop_assert_eq!(conn.state(), State::Established);
        }
    }
}

#[test]
fn a_listener_that_waits_for_data_takes_a_bare_ack_with_a_cookie() {
    let (config, counters) = (Config::default(), Counters::new());
    let now = Instant::from_millis(1_000_000);
    let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
    let options = Options { defer_accept: 3, ..Options::default() };
    let params = OpenParams { options: options.into(), ..params(20) };
    let mut ack = segment(IRS + 1, (COOKIE + 1).0, TcpFlags::ACK, TcpOptions::default());
    let mut conn = Connection::accept_cookie(&cx, params, &ack, 0).unwrap();
    conn.handle_segment(&cx, &mut ack);
    // Otherwise nothing would ever end it: its SYN-ACK is not retransmitted, and has no timer.
    assert_eq!(conn.state(), State::Established);
}

#[test]
fn accurate_ecn_needs_no_place_in_a_cookie() {
    let config = Config { tcp_ecn: 3, ..Config::default() };
    let counters = Counters::new();
    let below = Below::default();
    let now = Instant::from_millis(1_000_000);
    let cx = Context { now, below, config: &config, counters: &counters };
    for timestamps in [offer().timestamps, None] {
        let options = TcpOptions { timestamps, ..offer() };
        let syn = segment(IRS, 0, TcpFlags::SYN | syn_flags(Mode::Accurate), options);
        let answer = cookie_syn_ack(&cx, &params(20), &syn);
        assert_eq!(ace(answer.flags), 0b010);
        assert!(answer.options.acc_ecn.is_some());
        let stamps = answer.options.timestamps;
        let echo = stamps.map(|ours| Timestamps { val: 9, ecr: ours.val });
        for (bits, accurate) in [
            (0, false),
            (1, false),
            (2, true),
            (3, true),
            (4, true),
            (5, false),
            (6, true),
            (7, false),
        ] {
            let options = TcpOptions { timestamps: echo, ..TcpOptions::default() };
            let ack = segment(IRS + 1, 1, TcpFlags::ACK | ace_flags(bits), options);
            let conn = Connection::accept_cookie(&cx, params(20), &ack, 3).expect("it is good");
            assert_eq!(conn.ecn.is_on(), accurate, "{bits:03b}");
            assert!(!conn.ecn.tells_reductions(), "{bits:03b}");
        }
    }
}
