//! The figures during events.

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
    // The first timeouts of a SYN do not double.
    assert_eq!((figures(&t).rto, figures(&t).retransmits), (Duration::from_secs(1), 1));
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
        // The backoff belongs to the probes; no data was retransmitted.
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
fn the_reordering_is_that_of_the_open() {
    let mut t = Trace::established(Setup::default());
    assert_eq!(figures(&t).reordering, 3);
    t.config.tcp_reordering = 7;
    assert_eq!(figures(&t).reordering, 3);
}

#[test]
fn what_a_sender_waited_for() {
    let mut t = Trace::established(Setup::default().win(0));
    let times = |t: &Trace| {
        let info = t.conn.info_at(&t.config, t.now);
        [info.busy_time, info.rwnd_limited, info.sndbuf_limited].map(|time| time.as_millis())
    };
    t.at(50);
    t.write(1000);
    t.expect_nothing();
    t.at(150);
    assert_eq!(times(&t), [100, 100, 0]);
    t.recv(". 1:1 ack 1 win 2000");
    t.expect("P. 1:1001 ack 1");
    t.at(180);
    t.recv(". 1:1 ack 1001");
    t.at(280);
    assert_eq!(times(&t), [130, 100, 0]);
    let info = t.conn.info_at(&t.config, t.now);
    let since = [info.last_data_sent, info.last_ack_recv, info.last_data_recv];
    assert_eq!(since.map(|time| time.as_millis()), [130, 100, 280]);
    // The SYN counts as delivered, as on Linux.
    assert_eq!((info.delivered, info.options, info.ca_state), (2, 2, 0));
    t.recv(". 1:1001 ack 1001");
    assert_eq!(t.conn.info_at(&t.config, t.now).last_data_recv.as_millis(), 0);
}

#[test]
fn a_small_send_buffer_limits() {
    let mut setup = Setup::default().win(60_000);
    setup.options.sndbuf = Some(0);
    let mut t = Trace::established(setup);
    t.conn.snd.set_max_wnd(4000);
    // Three packets fill the buffer, and all leave at once.
    let data = std::vec![0; 60_000];
    assert_eq!(t.call(|conn, cx| conn.write(cx, &data)), Ok(3000));
    while t.call(|conn, cx| conn.poll_transmit(cx)).is_some() {}
    t.at(25);
    let info = t.conn.info_at(&t.config, t.now);
    assert_eq!(info.sndbuf_limited.as_millis(), 25);
    t.recv(". 1:1 ack 3001");
    while t.call(|conn, cx| conn.poll_transmit(cx)).is_some() {}
    t.at(50);
    let info = t.conn.info_at(&t.config, t.now);
    assert_eq!((info.busy_time.as_millis(), info.sndbuf_limited.as_millis()), (25, 25));
}
