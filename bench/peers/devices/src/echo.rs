//! What is done with a packet: a datagram to the port of the echo goes back, one to the port of
//! the sink is counted.
//!
//! To send it back, addresses and ports are swapped in place. The sums of IP and UDP are sums of
//! these very words in any order, so they stay what they were: right, or left to the device by the
//! header in front of the packet, which is written back as it was read.

use std::io;
use std::time::{Duration, Instant};

/// The ports of RFC 862 and RFC 863.
pub(crate) const ECHO: u16 = 7;
pub(crate) const DISCARD: u16 = 9;

/// Bytes of the header of Ethernet, of the smallest one of IPv4, and of that of UDP.
pub(crate) const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;

/// What stands in front of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    None,
    Ethernet,
}

impl Link {
    pub(crate) const fn header(self) -> usize {
        match self {
            Link::None => 0,
            Link::Ethernet => ETHERNET,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is sent as it now is.
    Sent,
    Dropped,
}

/// Answers what one device gives.
pub(crate) struct Echo {
    link: Link,
    sink: Sink,
}

impl Echo {
    /// Reports what has arrived at the sink once `limit` has passed since the first datagram.
    pub(crate) fn new(link: Link, limit: Duration) -> Echo {
        Echo { link, sink: Sink::new(limit) }
    }

    /// Looks at a frame, which is `length` bytes long, and of which `head` is at least what the
    /// headers take.
    pub(crate) fn take(&mut self, head: &mut [u8], length: usize) -> Fate {
        let link = self.link.header();
        if self.link == Link::Ethernet && head.get(12..14) != Some(&[8, 0]) {
            return Fate::Dropped;
        }
        let Some((header, port)) = head.get(link..).and_then(datagram) else {
            return Fate::Dropped;
        };
        match port {
            ECHO => {
                swap(head, link, header);
                Fate::Sent
            }
            DISCARD => {
                self.sink.count(length.saturating_sub(link + header + UDP));
                Fate::Dropped
            }
            _ => Fate::Dropped,
        }
    }
}

/// Bytes of the IP header and the destination port, if it is the beginning of a UDP datagram.
fn datagram(packet: &[u8]) -> Option<(usize, u16)> {
    let header = usize::from(packet.first()? & 15) * 4;
    let is_first = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff == 0;
    if packet[0] >> 4 != 4 || header < IP || packet.get(9) != Some(&17) || !is_first {
        return None;
    }
    let udp = packet.get(header..header + UDP)?;
    Some((header, u16::from_be_bytes([udp[2], udp[3]])))
}

/// Exchanges sender and receiver, in all headers.
fn swap(frame: &mut [u8], link: usize, header: usize) {
    if link > 0 {
        exchange(&mut frame[..12]);
    }
    exchange(&mut frame[link + 12..link + 20]);
    exchange(&mut frame[link + header..link + header + 4]);
}

/// Exchanges both halves.
fn exchange(bytes: &mut [u8]) {
    let (first, second) = bytes.split_at_mut(bytes.len() / 2);
    first.swap_with_slice(second);
}

/// Counts what arrives at the port that nothing comes back from.
pub(crate) struct Sink {
    limit: Duration,
    begun: Option<(Instant, f64)>,
    bytes: usize,
    reads: u64,
    reported: bool,
}

impl Sink {
    pub(crate) fn new(limit: Duration) -> Sink {
        Sink { limit, begun: None, bytes: 0, reads: 0, reported: false }
    }

    /// Counts the payload of one packet, however many datagrams that is.
    pub(crate) fn count(&mut self, bytes: usize) {
        if self.reported {
            return;
        }
        let (begun, busy) =
            *self.begun.get_or_insert_with(|| (Instant::now(), busy_seconds().unwrap_or(f64::NAN)));
        self.bytes += bytes;
        self.reads += 1;
        let taken = begun.elapsed();
        if taken >= self.limit {
            let busy = busy_seconds().unwrap_or(f64::NAN) - busy;
            println!("{}", report(self.bytes as u64, taken, busy, self.reads));
            self.reported = true;
        }
    }
}

/// A line of JSON: how much was moved in how many packets, in which time, and how long processors
/// of the machine were busy meanwhile.
pub(crate) fn report(amount: u64, taken: Duration, busy: f64, packets: u64) -> String {
    let seconds = taken.as_secs_f64();
    let moved = format!("\"amount\":{amount},\"packets\":{packets}");
    format!("{{{moved},\"seconds\":{seconds},\"busy_seconds\":{busy}}}")
}

/// How long processors of the machine have been busy since it was started, added up: what they
/// have done for users, the kernel and interrupts.
pub(crate) fn busy_seconds() -> io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    busy_ticks(&stat).map(|ticks| ticks / 100.0).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line `cpu` as it should be")
    })
}

