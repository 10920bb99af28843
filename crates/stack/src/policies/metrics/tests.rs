//! The stored metrics, and their lifetime.

use plimsoll_wire::tcp::FastOpenCookie;

use super::*;

fn key(n: u32) -> FlowKey {
    let ip = IpAddr::from(n.to_be_bytes());
    FlowKey { local: IpAddr::from([192, 0, 2, 1]), remote: ip, local_port: 1, remote_port: 2 }
}

fn cookie(byte: u8, experimental: bool) -> Option<FastOpenOption> {
    FastOpenCookie::new(&[byte; 4]).map(|cookie| FastOpenOption { cookie, experimental })
}

fn syn_ack(metrics: &mut Metrics, given: Option<FastOpenOption>, refused: u8) {
    metrics.learn(&key(1), |entry| entry.on_syn_ack(Instant::ZERO, (1000, given), false, refused));
}

fn open(metrics: &mut Metrics, settings: &Settings) -> FastOpen {
    metrics.fast_open(&key(1), Instant::from_millis(1), settings, false)
}

#[test]
fn the_last_cookie_counts_whatever_its_form() {
    let (mut metrics, settings) = (Metrics::default(), Settings::default());
    assert_eq!(open(&mut metrics, &settings), FastOpen::request(false));
    syn_ack(&mut metrics, cookie(1, false), 0);
    let known = FastOpen { option: cookie(1, false), data: true, mss: Some(1000), probing: false };
    assert_eq!(open(&mut metrics, &settings), known);
    syn_ack(&mut metrics, None, 0);
    assert_eq!(open(&mut metrics, &settings), known, "no cookie leaves the old one");
    syn_ack(&mut metrics, cookie(2, true), 0);
    assert_eq!(open(&mut metrics, &settings).option, cookie(2, true));
    metrics.flush();
    assert_eq!(open(&mut metrics, &settings), FastOpen::request(false));
}

#[test]
fn the_experimental_form_is_tried_once() {
    let (mut metrics, settings) = (Metrics::default(), Settings::default());
    for experimental in [false, true, false, false] {
        let known = open(&mut metrics, &settings);
        assert_eq!(known.option, FastOpen::request(experimental).option);
        assert!(!known.data);
        syn_ack(&mut metrics, None, 1 + u8::from(experimental));
    }
}

#[test]
fn without_cookies_data_leaves_at_once() {
    let mut metrics = Metrics::default();
    let settings = Settings { tcp_fastopen: 5, ..Settings::default() };
    let expected = FastOpen { data: true, ..FastOpen::default() };
    assert_eq!(open(&mut metrics, &settings), expected);
    let own = metrics.fast_open(&key(1), Instant::ZERO, &Settings::default(), true);
    assert_eq!(own, expected, "the socket's option does the same");
}

#[test]
fn entries_are_bounded() {
    let mut metrics = Metrics::default();
    for n in 0..=MAX_METRICS_ENTRIES as u32 {
        metrics.learn(&key(n), |entry| entry.mss = Some(1));
    }
    assert_eq!(metrics.entries.len(), MAX_METRICS_ENTRIES);
    assert_eq!(metrics.entry(&key(0)).mss, None, "the oldest went");
    assert_eq!(metrics.entry(&key(1)).mss, Some(1));
}

#[test]
fn a_pause_doubles_ends_and_is_forgotten() {
    let mut metrics = Metrics::default();
    let mut settings =
        Settings { tcp_fastopen_blackhole_timeout: Duration::from_secs(10), ..Settings::default() };
    syn_ack(&mut metrics, cookie(1, false), 0);
    for (found, secs) in [(1, 10), (2, 20), (7, 640), (9, 640)] {
        metrics.pause.found = found;
        let at = |millis| Instant::from_millis(millis);
        let before = metrics.fast_open(&key(1), at(secs * 1000 - 1), &settings, false);
        assert_eq!((before.option, before.data), (None, false), "{found} found");
        let after = metrics.fast_open(&key(1), at(secs * 1000), &settings, false);
        assert!(after.data && after.probing, "{found} found");
    }
    settings.tcp_fastopen_blackhole_generation += 1;
    let known = open(&mut metrics, &settings);
    assert!(known.data && !known.probing, "writing the setting ends the pause");
}
