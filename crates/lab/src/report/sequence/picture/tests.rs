use super::*;

fn packet(time: u64, sent: bool, len: u32, why: &str) -> Packet {
    let flags = TcpFlags::ACK;
    Packet { time, sent, len, seq: 0, ack: 0, flags, why: why.to_owned() }
}

fn stretch(packets: Vec<Packet>) -> Stretch {
    Stretch { packets, mss: 1448, ends: None }
}

const LOOK: Look = Look { ends: ["client", "server"], remark: None };

#[test]
fn every_packet_has_an_arrow() {
    let held = "held 12 us by autocork, released by completion, 3 writes merged; 4096 bytes in 3 \
                segments, all that waits; tail of 1200 bytes along";
    let shown = stretch(vec![
        packet(1_000_000, true, 4096, held),
        packet(1_020_000, false, 0, ""),
        packet(9_040_000, false, 4096, ""),
        packet(9_041_000, true, 0, "ACK: quick"),
    ]);
    assert_eq!(title(&shown), "8192\u{a0}B in 2 packets of data, 2 pure ACKs, 8.04 ms");
    let svg = picture(&shown, LOOK, "After").into_string();
    assert_eq!(svg.matches("<polygon").count(), 4);
    assert_eq!(svg.matches("class=\"data\"").count(), 2);
    assert_eq!(svg.matches("class=\"ack\"").count(), 2);
    // The tail within each super-segment, the hold, and the break for eight milliseconds.
    assert_eq!(svg.matches("<line class=\"tail\"").count(), 2);
    assert_eq!(svg.matches("class=\"hold\"").count(), 1);
    assert_eq!(svg.matches("class=\"break\"").count(), 2, "{svg}");
    assert!(svg.contains("held 12 µs by autocork until completion, 3"), "{svg}");
    assert!(svg.contains("aria-label=\"After: 8192"), "{svg}");
}

#[test]
fn packets_that_left_together_are_one_run() {
    let data = (0..5).map(|n| packet(n, true, if n < 4 { 1448 } else { 1 }, "chunk"));
    let acks = (0..60).map(|n| packet(100_000 + n, false, 0, ""));
    let shown = stretch(data.chain(acks).collect());
    let svg = picture(&shown, LOOK, "Before").into_string();
    assert!(svg.contains("4 × 1448\u{a0}B + 1\u{a0}B"), "{svg}");
    assert!(svg.contains("60 × ACK"), "{svg}");
    // Not all of a long run are drawn.
    assert_eq!(svg.matches("<polygon").count(), 5 + MOST_OF_RUN);
    let remark = Look { remark: Some(|_| Some("as a rule")), ..LOOK };
    let svg = picture(&shown, remark, "Before").into_string();
    assert_eq!(svg.matches("as a rule").count(), 2);
}

#[test]
fn strange_stretches_are_drawn_too() {
    picture(&stretch(Vec::new()), LOOK, "");
    let wild = [0, u64::MAX, 5, u64::MAX / 2].map(|time| {
        let why = "held 18446744073709551615 us by x, released by y";
        packet(time, true, u32::MAX, why)
    });
    let wild = Stretch { mss: 1, ..stretch(wild.to_vec()) };
    assert!(!picture(&wild, LOOK, "").into_string().contains("NaN"));
}