/// The columns user, nice, system, irq and softirq of the first line, in hundredths of a second.
fn busy_ticks(stat: &str) -> Option<f64> {
    let columns = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = columns.split_whitespace().map_while(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].into_iter().map(|column| ticks.get(column)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram of 5 bytes from 192.0.2.1:4660 to `port` of 198.51.100.7, with an option of four
    /// bytes if there is room for it, and right sums.
    fn packet(port: u16, options: usize) -> Vec<u8> {
        let header = IP + options;
        let length = (header + UDP + 5) as u16;
        let mut packet = vec![0x40 | (header / 4) as u8, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0];
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet.extend([192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend(vec![1; options]);
        packet.extend([0x12, 0x34]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 13, 0, 0]);
        packet.extend(b"abcde");
        let sum = !sum(&packet[..header], 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let sum = !datagram_sum(&packet, header);
        packet[header + 6..header + 8].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The sum of RFC 1071 over `bytes` and `more`.
    fn sum(bytes: &[u8], more: u32) -> u16 {
        let word = |two: &[u8]| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0));
        let mut sum = bytes.chunks(2).map(word).sum::<u32>() + more;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn datagram_sum(packet: &[u8], header: usize) -> u16 {
        let udp = &packet[header..];
        sum(udp, u32::from(sum(&packet[12..20], 17 + udp.len() as u32)))
    }

    fn echo(link: Link) -> Echo {
        Echo::new(link, Duration::from_secs(3600))
    }

    fn taken(link: Link, frame: &mut [u8]) -> Fate {
        let length = frame.len();
        echo(link).take(frame, length)
    }

    #[test]
    fn a_datagram_goes_back_with_right_sums() {
        for options in [0, 4] {
            let (mut there, header) = (packet(ECHO, options), IP + options);
            let sent = there.clone();
            assert_eq!(taken(Link::None, &mut there), Fate::Sent);
            assert_eq!(there[12..20], [198, 51, 100, 7, 192, 0, 2, 1]);
            assert_eq!(there[header..header + 4], [0, 7, 0x12, 0x34]);
            assert_eq!(there[header + 4..], sent[header + 4..]);
            assert_eq!((sum(&there[..header], 0), datagram_sum(&there, header)), (0xffff, 0xffff));
            // And there again.
            swap(&mut there, 0, header);
            assert_eq!(there, sent);
        }
    }

    #[test]
    fn a_frame_goes_back_to_its_sender() {
        let mut frame = vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0];
        frame.extend(packet(ECHO, 0));
        assert_eq!(taken(Link::Ethernet, &mut frame), Fate::Sent);
        assert_eq!(frame[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0]);
        assert_eq!(frame[26..30], [198, 51, 100, 7]);
        let mut other = frame.clone();
        other[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(taken(Link::Ethernet, &mut other), Fate::Dropped);
    }

    #[test]
    fn what_is_no_datagram_for_us_is_left_alone() {
        let with = |at: usize, byte: u8| {
            let mut packet = packet(ECHO, 0);
            packet[at] = byte;
            packet
        };
        let short = packet(ECHO, 0)[..27].to_vec();
        for mut packet in
            [vec![], short, packet(53, 0), with(0, 0x60), with(0, 0x44), with(9, 6), with(7, 1)]
        {
            let before = packet.clone();
            assert_eq!(taken(Link::None, &mut packet), Fate::Dropped);
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn the_sink_counts_payload() {
        let mut echo = echo(Link::None);
        let mut one = packet(DISCARD, 4);
        let length = one.len();
        assert_eq!(echo.take(&mut one, length), Fate::Dropped);
        // Of a frame in several pieces only the first is looked at.
        assert_eq!(echo.take(&mut one, length + 3000), Fate::Dropped);
        assert_eq!((echo.sink.bytes, echo.sink.reads), (3010, 2));
    }

    #[test]
    fn busy_is_all_but_idle_and_what_others_take() {
        let stat = "cpu  1 2 4 1000 1000 8 16 1000 0 0\ncpu0 9 9 9 9\n";
        assert_eq!(busy_ticks(stat), Some(31.0));
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
        assert_eq!(busy_ticks(""), None);
    }

    #[test]
    fn reports_are_lines_of_json() {
        let line = report(3, Duration::from_millis(500), 0.25, 1);
        assert_eq!(line, r#"{"amount":3,"packets":1,"seconds":0.5,"busy_seconds":0.25}"#);
    }
}
