//! Links alone.

use plimsoll_stack::packet::Gso;
use plimsoll_wire::ipv4::Ipv4Repr;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// An IPv4 packet of UDP with `len` bytes in all, and a number in its identification.
fn packet(len: usize, ident: u16, ecn: Ecn) -> Packet {
    let mut bytes = vec![0; len];
    let repr = Ipv4Repr {
        src: "192.0.2.1".parse().unwrap(),
        dst: "192.0.2.2".parse().unwrap(),
        protocol: plimsoll_wire::protocol::UDP,
        ttl: 64,
        tos: ecn.bits(),
        ident,
        dont_frag: true,
        more_frags: false,
        frag_offset: 0,
        payload_len: len - 20,
    };
    repr.emit(&mut bytes);
    Packet::from(bytes)
}

fn ident(packet: &Packet) -> u16 {
    let bytes = packet.to_vec();
    u16::from_be_bytes([bytes[4], bytes[5]])
}

/// Takes all that ever arrives.
fn run_dry(link: &mut Link) -> Vec<(Instant, u16)> {
    let mut all = Vec::new();
    while let Some(at) = link.next() {
        while let Some(arrival) = link.take(at) {
            assert!(arrival.at <= at);
            all.push((arrival.at, ident(&arrival.packet)));
        }
    }
    assert!(link.is_empty() && link.stats().is_conserved(), "{:?}", link.stats());
    all
}

fn link(config: LinkConfig) -> Link {
    Link::new(config, 1).unwrap()
}

#[test]
fn rate_and_delay_are_exact() {
    // 1000 bytes at 3 Mbit/s take 2,666,666.67 ns: the thirds are not lost.
    let mut link = link(LinkConfig::default().rate(Some(3_000_000)).delay(MS * 10));
    for number in 0..300 {
        let _ = link.offer(Instant::ZERO, packet(1000, number, Ecn::NotEct));
    }
    let all = run_dry(&mut link);
    assert_eq!(all.len(), 300);
    assert_eq!(all[0].0.as_nanos(), 12_666_666);
    assert_eq!(all[299].0, Instant::from_millis(810));
    assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].1), "in order");
    assert_eq!(link.stats().busy, MS * 800);
}

#[test]
fn nothing_depends_on_how_often_it_is_asked() {
    let run = |step: u64| {
        let config = LinkConfig::default()
            .rate(Some(1_000_000))
            .delay(MS * 5)
            .jitter(MS * 3)
            .loss(Loss::Independent(0.1))
            .reorder(0.1)
            .reorder_delay(MS * 20)
            .duplicate(0.1)
            .queue(QueueConfig::codel(20_000));
        let mut link = Link::new(config, 9).unwrap();
        let mut all = Vec::new();
        for micros in 0..3_000_000_u64 {
            let now = Instant::from_micros(micros);
            if micros % 5_000 == 0 {
                let _ = link.offer(now, packet(700, (micros / 5_000) as u16, Ecn::NotEct));
            }
            if micros % step == 0 {
                while let Some(arrival) = link.take(now) {
                    all.push((arrival.at, ident(&arrival.packet)));
                }
            }
        }
        all.extend(run_dry(&mut link));
        all
    };
    let often = run(7);
    assert!(often.len() > 300);
    assert_eq!(often, run(50_000));
}

#[test]
fn a_full_queue_drops_the_tail() {
    let queue = QueueConfig::drop_tail(3_000);
    let mut link = link(LinkConfig::default().rate(Some(8_000)).queue(queue));
    for number in 0..6 {
        let _ = link.offer(Instant::ZERO, packet(1000, number, Ecn::NotEct));
    }
    assert_eq!(link.stats().queue_bytes, 3000, "one more is on the wire");
    let idents: Vec<u16> = run_dry(&mut link).into_iter().map(|(_, ident)| ident).collect();
    assert_eq!(idents, [0, 1, 2, 3]);
    assert_eq!(link.stats().dropped_full, 2);
}

