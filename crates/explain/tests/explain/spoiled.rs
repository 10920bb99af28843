//! The captures of healthy programs, spoiled in the ways in which captures are: what is missing in
//! them must not become a finding.

use std::path::Path;

use super::corpus;
use plimsoll_explain::{Caveat, Options, Report, explain};

/// Bytes of the header of a pcap file, and of a record.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// A capture in little-endian pcap, record by record.
struct Records {
    header: Vec<u8>,
    /// Bytes in front of IP.
    link: usize,
    records: Vec<Vec<u8>>,
}

impl Records {
    fn read(path: &Path) -> Records {
        let file = std::fs::read(path).expect("a capture");
        assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "little-endian, in microseconds");
        let link = if file[20] == 1 { 14 } else { 0 };
        let mut records = Vec::new();
        let mut rest = &file[FILE_HEADER..];
        while !rest.is_empty() {
            let len = u32::from_le_bytes(rest[8..12].try_into().expect("a length")) as usize;
            let (record, behind) = rest.split_at(RECORD_HEADER + len);
            records.push(record.to_vec());
            rest = behind;
        }
        Records { header: file[..FILE_HEADER].to_vec(), link, records }
    }

    /// The last byte of the address that a record comes from.
    fn host(&self, record: &[u8]) -> u8 {
        record[RECORD_HEADER + self.link + 15]
    }

    fn report<'a>(&self, records: impl Iterator<Item = &'a [u8]>) -> Report {
        let mut file = self.header.clone();
        records.for_each(|record| file.extend(record));
        explain(&file[..], &Options::default()).expect("a capture")
    }

    fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(Vec::as_slice)
    }

    /// Without any option of TCP.
    fn cut(&self) -> Report {
        let kept = self.link + 40;
        let cut = |record: &[u8]| {
            let mut record = record[..RECORD_HEADER + kept].to_vec();
            record[8..12].copy_from_slice(&(kept as u32).to_le_bytes());
            record
        };
        let records: Vec<Vec<u8>> = self.all().map(cut).collect();
        self.report(records.iter().map(Vec::as_slice))
    }

    /// Of one host only.
    fn one_way(&self, host: u8) -> Report {
        self.report(self.all().filter(|record| self.host(record) == host))
    }

    /// Without its beginning.
    fn late(&self) -> Report {
        self.report(self.all().skip(12))
    }

    /// One packet in `every` is missing, behind the handshake.
    fn dropped(&self, every: usize) -> Report {
        let kept = |n: usize| n < 4 || !(n * 7 + n / 3).is_multiple_of(every);
        self.report(self.all().enumerate().filter(|&(n, _)| kept(n)).map(|(_, record)| record))
    }
}

#[test]
fn what_is_missing_in_a_capture_is_no_finding() {
    let mut bad = Vec::new();
    let mut count = 0;
    for (name, path, known) in corpus::healthy() {
        let records = Records::read(&path);
        let spoiled = [
            ("cut", records.cut()),
            ("of the client", records.one_way(1)),
            ("of the server", records.one_way(2)),
            ("late", records.late()),
            ("every third missing", records.dropped(3)),
            ("every tenth missing", records.dropped(10)),
        ];
        for (how, report) in spoiled {
            count += 1;
            let said = corpus::said(&report);
            let wrong = |word: &&str| *word != "-" && !known.iter().any(|known| known == word);
            let wrong: Vec<&str> = said.split(' ').filter(wrong).collect();
            if !wrong.is_empty() {
                bad.push(format!("{name}, {how}: {}", wrong.join(" ")));
            }
        }
    }
    assert!(bad.is_empty(), "{} of {count}:\n{}", bad.len(), bad.join("\n"));
    assert!(count > 100, "{count} captures");
}

/// What does not need the options of segments, or the beginning, is found without them.
#[test]
fn waits_are_found_in_captures_that_lack_something() {
    let (mut count, mut bad) = (0, Vec::new());
    // The pieces that wait there have more than 1,000 bytes: without the MSS they may be full
    // segments. Of rsync's two waits one is in its beginning, and so is that for a full queue.
    // In a tunnel the options are elsewhere.
    let excepted = ["header-and-large-body", "rsync", "accept-queue", "tunnel"];
    let waits = corpus::waits()
        .filter(|(name, ..)| !excepted.iter().any(|excepted| name.starts_with(excepted)));
    for (name, path, kind) in waits {
        let records = Records::read(&path);
        for (how, report) in [("cut", records.cut()), ("late", records.late())] {
            count += 1;
            let said = corpus::said(&report);
            if !said.split(' ').any(|word| word == kind) {
                bad.push(format!("{name}, {how}: {said}, which lacks {kind}"));
            }
        }
    }
    assert!(bad.is_empty(), "{} of {count}:\n{}", bad.len(), bad.join("\n"));
    assert!(count > 40, "{count} captures");
}

#[test]
fn what_is_missing_in_a_capture_is_noted() {
    let path = corpus::folder().join("curl-wire-40ms.server.pcap");
    let records = Records::read(&path);
    let has = |report: &Report, kind: Caveat| report.notes.iter().any(|note| note.kind == kind);
    assert!(has(&records.cut(), Caveat::WindowScaleUnknown));
    assert!(has(&records.cut(), Caveat::MssUnknown));
    assert!(has(&records.one_way(2), Caveat::OneWay));
    assert!(has(&records.dropped(3), Caveat::PacketsMissing));
    let whole = records.report(records.all());
    assert!(whole.notes.is_empty(), "{:?}", whole.notes);
}
