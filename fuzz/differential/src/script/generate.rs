//! Makes scripts. What happens depends on a theme, so that a script goes somewhere: a transfer with
//! losses, small writes, requests and answers, a receiver in disorder, an end.

use super::moves::{option, setting, step, write};
use super::source::Source;
use super::step::{App, Step, Time};
use super::{Opening, PeerSetup, Script, Setup};
use crate::engine::{Opt, Setting};

/// What a script is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Theme {
    Bulk,
    Lossy,
    Small,
    Requests,
    Receive,
    Disorder,
    Ends,
    Chaos,
    Flood,
}

const THEMES: [(u32, Theme); 9] = [
    (40, Theme::Bulk),
    (60, Theme::Lossy),
    (50, Theme::Small),
    (40, Theme::Requests),
    (40, Theme::Receive),
    (40, Theme::Disorder),
    (40, Theme::Ends),
    (30, Theme::Chaos),
    (1, Theme::Flood),
];

/// Kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Write,
    WriteSmall,
    Read,
    Shut,
    Option,
    OtherCall,
    Complete,
    BelowOther,
    Pass,
    Deadline,
    Arrive,
    Ack,
    Sack,
    Data,
    DataOdd,
    Odd,
    Path,
    Batch,
    Configure,
    Flood,
    End,
}

const KINDS: [Kind; 21] = [
    Kind::Write,
    Kind::WriteSmall,
    Kind::Read,
    Kind::Shut,
    Kind::Option,
    Kind::OtherCall,
    Kind::Complete,
    Kind::BelowOther,
    Kind::Pass,
    Kind::Deadline,
    Kind::Arrive,
    Kind::Ack,
    Kind::Sack,
    Kind::Data,
    Kind::DataOdd,
    Kind::Odd,
    Kind::Path,
    Kind::Batch,
    Kind::Configure,
    Kind::Flood,
    Kind::End,
];

impl Theme {
    /// How often each kind of step is taken, in the order of [`KINDS`].
    fn weights(self) -> [u32; KINDS.len()] {
        match self {
            Theme::Bulk => [14, 0, 3, 0, 2, 3, 14, 1, 10, 4, 30, 8, 2, 1, 0, 0, 1, 0, 1, 0, 0],
            Theme::Lossy => [12, 0, 1, 0, 1, 1, 6, 1, 10, 10, 36, 6, 14, 1, 0, 0, 1, 0, 1, 0, 0],
            Theme::Small => [8, 26, 2, 0, 5, 3, 12, 1, 8, 5, 16, 6, 1, 2, 0, 0, 0, 1, 1, 0, 0],
            Theme::Requests => [16, 4, 14, 0, 3, 3, 8, 1, 10, 4, 14, 4, 0, 22, 1, 0, 0, 3, 1, 0, 0],
            Theme::Receive => [3, 1, 22, 0, 2, 3, 3, 3, 8, 5, 4, 2, 0, 44, 3, 0, 0, 8, 1, 0, 0],
            Theme::Disorder => [3, 1, 14, 0, 1, 3, 3, 3, 8, 6, 4, 2, 0, 22, 34, 1, 0, 8, 1, 0, 0],
            Theme::Ends => [5, 1, 6, 10, 2, 4, 4, 1, 6, 12, 16, 8, 1, 6, 2, 4, 2, 1, 1, 0, 14],
            Theme::Chaos => [8, 5, 6, 3, 8, 6, 6, 4, 8, 8, 10, 8, 8, 8, 8, 8, 4, 3, 4, 0, 2],
            Theme::Flood => [10, 2, 4, 0, 1, 2, 6, 1, 6, 4, 20, 6, 6, 2, 4, 1, 1, 8, 2, 24, 0],
        }
    }
}

/// A script out of `source`.
pub(super) fn script(source: &mut Source) -> Script {
    let theme = source.weighted(&THEMES);
    let setup = setup(source, theme);
    let mut steps = Vec::new();
    handshake(source, &setup, &mut steps);
    let length = source.pick(&[10, 20, 40, 40, 80, 80, 160]);
    let weights = theme.weights();
    let choices: Vec<(u32, Kind)> = weights.into_iter().zip(KINDS).collect();
    while steps.len() < length && !source.is_over() {
        let kind = source.weighted(&choices);
        steps.push(step(source, kind, theme, &setup));
    }
    Script { setup, steps }
}

