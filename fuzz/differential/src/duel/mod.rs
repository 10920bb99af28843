//! Two connections in lock step: each call goes to both, and whatever comes out is compared.

mod beside;
mod deliver;
mod show;
mod steps;
mod writes;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

pub use beside::Difference;

use crate::engine::{At, Below, EVENTS, Engine, FIGURES, Figures, How, Open, Packet, Side};
use crate::peer::{Agreed, PORTS, Peer};
use crate::reach::Reach;
use crate::script::{Opening, Script, Setup};

/// Packets that one call may cause at most. More is a loop.
const MAX_BURST: usize = 50_000;

/// Why a script ends before its last step.
#[derive(Debug)]
pub enum Stop {
    /// They differ.
    Differ(Box<Difference>),
    /// Both panicked with the same words, or did something else that neither may do.
    Fail(Box<Difference>),
}

/// The result of a step.
pub type Outcome<T> = Result<T, Stop>;

thread_local! {
    /// What the last panic of this thread said.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are results here, so that they are kept instead of printed.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map_or("", |at| at.file());
            if place.contains("differential") {
                // A defect of what compares.
                print(info);
            }
            LAST_PANIC.set(info.payload_as_str().unwrap_or("no words").to_string());
        }));
    });
}

/// What `call` returns, or the words with which it panicked.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| LAST_PANIC.take())
}

/// A packet below the connection.
struct Queued {
    serial: u64,
    len: u32,
    departure: u64,
    /// What will travel when it completes.
    packet: Option<Box<Packet>>,
}

/// Both engines, the peer, and what lies between them.
pub struct Duel<'a> {
    sides: [Box<dyn Engine>; 2],
    setup: &'a Setup,
    peer: Peer,
    now: u64,
    below: Below,
    queued: VecDeque<Queued>,
    figures: Box<[Figures; 2]>,
    counters: [Vec<u64>; 2],
    counter_names: Vec<&'static str>,
    opened: bool,
    /// Bytes that the application has written.
    written: u64,
    /// Segments that still belong to the batch.
    batch: u16,
    /// Output is left to the end of the batch.
    waits: bool,
    config_defers: bool,
    zerocopy_syn: bool,
    step: usize,
    reach: &'a mut Reach,
    trace: Option<&'a mut Vec<String>>,
}

impl<'a> Duel<'a> {
    /// Two connections before the open: one that does as the script says, and one that does
    /// otherwise what must not matter.
    pub fn new(setup: &'a Setup, reach: &'a mut Reach, trace: Option<&'a mut Vec<String>>) -> Self {
        let mut sides: [Box<dyn Engine>; 2] = [Box::<Side>::default(), Box::new(Side::otherwise())];
        keep_panics();
        for side in &mut sides {
            for &(setting, value) in &setup.settings {
                side.configure(setting, value);
            }
        }
        let counter_names = sides[1].counter_names();
        let deferring = crate::engine::Setting::BacklogAckDefer;
        let last = setup.settings.iter().rev().find(|(setting, _)| *setting == deferring);
        let below = Below {
            completions: setup.completions,
            keeps_departures: setup.keeps_departures,
            takes_notes: setup.takes_notes,
            ..Below::default()
        };
        Duel {
            sides,
            setup,
            peer: Peer::new(setup.peer),
            now: u64::from(setup.start) * 1000,
            below,
            queued: VecDeque::new(),
            figures: Box::new([[0; FIGURES.len()]; 2]),
            counters: [Vec::new(), Vec::new()],
            counter_names,
            opened: false,
            written: 0,
            batch: 0,
            waits: false,
            config_defers: last.is_none_or(|&(_, value)| value != 0),
            zerocopy_syn: false,
            step: 0,
            reach,
            trace,
        }
    }

    /// As if the engine had been changed on one side: a setting of that alone.
    #[cfg(test)]
    pub(crate) fn skewed(mut self, setting: crate::engine::Setting, value: u64) -> Self {
        self.sides[1].configure(setting, value);
        self
    }

    /// Runs a script.
    ///
    /// # Errors
    /// If the two differ.
    pub fn run(mut self, script: &Script) -> Outcome<()> {
        self.count_setup();
        let result = self.run_steps(script);
        let counters = &self.counters[1];
        self.reach.add_counters(&self.counter_names, counters);
        result
    }

    fn run_steps(&mut self, script: &Script) -> Outcome<()> {
        if matches!(self.setup.opening, Opening::Active | Opening::Simultaneous | Opening::FastOpen)
        {
            let how = match self.setup.opening {
                Opening::FastOpen => How::ConnectDeferred,
                _ => How::Connect,
            };
            self.open(&how)?;
        }
        for (index, step) in script.steps.iter().enumerate() {
            self.step = index;
            self.reach.steps += 1;
            self.say(|_| format!("{step:?}"));
            self.take(step)?;
        }
        self.finish_batch()?;
        let decisions = self.both("decisions", |side, _| side.decisions())?;
        for decision in decisions {
            let word = decision.split([' ', ',']).nth(1).unwrap_or_default();
            let plain = word.chars().all(|c| c.is_ascii_alphabetic());
            if plain {
                self.reach.hit_named("decisions", word.to_string());
            }
        }
        Ok(())
    }

