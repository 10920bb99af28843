//! The exact wording of explanations.

use std::string::ToString;

use super::*;

#[test]
fn the_words_of_a_note() {
    let by = Causes::COMPLETION;
    let released =
        Released { hold: Hold::Autocork, after: Duration::from_micros(212), by, writes: 12 };
    let tail = Tail::Kept { len: 1200, hold: Some(Hold::Nagle), small: 4097 };
    let decision = Decision::Cut { len: 2896, segs: 2, bound: Bound::Tail, tail };
    let note = Note { released: Some(released), decision };
    assert_eq!(
        note.to_string(),
        "held 212 us by autocork, released by completion, 12 writes merged; \
         2896 bytes in 2 segments, all but the tail; \
         tail of 1200 bytes kept: small segment 4097 in flight"
    );
}

#[test]
fn the_words_of_decisions() {
    let cases = [
        (
            Decision::Held { hold: Hold::Nagle, bytes: 100 },
            "100 bytes held by nagle, until an ACK, a write or TCP_NODELAY",
        ),
        (
            Decision::Cut { len: 300, segs: 1, bound: Bound::Queue, tail: Tail::None },
            "300 bytes, all that waits",
        ),
        (
            Decision::Cut { len: 300, segs: 3, bound: Bound::Cwnd, tail: Tail::Along { len: 7 } },
            "300 bytes in 3 segments, cut by the congestion window; tail of 7 bytes along",
        ),
        (
            Decision::Ack(AckReason::SecondSegment),
            "ACK: more than one full segment is unacknowledged",
        ),
        (Decision::AckDeferred(Duration::from_millis(40)), "ACK deferred for 40000 us"),
        (
            Decision::Resent { len: 1448, reason: Resend::LossProbe },
            "1448 bytes again: tail loss probe",
        ),
        (Decision::Bare(SendKind::Keepalive), "keepalive probe"),
        (Decision::Woke { readers: true, writers: false }, "woke readers"),
    ];
    for (decision, words) in cases {
        assert_eq!(decision.to_string(), words);
    }
    let at = Instant::from_micros(2_000_345);
    let record = Record { at, decision: Decision::Woke { readers: false, writers: true } };
    assert_eq!(record.to_string(), "2.000345 woke writers");
    let mut causes = Causes::ACK;
    causes.add(Causes::WRITE);
    assert_eq!(causes.to_string(), "ack+write");
    assert_eq!(Causes::NONE.to_string(), "output");
}

#[test]
fn the_log_forgets_the_oldest() {
    let mut log = Decisions::new(2).unwrap();
    for micros in 1..=3 {
        log.push(Instant::from_micros(micros), Decision::Bare(SendKind::Ack));
    }
    let times: std::vec::Vec<u64> = log.records().map(|record| record.at.as_nanos()).collect();
    assert_eq!(times, [2000, 3000]);
    assert!(Decisions::new(0).is_none());
}
