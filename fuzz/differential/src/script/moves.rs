//! Makes single steps.

use super::Setup;
use super::generate::{Kind, Theme};
use super::source::Source;
use super::step::{Ack, App, Arrive, BelowStep, Data, Odd, Place, Shape, Step, Time};
use crate::engine::{News, Opt, Setting, WriteFlags};

/// A step of this kind.
pub(super) fn step(source: &mut Source, kind: Kind, theme: Theme, setup: &Setup) -> Step {
    match kind {
        Kind::Write => {
            let most = if theme == Theme::Requests { 9000 } else { 262_144 };
            Step::App(write(source, most))
        }
        Kind::WriteSmall => {
            let len = source.pick(&[1, 10, 128, 128, 500, 1000, 1448, 1460]);
            Step::App(App::WriteSmall(source.range(1, 12) as u8, len))
        }
        Kind::Read => Step::App(read(source)),
        Kind::Shut => Step::App(source.weighted(&[
            (8, App::Shutdown),
            (6, App::Close),
            (1, App::Abort),
            (2, App::KeepTimeWait),
        ])),
        Kind::Option => {
            let (option, value) = option(source);
            Step::App(App::Option(option, value))
        }
        Kind::OtherCall => Step::App(other_call(source)),
        Kind::Complete => Step::Below(BelowStep::Complete(source.pick(&[1, 1, 2, 4, 255]))),
        Kind::BelowOther => Step::Below(below(source)),
        Kind::Pass => Step::Time(pass(source, setup)),
        Kind::Deadline => Step::Time(source.weighted(&[
            (8, Time::Deadline),
            (2, Time::Late(1)),
            (2, Time::Late(5_000)),
            (1, Time::Late(1_000_000)),
            (1, Time::Early),
            (1, Time::Deadlines(4)),
            (1, Time::Deadlines(20)),
            (2, Time::Fraction(255)),
        ])),
        Kind::Arrive => Step::Arrive(arrive(source, theme)),
        Kind::Ack => Step::Ack(ack(source)),
        Kind::Sack => {
            let shape = sack(source);
            Step::Ack(Ack { shape, window: None, ece: false })
        }
        Kind::Data => Step::Data(data(source, true)),
        Kind::DataOdd => Step::Data(data(source, false)),
        Kind::Odd => Step::Odd(odd(source)),
        Kind::Flood => flood(source),
        Kind::End => end(source),
        Kind::Path => Step::Path(path(source)),
        Kind::Batch => Step::Batch(source.range(2, 12) as u8),
        Kind::Configure => {
            let (setting, value) = setting(source);
            Step::Configure(setting, value)
        }
    }
}

/// A setting and a value.
pub(super) fn setting(source: &mut Source) -> (Setting, u64) {
    let setting = source.pick(Setting::ALL);
    (setting, source.pick(setting.values()))
}

/// An option and a value. Those that concern the five mechanisms come more often.
pub(super) fn option(source: &mut Source) -> (Opt, u64) {
    const OFTEN: [Opt; 6] =
        [Opt::NoDelay, Opt::Cork, Opt::Autocork, Opt::TsoTail, Opt::MaxPacingRate, Opt::ZeroCopy];
    let option = if source.once_in(2) { source.pick(&OFTEN) } else { source.pick(Opt::ALL) };
    (option, source.pick(option.values()))
}

/// A write of at most so many bytes.
pub(super) fn write(source: &mut Source, most: u64) -> App {
    let len = match source.below(4) {
        0 => source.range(0, 200),
        1 => source.pick(&[1, 536, 1000, 1447, 1448, 1449, 1460, 2896, 4096, 5793, 14_480, 65_536]),
        2 => source.range(1, most.min(20_000)),
        _ => source.range(1, most),
    };
    let len = len.min(most) as u32;
    let flags = WriteFlags {
        more: source.once_in(8),
        eor: source.once_in(12),
        urgent: source.once_in(40),
        zerocopy: source.once_in(8),
    };
    let parts = source.pick(&[1, 1, 1, 2, 5, 20]);
    if source.once_in(5) {
        App::WriteShared(len, parts, flags)
    } else {
        App::Write(len, parts, flags)
    }
}