    fn count_setup(&mut self) {
        self.reach.scripts += 1;
        self.reach.hit_named("openings", format!("{:?}", self.setup.opening));
        for (setting, value) in &self.setup.settings {
            self.reach.hit_named("settings", format!("{setting:?}={value}"));
        }
        for (option, value) in &self.setup.options {
            self.reach.hit_named("options at open", format!("{option:?}={value}"));
        }
    }

    fn at(&self) -> At {
        At { now: self.now, below: self.below }
    }

    /// Notes a line if somebody reads it.
    fn say(&mut self, line: impl FnOnce(&Duel<'_>) -> String) {
        if self.trace.is_some() {
            let text = format!("{:>12.6} {}", self.now as f64 / 1e9, line(self));
            if let Some(trace) = &mut self.trace {
                trace.push(text);
            }
        }
    }

    /// Both results, which must be the same.
    fn same<T: PartialEq + Debug>(&self, what: &str, plain: T, otherwise: T) -> Outcome<T> {
        if plain == otherwise {
            return Ok(otherwise);
        }
        let (plain, otherwise) = (format!("{plain:?}"), format!("{otherwise:?}"));
        Err(Stop::Differ(Box::new(self.difference(what, plain, otherwise))))
    }

    /// What is `plain` on one side and not on the other, here and now.
    fn difference(&self, what: &str, plain: String, otherwise: String) -> Difference {
        Difference {
            step: self.step,
            what: what.to_string(),
            plain,
            otherwise,
            beside: self.beside(),
        }
    }

    /// All figures and counters that differ now, in words.
    fn beside(&self) -> String {
        let at = self.at();
        let mut figures = [[0; FIGURES.len()]; 2];
        let mut counters = [Vec::new(), Vec::new()];
        for (n, side) in self.sides.iter().enumerate() {
            side.figures(at, &mut figures[n]);
            side.counters(&mut counters[n]);
        }
        let names = FIGURES.iter().chain(&self.counter_names);
        let [plain, otherwise] =
            [0, 1].map(|n| figures[n].iter().copied().chain(counters[n].iter().copied()));
        let mut text = String::new();
        for ((name, plain), otherwise) in names.zip(plain).zip(otherwise) {
            if plain != otherwise {
                let _ = write!(text, " {name} {plain} {otherwise},");
            }
        }
        text
    }

    /// Calls both.
    fn both<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        mut call: impl FnMut(&mut dyn Engine, At) -> T,
    ) -> Outcome<T> {
        let at = self.at();
        let [plain, otherwise] = &mut self.sides;
        let plain = guarded(|| call(&mut **plain, at));
        let otherwise = guarded(|| call(&mut **otherwise, at));
        match (plain, otherwise) {
            (Ok(plain), Ok(otherwise)) => self.same(what, plain, otherwise),
            (Err(plain), Err(otherwise)) if plain == otherwise => {
                Err(self.both_fail(what, &otherwise))
            }
            (plain, otherwise) => {
                let said = |side: Result<T, String>| side.map_or_else(|text| text, |_| "ok".into());
                let (plain, otherwise) = (said(plain), said(otherwise));
                let what = format!("panic in {what}");
                Err(Stop::Differ(Box::new(self.difference(&what, plain, otherwise))))
            }
        }
    }

    /// Both did what neither may do.
    fn both_fail(&mut self, what: &str, text: &str) -> Stop {
        self.reach.hit_named("both fail", text.to_string());
        Stop::Fail(Box::new(self.difference(what, text.to_string(), text.to_string())))
    }

    fn open(&mut self, how: &How) -> Outcome<()> {
        let setup = self.setup;
        let open = Open {
            ports: PORTS,
            iss: SeqNum(setup.iss),
            ts_offset: setup.ts_offset,
            mtu: if setup.v6 { setup.mtu.max(1280) } else { setup.mtu },
            ip_header_len: if setup.v6 { 40 } else { 20 },
            max_super_segment: setup.max_super_segment as usize,
            options: setup.options.clone(),
        };
        self.opened = self.both("open", |side, at| side.open(at, &open, how))?;
        self.flush()
    }

    /// Everything that leaves leaves, and everything that can be seen is compared.
    fn flush(&mut self) -> Outcome<()> {
        self.waits = false;
        for burst in 0.. {
            if burst == MAX_BURST {
                return Err(self.both_fail("packet", "the connection does not stop sending"));
            }
            // One of the two writes notes, in turn with the script.
            let mut noted = false;
            let packet = self.both("packet", |side, at| {
                let mut packet = side.poll_transmit(at);
                noted |= packet.as_mut().and_then(|packet| packet.note.take()).is_some();
                packet
            })?;
            let Some(packet) = packet else { break };
            if noted {
                self.reach.hit("packets with", "note");
            }
            self.leave(packet)?;
        }
        self.compare()
    }