fn setup(source: &mut Source, theme: Theme) -> Setup {
    let opening = source.weighted(&[
        (10, Opening::Active),
        (9, Opening::Passive),
        (1, Opening::Simultaneous),
        (1, Opening::Cookie),
        (2, Opening::FastOpen),
        (2, Opening::FastOpenPassive),
    ]);
    let changed = source.weighted(&[(4, 0), (3, 2), (2, 6), (1, 20)]);
    let mut settings: Vec<_> = (0..changed).map(|_| setting(source)).collect();
    if theme == Theme::Flood {
        // Enough in flight for the limits of queues.
        settings.push((Setting::Initcwnd, source.pick(&[100, 1000, 5000])));
        settings.push((Setting::WmemDefault, 4_000_000));
    }
    let given = source.weighted(&[(5, 0), (4, 1), (3, 3), (1, 8)]);
    let options = (0..given).map(|_| option(source)).collect();
    let near_end = |source: &mut Source| {
        let word = source.word();
        if source.once_in(3) { word | 0xffff_0000 } else { word }
    };
    let completions = source.below(2) == 1 || theme == Theme::Small;
    let mut setup = Setup {
        opening,
        settings,
        options,
        iss: near_end(source),
        ts_offset: near_end(source),
        mtu: source.pick(&[1500, 1500, 1500, 1500, 9000, 1280, 576, 128, 100]),
        v6: source.once_in(4),
        max_super_segment: source.pick(&[0, 65_000, 65_000, 65_000, 10_000, 3000]),
        completions,
        keeps_departures: source.once_in(3),
        takes_notes: source.once_in(8),
        peer: peer(source, theme),
        start: source.pick(&[0, 1, 5_000, 1_000_000, 4_000_000_000]),
        rtt: source.pick(&[100, 1_000, 10_000, 10_000, 50_000, 200_000]),
    };
    make_buffers_whole(&mut setup);
    setup
}

/// Makes the receive buffers of the open whole numbers of segments. A window is one, so that a rest
/// would show in every packet.
fn make_buffers_whole(setup: &mut Setup) {
    let option = |wanted| setup.options.iter().rev().find(|(option, _)| *option == wanted);
    let mtu = u64::from(if setup.v6 { setup.mtu.max(1280) } else { setup.mtu });
    let room = mtu - if setup.v6 { 60 } else { 40 };
    let mss = option(Opt::MaxSeg).map_or(room, |&(_, limit)| room.min(limit.max(1)));
    let passive =
        matches!(setup.opening, Opening::Passive | Opening::Cookie | Opening::FastOpenPassive);
    let setting = setup.settings.iter().rev().find(|(setting, _)| *setting == Setting::Timestamps);
    let stamps = setup.peer.timestamps
        && setting.is_none_or(|&(_, on)| on != 0)
        && option(Opt::Md5Key).is_none();
    let mss = mss.saturating_sub(if passive && stamps { 12 } else { 0 }).max(1);
    let whole = |bytes: u64| if bytes < mss { bytes } else { bytes - bytes % mss };
    setup.settings.insert(0, (Setting::RmemDefault, 131_072));
    for (setting, value) in &mut setup.settings {
        if *setting == Setting::RmemDefault {
            *value = 2 * whole(*value / 2);
        }
    }
    for (option, value) in &mut setup.options {
        if *option == Opt::RcvBuf {
            *value = whole(*value);
        }
    }
}

fn peer(source: &mut Source, theme: Theme) -> PeerSetup {
    let flood = theme == Theme::Flood;
    let mss = source.pick(&[1460, 1460, 1460, 1000, 536, 48, 100, 8960, 1, 0]);
    PeerSetup {
        iss: if source.once_in(3) { source.word() | 0xffff_0000 } else { source.word() },
        mss: if flood { Some(100) } else { Some(mss).filter(|&mss| mss > 0) },
        wscale: match source.below(8) {
            0 => None,
            1 => Some(0),
            2 => Some(14),
            3 => Some(15),
            _ => Some(7),
        },
        sack: !source.once_in(6),
        timestamps: !source.once_in(3),
        clock: if source.once_in(4) { u32::MAX - 1000 } else { source.word() },
        ecn: source.once_in(4),
        window: match source.pick(&[65_535, 65_535, 1_000_000, 20_000, 4_000, 500, 0, 300_000]) {
            _ if flood => 8_000_000,
            window => window,
        },
        syn_data: source.pick(&[0, 0, 100, 1400]),
        cookie: source.below(3) as u8,
        refuses_syn_data: source.once_in(3),
    }
}

/// The steps that open the connection, mostly without trouble.
fn handshake(source: &mut Source, setup: &Setup, steps: &mut Vec<Step>) {
    let trouble = source.once_in(6);
    if setup.opening == Opening::FastOpen {
        steps.push(Step::App(write(source, 3000)));
    }
    for _ in 0..3 {
        if trouble {
            for _ in 0..source.below(3) {
                let kind = source.pick(&[
                    Kind::Deadline,
                    Kind::Deadline,
                    Kind::Pass,
                    Kind::Write,
                    Kind::Odd,
                    Kind::OtherCall,
                    Kind::Path,
                    Kind::Shut,
                ]);
                steps.push(step(source, kind, Theme::Chaos, setup));
            }
        }
        steps.push(Step::Time(Time::Pass(setup.rtt / 2)));
        steps.push(Step::Handshake);
    }
    if source.below(2) == 1 {
        steps.push(Step::App(App::Adopt));
    }
}