fn read(source: &mut Source) -> App {
    let len = match source.below(4) {
        0 => source.range(0, 100) as u32,
        1 => source.range(1, 5000) as u32,
        _ => 1_000_000,
    };
    match source.below(8) {
        0 => App::Peek(len.min(10_000)),
        1 => App::ReadUrgent,
        2 | 3 => App::ReadShared(len),
        _ => App::Read(len),
    }
}

fn other_call(source: &mut Source) -> App {
    let on = source.below(2) == 1;
    source.weighted(&[
        (6, App::PollWritable),
        (4, App::ReaderWaits(on)),
        (3, App::TakeReports),
        (2, App::TakeError),
        (2, App::Wake(on, !on)),
        (1, App::WritePending(on)),
        (1, App::Adopt),
    ])
}

fn below(source: &mut Source) -> BelowStep {
    match source.below(8) {
        0 | 1 => BelowStep::Drop(source.below(8) as u8),
        2 => BelowStep::Spurious,
        3 | 4 => BelowStep::Memory(false, u32::MAX),
        5 => BelowStep::Memory(true, u32::MAX),
        _ => BelowStep::Memory(source.below(2) == 1, source.pick(&[0, 100, 4096, 20_000])),
    }
}

fn pass(source: &mut Source, setup: &Setup) -> Time {
    match source.below(8) {
        0..=2 => Time::Pass(setup.rtt),
        3 => Time::Pass(setup.rtt / 2),
        4 => Time::Pass(source.range(1, 2000) as u32),
        5 => Time::Pass(source.pick(&[0, 1000, 40_000, 200_000, 1_000_000])),
        6 => Time::Fraction(source.below(256) as u8),
        _ => match source.below(6) {
            0 => Time::Pass(source.pick(&[10_000_000, 70_000_000, 400_000_000])),
            _ => Time::Pass(setup.rtt * 3),
        },
    }
}

fn arrive(source: &mut Source, theme: Theme) -> Arrive {
    let lossy = match theme {
        Theme::Lossy => source.below(2) == 1,
        _ => source.once_in(6),
    };
    let lost = match (lossy, source.below(5)) {
        (false, _) => 0,
        (_, 0) => source.word(),
        (_, 1) => source.word() & source.word() & source.word(),
        (_, 2) => 1,
        (_, 3) => 1 << source.below(32),
        _ => u32::MAX << source.below(32),
    };
    Arrive {
        count: source.pick(&[0, 0, 0, 1, 2, 3, 10, 50]),
        lost,
        acks_lost: if source.once_in(8) { source.word() as u16 } else { 0 },
        reordered: source.pick(&[0, 0, 0, 0, 0, 0, 2, 3, 8]),
        every: source.pick(&[1, 2, 2, 2, 0, 4, 20]),
        marked: source.pick(&[0, 0, 0, 0, 0, 0, 1, 5]),
        gap: source.pick(&[0, 0, 10, 100, 1000, 20_000]),
        twice: if source.once_in(10) { source.word() as u16 } else { 0 },
        completes: !source.once_in(4),
    }
}

fn ack(source: &mut Source) -> Ack {
    let shape = match source.below(16) {
        0..=2 => Shape::All,
        3 | 4 => Shape::Up(source.below(256) as u8),
        5 => Shape::Within(source.range(1, 2000) as u16),
        6 => Shape::Old(source.range(1, 60_000) as u16),
        7 => Shape::Future(source.range(1, 60_000) as u16),
        8 | 9 => sack(source),
        _ => Shape::Same(source.pick(&[1, 1, 2, 3, 5])),
    };
    let window = match source.below(8) {
        0 => Some(0),
        1 => Some(source.range(1, 3000) as u32),
        2 | 3 => Some(source.pick(&[20_000, 65_535, 300_000, 4_000_000])),
        _ => None,
    };
    Ack { shape, window, ece: source.once_in(12) }
}