    /// A packet leaves.
    fn leave(&mut self, packet: Packet) -> Outcome<()> {
        self.reach.packets += 1;
        self.reach.hit("packets", packet.kind);
        self.count_packet(&packet);
        self.say(|duel| format!("  > {}", show::packet(&packet, &duel.peer, duel.now)));
        if std::mem::take(&mut self.zerocopy_syn) {
            self.both("report_syn_data", |side, _| side.report_syn_data())?;
        }
        let (len, departure) = (packet.payload.len() as u32, packet.departure);
        let Some(serial) = packet.serial else {
            self.peer.on_wire(&packet);
            return Ok(());
        };
        let held = self.below.keeps_departures && departure > self.now;
        if !self.setup.completions && !held {
            self.below.completed = serial;
            self.peer.on_wire(&packet);
            return Ok(());
        }
        // What is told of late may have travelled long before.
        let travels = held || self.setup.rtt % 2 == 1 || serial % 4 == 3;
        if !travels {
            self.peer.on_wire(&packet);
        }
        self.below.bytes += len;
        let packet = travels.then(|| Box::new(packet));
        self.queued.push_back(Queued { serial, len, departure, packet });
        Ok(())
    }

    fn count_packet(&mut self, packet: &Packet) {
        let flags = packet.repr.flags;
        let size = usize::from(packet.segment_size).max(1);
        let tail = packet.segs > 1 && !packet.payload.len().is_multiple_of(size);
        let named = [
            (packet.segs > 1, "super-segment"),
            (tail, "tail"),
            (packet.repr.options.sack().len() == 1, "one SACK block"),
            (packet.repr.options.sack().len() > 1, "several SACK blocks"),
            (packet.departure > self.now, "departs later"),
            (packet.repr.window == 0 && !flags.contains(TcpFlags::RST), "zero window"),
            (flags.contains(TcpFlags::URG), "URG"),
            (flags.contains(TcpFlags::FIN), "FIN"),
            (flags.contains(TcpFlags::ECE), "ECE"),
            (flags.contains(TcpFlags::CWR), "CWR"),
            (packet.repr.options.syn().fast_open.is_some(), "Fast Open"),
            (packet.repr.options.md5.is_some(), "MD5"),
        ];
        for (is, name) in named {
            if is {
                self.reach.hit("packets with", name);
            }
        }
    }

    /// Compares all that a connection tells.
    fn compare(&mut self) -> Outcome<()> {
        self.reach.compared += 1;
        let events = self.both("events", |side, _| side.poll_event())?;
        for (bit, name) in EVENTS.iter().enumerate() {
            if events >> bit & 1 != 0 {
                self.reach.hit("events", name);
                self.say(|_| format!("  event {name}"));
            }
        }
        self.both("timeout", |side, _| side.poll_timeout())?;
        let state = self.both("state", |side, _| side.state())?;
        self.reach.hit("states", state.unwrap_or("none"));
        if self.setup.opening == Opening::FastOpen {
            self.both("fast open outcome", |side, _| side.poll_fast_open())?;
        }
        self.compare_figures()?;
        self.compare_counters()
    }

    /// Compares the figures, and looks at what the connections have agreed on.
    fn compare_figures(&mut self) -> Outcome<()> {
        let at = self.at();
        for (side, figures) in self.sides.iter().zip(self.figures.iter_mut()) {
            side.figures(at, figures);
        }
        let [plain, otherwise] = &*self.figures;
        for (n, name) in FIGURES.iter().enumerate() {
            self.same(name, plain[n], otherwise[n])?;
        }
        let figure = |name: &str| {
            let at = FIGURES.iter().position(|figure| *figure == name).unwrap_or(0);
            self.figures[1][at]
        };
        let hold = figure("hold");
        let recovery = figure("ca_state");
        self.peer.agreed = Agreed {
            sack: figure("sack") != 0,
            timestamps: figure("timestamps") != 0,
            peer_shift: figure("snd_wscale") as u8,
            our_shift: figure("rcv_wscale") as u8,
        };
        const STATES: [&str; 5] = ["open", "disorder", "CWR", "recovery", "loss"];
        self.reach.hit("recovery", STATES[recovery as usize % 5]);
        const HOLDS: [&str; 10] = [
            "none",
            "autocork",
            "pacing",
            "cwnd",
            "rwnd",
            "silly_window",
            "nagle",
            "cork",
            "tso_defer",
            "small_queue",
        ];
        self.reach.hit("holds", HOLDS[hold as usize % 10]);
        Ok(())
    }

    fn compare_counters(&mut self) -> Outcome<()> {
        for (side, counters) in self.sides.iter().zip(&mut self.counters) {
            side.counters(counters);
        }
        let [plain, otherwise] = &self.counters;
        for (n, name) in self.counter_names.iter().enumerate() {
            self.same(name, plain[n], otherwise[n])?;
        }
        Ok(())
    }
}
