use super::*;
use plimsoll_stack::device::memory_link;

/// An IPv4 datagram with a number at its end.
fn packet(number: u16) -> Packet {
    let mut bytes = vec![0; 1000];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&1000_u16.to_be_bytes());
    bytes[8..10].copy_from_slice(&[64, 17]);
    bytes[998..].copy_from_slice(&number.to_be_bytes());
    Packet::from(bytes)
}

fn number(packet: &Packet) -> u16 {
    let bytes = packet.to_vec();
    u16::from_be_bytes([bytes[998], bytes[999]])
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A device in memory behind links, and the other end of the device.
fn wrapped(config: &LinkConfig, seed: u64) -> (Device, Device, Weather) {
    let (near, far) = memory_link::pair(memory_link::LinkConfig::default());
    let links = [seed, seed + 1].map(|seed| Link::new(config.clone(), seed).unwrap());
    let (near, weather) = wrap(near, links);
    (near, far, weather)
}

fn send(device: &mut Device, now: Instant, numbers: std::ops::Range<u16>) {
    let mut queue: VecDeque<Packet> = numbers.map(packet).collect();
    let progress = device.tx.transmit(now, &mut queue).unwrap();
    assert_eq!((queue.len(), progress.status), (0, TxStatus::Done));
}

fn receive(device: &mut Device, now: Instant) -> Vec<u16> {
    let mut out = Vec::new();
    device.rx.receive(now, &Pool::new(), &mut out, 1000).unwrap();
    out.iter().map(number).collect()
}

/// The packets of both directions that arrive, with the given seed.
fn arrivals(seed: u64) -> [Vec<u16>; 2] {
    let config = LinkConfig::default().loss(super::super::Loss::Independent(0.3));
    let (mut near, mut far, weather) =
        wrapped(&config.delay(Duration::from_millis(10)).reorder(0.1), seed);
    send(&mut near, at(0), 0..200);
    send(&mut far, at(0), 0..200);
    // They are on their way.
    assert!(receive(&mut near, at(9)).is_empty() && receive(&mut far, at(9)).is_empty());
    near.tx.poll_completions(at(20)).unwrap();
    let arrived = [receive(&mut near, at(20)), receive(&mut far, at(20))];
    for (stats, arrived) in weather.stats().iter().zip(&arrived) {
        assert_eq!(stats.lost, 200 - arrived.len() as u64);
        assert!(stats.reordered > 0 && stats.is_conserved());
    }
    arrived
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let first = arrivals(7);
    assert_eq!(first, arrivals(7));
    assert_ne!(first, arrivals(8));
    assert_ne!(first[0], first[1], "the directions have their own random numbers");
    assert!(first[0].windows(2).any(|pair| pair[0] > pair[1]), "none was overtaken");
}

#[test]
fn the_device_says_when_a_packet_arrives() {
    let config = LinkConfig::default().rate(Some(8_000_000)).delay(Duration::from_millis(10));
    let (mut near, mut far, weather) = wrapped(&config, 1);
    assert_eq!((near.tx.next_event(), near.rx.next_event()), (None, None));
    send(&mut near, at(0), 0..2);
    // A thousand bytes take a millisecond.
    assert_eq!(near.tx.next_event(), Some(at(11)));
    assert_eq!(near.tx.poll_completions(at(11)).unwrap(), 1);
    assert_eq!(receive(&mut far, at(11)), [0]);
    assert_eq!(near.tx.next_event(), Some(at(12)));
    send(&mut far, at(20), 5..6);
    assert!(receive(&mut near, at(20)).is_empty());
    assert_eq!(near.rx.next_event(), Some(at(31)));
    assert_eq!(receive(&mut near, at(31)), [5]);
    // From now on without a rate and a delay.
    weather.reconfigure(at(40), [LinkConfig::default(), LinkConfig::default()]).unwrap();
    send(&mut near, at(40), 7..8);
    assert_eq!(receive(&mut far, at(40)), [1, 7]);
    let wrong = LinkConfig::default().rate(Some(0));
    assert!(weather.reconfigure(at(41), [LinkConfig::default(), wrong]).is_err());
}

#[test]
fn the_stack_is_offered_no_offloads() {
    let (near, far, _) = wrapped(&LinkConfig::default(), 1);
    let (caps, inner) = (near.tx.caps(), far.tx.caps());
    assert!(inner.tso4 && inner.tx_checksum);
    assert!(!caps.tso4 && !caps.tso6 && !caps.uso && !caps.tx_checksum && !caps.completions);
    assert_eq!(caps.mtu, inner.mtu);
}