fn sack(source: &mut Source) -> Shape {
    match source.below(12) {
        0..=3 => Shape::Sack {
            segments: source.word() & source.word(),
            stepwise: source.below(2) == 1,
            order: source.below(4) as u8,
        },
        4 => Shape::Sack { segments: u32::MAX << source.below(32), stepwise: false, order: 0 },
        5 | 6 => Shape::Alternate(source.range(1, 60) as u16),
        7 => Shape::Dsack(source.range(1, 5000) as u16, source.range(1, 3000) as u16),
        8 => Shape::DsackWithin(source.range(1, 3000) as u16),
        9 => Shape::Renege,
        10 => Shape::BadSack(source.word() as i16, source.word() as i16),
        _ => Shape::Same(3),
    }
}

fn data(source: &mut Source, in_order: bool) -> Data {
    let near = source.range(1, 4000) as u16;
    let place = match (in_order, source.below(8)) {
        (true, 0..=6) => Place::Next,
        (_, 0 | 1) => Place::Gap(near),
        (_, 2) => Place::Back(near),
        (_, 3) => Place::BehindUna(near),
        (_, 4) => Place::BeforeUna(near),
        (_, 5) => Place::Edge(source.word() as i16 / 8),
        _ => Place::Una,
    };
    let len = match source.below(6) {
        0 => source.range(0, 20),
        1 => source.range(1, 536),
        2 => source.range(1, 9000),
        3 => source.range(1, 60_000),
        _ => source.pick(&[1448, 1448, 1460, 1000, 536, 100]),
    } as u16;
    Data {
        place,
        len,
        psh: source.below(2) == 1,
        fin: source.once_in(40),
        urgent: source.once_in(40).then(|| source.range(0, 3000) as u16),
        segs: if source.once_in(3) { source.range(1, 44) as u8 } else { 1 },
        ce: source.once_in(16),
        acks_all: source.below(2) == 1,
    }
}

fn odd(source: &mut Source) -> Odd {
    let near = i32::from(source.word() as i16);
    match source.below(16) {
        0 => Odd::Rst(0),
        1 | 2 => Odd::Rst(near),
        3 => Odd::RstAck,
        4 => Odd::Syn(near),
        5 => Odd::SynAck(near / 1000),
        6 | 7 => Odd::Fin(if source.below(2) == 1 { 0 } else { near as i16 / 16 }),
        8 => Odd::NoAck(source.range(0, 1500) as u16),
        9 | 10 => Odd::OldStamp(source.word() as u16, source.range(0, 1500) as u16),
        11 => Odd::NoStamp(source.range(0, 1500) as u16),
        12 => Odd::WrongEcho(source.word() as u16),
        13 | 14 => Odd::Probe,
        _ => Odd::Flags(source.word() as u16 & 0x1ff, source.range(0, 1500) as u16),
    }
}

/// A great many of something small.
fn flood(source: &mut Source) -> Step {
    match source.below(6) {
        0 => Step::App(App::WriteReported(source.pick(&[100, 1100]))),
        1 | 2 => {
            let shape = Shape::Alternate(source.pick(&[200, 1000, 3000]));
            Step::Ack(Ack { shape, window: None, ece: false })
        }
        3 => Step::Ack(Ack { shape: Shape::All, window: None, ece: false }),
        _ => {
            let len = source.range(1, 40) as u8;
            Step::Scatter(source.pick(&[50, 600, 1100]), source.range(1, 10) as u8, len)
        }
    }
}

/// What brings a connection to its end in order.
fn end(source: &mut Source) -> Step {
    let ack = |shape| Step::Ack(Ack { shape, window: None, ece: false });
    match source.below(8) {
        0 | 1 => Step::App(App::Shutdown),
        2 => Step::App(App::KeepTimeWait),
        3 | 4 => Step::Odd(Odd::Fin(0)),
        5 => Step::App(App::Read(1_000_000)),
        _ => ack(Shape::All),
    }
}

fn path(source: &mut Source) -> News {
    match source.below(8) {
        0..=3 => News::Mtu(source.pick(&[1400, 1280, 1000, 576, 68, 500, 0, 1499])),
        4..=6 => News::Soft(source.below(12) as u8),
        _ => News::Hard(source.below(12) as u8),
    }
}
