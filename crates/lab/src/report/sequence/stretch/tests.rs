use std::io::Write;

use super::*;

const MSS: u32 = 1448;

/// A capture of raw IPv4, as the client takes it.
struct Captured(Vec<u8>);

impl Captured {
    fn new() -> Captured {
        let mut file = Vec::new();
        for word in [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28] {
            file.extend(word.to_le_bytes());
        }
        // Raw IP, and stamps in nanoseconds.
        for word in [1_u32, 32, 101, 0, 0x0001_0009, 9, 0, 32] {
            file.extend(word.to_le_bytes());
        }
        Captured(file)
    }

    /// A packet of the flow between the client's `port` and port 5001.
    fn packet(&mut self, at: u64, port: u16, sent: bool, len: u16, comment: &str) {
        let (near, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let (src, dst) = if sent { (near, far) } else { (far, near) };
        let (from, to) = if sent { (port, 5001) } else { (5001, port) };
        let total = 40 + len;
        let mut data = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
        data.extend(src.into_iter().chain(dst));
        data.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
        data.extend([0; 8]);
        data.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        let padded = comment.len().next_multiple_of(4);
        let block = 32 + data.len() as u32 + 8 + 4 + padded as u32 + 4;
        let words = [6, block, 0, (at >> 32) as u32, at as u32, data.len() as u32, total.into()];
        for word in words {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(&data);
        for (code, value) in
            [(2_u16, &[if sent { 2 } else { 1 }, 0, 0, 0][..]), (1, comment.as_bytes())]
        {
            self.0.extend(code.to_le_bytes());
            self.0.extend((value.len() as u16).to_le_bytes());
            self.0.extend(value);
            self.0.resize(self.0.len().next_multiple_of(4), 0);
        }
        self.0.extend([0; 4]);
        self.0.extend(block.to_le_bytes());
    }

    fn choose(&self, kind: Kind) -> anyhow::Result<Stretch> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&self.0).unwrap();
        choose(file.path(), kind)
    }
}

fn lens(stretch: &Stretch) -> Vec<(bool, u32)> {
    stretch.packets.iter().map(|packet| (packet.sent, packet.len)).collect()
}

#[test]
fn a_typical_transaction() {
    let mut captured = Captured::new();
    for n in 0..40 {
        let at = 1_000_000 + n * 100_000;
        captured.packet(at, 40_000, true, 4096, "4096 bytes in 3 segments, all that waits");
        captured.packet(at + 20_000, 40_000, false, 0, "");
        captured.packet(at + 30_000 + n, 40_000, false, 4096, "checksum left to the device");
        // One is different.
        for _ in 0..if n == 20 { 3 } else { 1 } {
            captured.packet(at + 40_000 + n, 40_000, true, 0, "ACK: quick");
        }
        captured.packet(at + 50_000, 50_000, false, 9000, "another flow");
    }
    let stretch = captured.choose(Kind::Transaction).unwrap();
    assert_eq!(lens(&stretch), [(true, 4096), (false, 0), (false, 4096), (true, 0)]);
    assert_eq!(stretch.ends.unwrap()[0].port(), 40_000);
    let why: Vec<&str> = stretch.packets.iter().map(|packet| packet.why.as_str()).collect();
    assert_eq!(why, ["4096 bytes in 3 segments, all that waits", "", "", "ACK: quick"]);
    assert_eq!(stretch.mss, MSS);
    assert_eq!(stretch.packets[0].time % 100_000, 0);
}

#[test]
fn two_transactions_without_pure_acks() {
    let mut captured = Captured::new();
    for n in 0..40 {
        captured.packet(n * 100_000, 40_000, true, 100, "");
        captured.packet(n * 100_000 + 50_000, 40_000, false, 200, "");
    }
    let stretch = captured.choose(Kind::Transaction).unwrap();
    assert_eq!(lens(&stretch), [(true, 100), (false, 200), (true, 100), (false, 200)]);
}

#[test]
fn bulk_like_the_average() {
    let mut captured = Captured::new();
    for n in 0..100_u64 {
        let at = n * 100_000;
        for m in 0..3 {
            captured.packet(at + m, 40_000, true, 1448, &format!("chunk {n}"));
        }
        // Between the middle and the end there are fewer ACKs.
        if n < 60 {
            captured.packet(at + 50_000, 40_000, false, 0, "");
        }
    }
    let stretch = captured.choose(Kind::Bulk { data: 6, octets: None, words: "" }).unwrap();
    let data = stretch.packets.iter().filter(|packet| packet.len > 0).count();
    assert_eq!((data, stretch.packets.len()), (6, 8));
    assert_eq!(stretch.packets[0].why, stretch.packets[2].why);
    assert_eq!(stretch.packets[3].len, 0);
}

#[test]
fn what_cannot_be_shown() {
    let empty = Captured::new();
    let says = |result: anyhow::Result<Stretch>| format!("{:#}", result.unwrap_err());
    assert!(says(empty.choose(Kind::Transaction)).contains("no flow"));
    let mut short = Captured::new();
    short.packet(0, 40_000, true, 10, "");
    for kind in [Kind::Transaction, Kind::Bulk { data: 3, octets: Some(10.0), words: "x" }] {
        assert!(says(short.choose(kind)).contains("no steady stretch"));
    }
    assert!(says(choose(Path::new("/nowhere/x.pcapng"), Kind::Transaction)).contains("/nowhere"));
}