#[test]
fn a_threshold_marks_what_allows_it() {
    let queue = QueueConfig::DropTail { bytes: 100_000, packets: 100, mark_above: 2_500 };
    let mut link = link(LinkConfig::default().rate(Some(8_000)).queue(queue));
    for number in 0..8 {
        let ecn = if number % 2 == 0 { Ecn::Ect0 } else { Ecn::NotEct };
        let _ = link.offer(Instant::ZERO, packet(1000, number, ecn));
    }
    let mut marked = Vec::new();
    while let Some(at) = link.next() {
        while let Some(arrival) = link.take(at) {
            let bytes = arrival.packet.to_vec();
            assert!(Ipv4Repr::parse(&bytes).is_ok(), "the header checksum holds");
            marked.extend((bytes[1] & 3 == 3).then(|| ident(&arrival.packet)));
        }
    }
    // Number 0 is on the wire; 4 is the first to find 3 packets before it.
    assert_eq!(marked, [4, 6]);
    assert_eq!(link.stats().marked, 2);
}

#[test]
fn too_long_a_packet_comes_back() {
    let mut link = link(LinkConfig::default().mtu(1000));
    assert!(link.offer(Instant::ZERO, packet(1000, 1, Ecn::NotEct)).too_long.is_none());
    let back = link.offer(Instant::ZERO, packet(1001, 2, Ecn::NotEct)).too_long.unwrap();
    assert_eq!(ident(&back), 2);
    assert_eq!(link.stats().dropped_long, 1);
    assert_eq!(run_dry(&mut link).len(), 1);
}

#[test]
fn super_segments_are_cut_before_the_queue() {
    let mut bytes = packet(20 + 8 + 2500, 5, Ecn::NotEct).to_vec();
    bytes[24..26].copy_from_slice(&2508_u16.to_be_bytes());
    let mut whole = Packet::from(bytes);
    whole.gso = Some(Gso { size: 1000, segs: 3 });
    let mut link = link(LinkConfig::default().rate(Some(1_000_000)));
    let _ = link.offer(Instant::ZERO, whole);
    assert_eq!(link.stats().offered, 3);
    assert_eq!(link.stats().offered_bytes, 2500 + 3 * 28);
    assert_eq!(run_dry(&mut link).len(), 3);
}

#[test]
fn a_link_that_is_down_drops_and_says_so() {
    let mut link = link(LinkConfig::default().delay(MS));
    let _ = link.offer(Instant::ZERO, packet(100, 1, Ecn::NotEct));
    link.set_up(false);
    let _ = link.offer(Instant::ZERO, packet(100, 2, Ecn::NotEct));
    link.set_up(true);
    let _ = link.offer(Instant::ZERO, packet(100, 3, Ecn::NotEct));
    assert_eq!(run_dry(&mut link).len(), 2);
    assert_eq!(link.stats().dropped_down, 1);
}

#[test]
fn overtaken_packets_hold_nobody_up() {
    let mut link = link(LinkConfig::default().rate(Some(8_000_000)).delay(MS));
    let late = Fate { overtaken: MS * 5, ..Fate::default() };
    let slow = Fate { jitter: MS * 3, ..Fate::default() };
    for (number, fate) in [late, Fate::default(), slow, Fate::default()].into_iter().enumerate() {
        let one = packet(1000, number as u16, Ecn::NotEct);
        let _ = link.offer_segment(Instant::ZERO, one, fate);
    }
    let all: Vec<(u64, u16)> =
        run_dry(&mut link).into_iter().map(|(at, ident)| (at.as_millis(), ident)).collect();
    assert_eq!(all, [(3, 1), (7, 0), (7, 2), (7, 3)].map(|(at, number)| (at, number)));
}

#[test]
fn losses_come_in_bursts() {
    let bursty = Loss::Bursty { enter: 0.01, leave: 0.2, good: 0.0, bad: 1.0 };
    let mut link = link(LinkConfig::default().loss(bursty));
    let fates: Vec<bool> = (0..100_000).map(|_| link.roll().lose).collect();
    let lost = fates.iter().filter(|&&lost| lost).count();
    let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    // In the long run the wire is bad for 0.01 / 0.21 of the packets, 5 at a time.
    assert!((4_300..5_300).contains(&lost), "{lost}");
    assert!((4.5..5.5).contains(&(lost as f64 / bursts as f64)), "{lost} in {bursts}");
}

/// Sends for `seconds` at a rate that is a tenth above that of the link, and gives its statistics.
fn overload(queue: QueueConfig, ecn: Ecn, seconds: u64) -> LinkStats {
    let mut link = link(LinkConfig::default().rate(Some(8_000_000)).queue(queue));
    for number in 0..seconds * 1100 {
        let now = Instant::from_micros(number * 1_000_000 / 1100);
        let _ = link.offer(now, packet(1000, number as u16, ecn));
        while link.take(now).is_some() {}
    }
    run_dry(&mut link);
    link.stats().clone()
}

