//! What the figures say while something happens.

use super::*;
use crate::testing::{Setup, Trace};

fn figures(t: &Trace) -> Info {
    t.conn.info(&t.config)
}

#[test]
fn the_timeout_and_its_retries() {
    let mut t = Trace::syn_sent(Setup::default());
    assert_eq!((figures(&t).rto, figures(&t).retransmits), (Duration::from_secs(1), 0));
    t.sleep();
    t.expect("S 0:0");
    assert_eq!((figures(&t).rto, figures(&t).retransmits), (Duration::from_secs(2), 1));
    let mut t = Trace::established(Setup::default());
    assert_eq!(figures(&t).rto.as_millis(), t.config.tcp_rto_min.as_millis());
    t.write(10);
    t.expect("P. 1:11 ack 1");
    for retries in 1..4 {
        let before = figures(&t).rto;
        t.sleep();
        t.expect("P. 1:11 ack 1");
        let now = figures(&t);
        assert_eq!((now.rto, now.retransmits, now.backoff), (before * 2, retries, retries));
        assert_eq!(t.conn.poll_timeout(), Some(t.now + now.rto));
    }
    t.recv(". 1:1 ack 11");
    assert_eq!(figures(&t).retransmits, 0);
}

#[test]
fn probes_of_both_kinds() {
    let mut t = Trace::established(Setup::default());
    t.recv(". 1:1 ack 1 win 0");
    t.write(10);
    t.expect_nothing();
    for probes in 1..4 {
        t.sleep();
        t.expect(". 0:0 ack 1");
        let now = figures(&t);
        // The backoff is the probes', no data was sent again.
        assert_eq!((now.probes, now.retransmits, now.backoff), (probes, 0, probes));
    }
    t.recv(". 1:1 ack 1 win 0");
    assert_eq!(figures(&t).probes, 0);
    let mut setup = Setup::default();
    setup.options.keepalive = true;
    let mut t = Trace::established(setup);
    for probes in 1..4 {
        t.sleep();
        t.expect(". 0:0 ack 1");
        assert_eq!(figures(&t).probes, probes);
    }
}

#[test]
fn settings_are_those_of_now() {
    let mut t = Trace::established(Setup::default());
    assert_eq!(figures(&t).reordering, 3);
    t.config.tcp_reordering = 7;
    assert_eq!(figures(&t).reordering, 7);
}