#[test]
fn codel_waits_for_an_interval_and_then_drops_more_and_more() {
    let queue = QueueConfig::codel(1_000_000);
    // The queue grows by 0.1 ms per millisecond: above 5 ms after 50 ms, first drop at 150 ms.
    let mut link = link(LinkConfig::default().rate(Some(8_000_000)).queue(queue));
    let mut first = None;
    for number in 0..1000_u64 {
        let now = Instant::from_micros(number * 1_000_000 / 1100);
        let _ = link.offer(now, packet(1000, 0, Ecn::NotEct));
        while link.take(now).is_some() {}
        if link.stats().dropped_early > 0 && first.is_none() {
            first = Some(now.as_millis());
        }
    }
    assert!((150..175).contains(&first.unwrap()), "{first:?}");
    let (short, long) = (overload(queue, Ecn::NotEct, 2), overload(queue, Ecn::NotEct, 20));
    assert!(long.dropped_early > 15 * short.dropped_early, "the frequency grows");
    assert_eq!((long.marked, long.dropped_full), (0, 0));
    let marked = overload(queue, Ecn::Ect0, 2);
    assert_eq!(marked.dropped_early, 0);
    assert!(marked.marked >= short.dropped_early);
}

#[test]
fn fq_codel_keeps_flows_apart() {
    let queue = QueueConfig::fq_codel(30_000);
    let mut link = link(LinkConfig::default().rate(Some(8_000_000)).queue(queue));
    let of = |flow: u8, len: usize| {
        let mut bytes = packet(len, flow.into(), Ecn::NotEct).to_vec();
        bytes[21] = flow;
        Packet::from(bytes)
    };
    // The first flow fills the queue; packets of two others go before what waits.
    for _ in 0..40 {
        let _ = link.offer(Instant::ZERO, of(1, 1000));
    }
    let _ = link.offer(Instant::ZERO, of(2, 100));
    let _ = link.offer(Instant::ZERO, of(3, 100));
    // The wire has one packet, and 30,000 bytes wait: only the long queue has lost some.
    assert_eq!(link.stats().dropped_full, 10);
    let all = run_dry(&mut link);
    let first: Vec<(u64, u16)> =
        all.iter().take(5).map(|&(at, ident)| (at.as_nanos() / 1000, ident)).collect();
    // A turn is 1514 bytes.
    assert_eq!(first, [(1000, 1), (2000, 1), (2100, 2), (2200, 3), (3200, 1)]);
    let count = |flow| all.iter().filter(|&&(_, ident)| ident == flow).count();
    assert_eq!((all.len(), count(2), count(3)), (32, 1, 1));
}

#[test]
fn fq_codel_lets_flows_take_turns_by_bytes() {
    let queue = QueueConfig::fq_codel(1_000_000);
    let mut link = link(LinkConfig::default().rate(Some(8_000_000)).queue(queue));
    for _ in 0..60 {
        for (flow, len) in [(1, 1500), (2, 500)] {
            let mut bytes = packet(len, flow.into(), Ecn::NotEct).to_vec();
            bytes[21] = flow;
            let _ = link.offer(Instant::ZERO, Packet::from(bytes));
        }
    }
    let until = Instant::from_millis(40);
    let (mut long, mut short) = (0, 0);
    while let Some(arrival) = link.take(until) {
        *(if ident(&arrival.packet) == 1 { &mut long } else { &mut short }) += 1;
    }
    let (long, short) = (long * 1500, short * 500);
    assert!(
        (18_000..=22_000).contains(&long) && (18_000..=22_000).contains(&short),
        "{long} {short}"
    );
}

#[test]
fn dual_pi2_drops_classic_packets_and_marks_scalable_ones() {
    let queue = QueueConfig::dual_pi2(1_000_000);
    let classic = overload(queue, Ecn::NotEct, 20);
    // A sender that does not listen loses what is above the rate: one packet in eleven.
    assert!((1_200..2_600).contains(&classic.dropped_early), "{classic:?}");
    let mean = classic.queue_delay_us().mean();
    assert!((8_000.0..40_000.0).contains(&mean), "{mean} us is not near the target");
    let scalable = overload(queue, Ecn::Ect1, 2);
    assert!(scalable.marked > 1_500, "{scalable:?}");
}

#[test]
fn dual_pi2_keeps_the_scalable_queue_short() {
    let config = LinkConfig::default().rate(Some(8_000_000));
    let mut link = link(config.queue(QueueConfig::dual_pi2(1_000_000)));
    let mut waits = Vec::new();
    for number in 0..4000_u64 {
        let now = Instant::from_micros(number * 1_000);
        // A tenth above the rate; nearly half of it is scalable.
        if number % 5 < 3 {
            let _ = link.offer(now, packet(1000, 0, Ecn::NotEct));
        }
        if number % 2 == 0 {
            let _ = link.offer(now, packet(1000, number as u16, Ecn::Ect1));
        }
        while let Some(arrival) = link.take(now) {
            if wire::ecn(&arrival.packet).is_some_and(|ecn| matches!(ecn, Ecn::Ect1 | Ecn::Ce)) {
                waits.push(arrival.at.since(Instant::from_millis(ident(&arrival.packet).into())));
            }
        }
    }
    // Until the controller has settled, a few are dropped.
    assert!(waits.len() > 1_950, "{} of 2000", waits.len());
    assert!(waits.iter().all(|&wait| wait < MS * 10), "{:?}", waits.iter().max());
}

#[test]
fn a_change_of_the_queue_keeps_what_fits() {
    let mut link = link(LinkConfig::default().rate(Some(8_000)));
    for number in 0..6 {
        let _ = link.offer(Instant::ZERO, packet(1000, number, Ecn::NotEct));
    }
    let smaller = LinkConfig::default().rate(Some(8_000_000)).queue(QueueConfig::codel(3_000));
    link.reconfigure(Instant::from_millis(10), smaller).unwrap();
    let all = run_dry(&mut link);
    assert_eq!(all.iter().map(|&(_, ident)| ident).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(all[0].0, Instant::from_millis(1000), "the packet on the wire is not touched");
    assert_eq!(all[1].0, Instant::from_millis(1001));
}

#[test]
fn values_that_make_no_sense_are_named() {
    let field = |config: LinkConfig| Link::new(config, 0).unwrap_err().field;
    assert_eq!(field(LinkConfig::default().loss(Loss::Independent(1.5))), "loss");
    assert_eq!(field(LinkConfig::default().mtu(575)), "mtu");
    assert_eq!(field(LinkConfig::default().rate(Some(0))), "rate");
    let stuck = Loss::Bursty { enter: 0.1, leave: 0.0, good: 0.0, bad: 1.0 };
    assert_eq!(field(LinkConfig::default().loss(stuck)), "loss.leave");
    assert_eq!(
        field(LinkConfig::default().reorder(0.1).reorder_delay(Duration::ZERO)),
        "reorder_delay"
    );
    let queue = QueueConfig::CoDel { bytes: 1, target: MS, interval: MS };
    assert_eq!(field(LinkConfig::default().queue(queue)), "queue.target");
}

proptest! {
    #[test]
    fn packets_are_conserved_and_never_early(
        seed in any::<u64>(),
        offers in proptest::collection::vec((0_u64..3_000, 40_usize..2_000, 0_u8..4), 1..120),
        kind in 0_u8..4,
        odds in (0.0..0.3_f64, 0.0..0.3_f64, 0.0..0.3_f64, 0.0..0.3_f64),
    ) {
        let queue = match kind {
            0 => QueueConfig::drop_tail(6_000),
            1 => QueueConfig::CoDel { bytes: 9_000, target: MS, interval: MS * 10 },
            2 => QueueConfig::FqCoDel { bytes: 9_000, target: MS, interval: MS * 10 },
            _ => QueueConfig::dual_pi2(9_000),
        };
        let config = LinkConfig::default()
            .rate(Some(5_000_000))
            .delay(MS * 2)
            .jitter(MS)
            .loss(Loss::Independent(odds.0))
            .reorder(odds.1)
            .duplicate(odds.2)
            .corrupt(odds.3)
            .queue(queue);
        let mut link = Link::new(config, seed).unwrap();
        let mut now = Instant::ZERO;
        let mut taken = 0;
        for (gap, len, ecn) in offers {
            let bound = link.next_arrival();
            now += Duration::from_micros(gap);
            let _ = link.offer(now, packet(len, 0, Ecn::from_bits(ecn)));
            prop_assert!(link.stats().is_conserved());
            while let Some(arrival) = link.take(now) {
                prop_assert!(arrival.at.as_nanos() >= 2_000_000);
                prop_assert!(bound.is_some_and(|bound| arrival.at >= bound));
                taken += 1;
            }
        }
        taken += run_dry(&mut link).len() as u64;
        prop_assert_eq!(taken, link.stats().delivered);
    }
}
