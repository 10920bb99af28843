//! A run: hosts, links and applications, and the one loop that moves the time.
//!
//! The world has one time. A step takes the earliest of what is due (a packet arrives, a timer of a
//! stack, an application that waits, an event of the scenario), does all of it in a fixed order,
//! and goes on until nothing is left to do at that time. Nothing runs beside it. So a scenario and
//! a seed give the same packets at the same times, always; [`Outcome::trace`] is a hash of all of
//! them.

mod host;
mod memory;
mod net;
mod outcome;
mod series;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

use plimsoll_stack::packet::Packet;
use plimsoll_tcp::{Duration, Instant, Options, State};
use siphasher::sip::SipHasher13;

use self::host::Host;
use self::memory::Memory;
use self::net::{Made, Net, Passage, Passed};
use self::series::Sampler;
use crate::app::{App, End, Place, ReadyList};
use crate::coverage::Reached;
use crate::fault::{Faults, Segment};
use crate::journal::{Call, Journal, SocketOptions, What};
use crate::program::{Executor, HostClock, Programs};
use crate::rng::Rng;
use crate::scenario::{Happening, Scenario, ScenarioError, Way};
use crate::sender::{PathConditions, Sender};
use crate::watch::Watch;

pub use self::outcome::{Direction, FlowOutcome, LinkOutcome, Outcome, RunConfig, Violation};
pub use self::series::{FlowSeries, QueueSeries, Series};

/// The time at which runs begin. It is not zero, because a stack may look back a little.
const START: Instant = Instant::from_millis(1000);
/// What is done at one point in time, at most; more never comes to rest.
const MAX_ROUNDS: usize = 100_000;
/// Every so many steps the memory of the stacks is looked at.
const MEMORY_EVERY: u64 = 256;
/// How long a slow flow may have gained nothing: two timeouts of the longest kind, and some.
const PATIENCE: Duration = Duration::from_secs(250);
/// How long a closed connection may send its end again: `tcp_orphan_retries` of such timeouts.
const LAST_PATIENCE: Duration = Duration::from_secs(1000);
/// How many times its limit a run of slow flows takes at most.
const MOST_LIMITS: u32 = 20;

/// Something of the scenario that is to be done.
#[derive(Clone, Debug)]
enum Action {
    Happens(Happening),
    Heal { link: usize, way: Way },
    Resume { host: usize },
    Reboot { host: usize },
    StartFlow(usize),
    EndFaults,
}

/// A run under way.
struct World<'a> {
    scenario: &'a Scenario,
    config: &'a RunConfig,
    seed: u64,
    now: Instant,
    net: Net,
    hosts: Vec<Host>,
    apps: Vec<App>,
    ready: ReadyList,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    agenda: VecDeque<(Instant, Action)>,
    faults: Faults,
    watch: Watch,
    trace: SipHasher13,
    packets: u64,
    events: u64,
    reached: Reached,
    violation: Option<Violation>,
    /// The most connections that there were at a time, as far as anybody has looked.
    most_connections: u64,
    sampler: Option<Sampler>,
    /// A planted leak: every packet that was sent.
    #[cfg(test)]
    leaked: Option<Vec<Packet>>,
    journal: Journal,
    programs: Executor<'a>,
    /// By application.
    senders: Vec<Sender>,
    /// By host.
    around: Vec<PathConditions>,
}

/// Runs a scenario with the random numbers of `seed`. A panic inside is a violation, too.
///
/// # Errors
/// If the scenario contradicts itself, or a stack does not take its settings.
pub fn run(scenario: &Scenario, seed: u64, config: &RunConfig) -> Result<Outcome, ScenarioError> {
    run_programs(scenario, seed, config, &Programs::new())
}

/// Runs a scenario and programs on its hosts, with the random numbers of `seed`.
///
/// The run is over when the flows of the scenario and all [main](Programs::main) programs have come
/// to their end. An error of a program, a panic, and a main program that has not ended at the limit
/// are violations. Programs that wait for a host that has crashed wait for ever: they need timeouts
/// of their own.
///
/// # Errors
/// As [`run`], and if a program is on a host that is not there.
pub fn run_programs(
    scenario: &Scenario,
    seed: u64,
    config: &RunConfig,
    programs: &Programs,
) -> Result<Outcome, ScenarioError> {
    scenario.check()?;
    programs.check(scenario)?;
    let mut world = World::new(scenario, seed, config, programs)?;
    let ran = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| world.run()));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        world.violate("nothing panics", text.unwrap_or_default());
    }
    Ok(world.into_outcome())
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a Scenario,
        seed: u64,
        config: &'a RunConfig,
        programs: &'a Programs,
    ) -> Result<World<'a>, ScenarioError> {
        let listed = scenario.only_listed || !scenario.fault.is_empty();
        let mut world = World {
            scenario,
            config,
            seed,
            now: START,
            net: Net::new(scenario, seed)?,
            hosts: Vec::new(),
            apps: Vec::new(),
            ready: ReadyList::default(),
            timers: BinaryHeap::new(),
            agenda: VecDeque::new(),
            faults: if listed { Faults::list(&scenario.fault) } else { Faults::dice() },
            watch: Watch::default(),
            trace: SipHasher13::new(),
            packets: 0,
            events: 0,
            reached: Reached::default(),
            violation: None,
            most_connections: 0,
            sampler: None,
            #[cfg(test)]
            leaked: None,
            journal: Journal::new(config.journal),
            programs: Executor::new(programs, scenario.host.len()),
            senders: Vec::new(),
            around: (0..scenario.host.len()).map(|host| scenario.surroundings(host)).collect(),
        };
        for index in 0..scenario.host.len() {
            let clock = programs.are_on(&scenario.host[index].name).then(Arc::<HostClock>::default);
            if let Some(clock) = &clock {
                clock.set(START);
            }
            let (capture, mtu) = (config.capture.as_deref(), world.net.mtu(index));
            let host = Host::boot(scenario, index, seed, capture, mtu, clock)?;
            world.hosts.push(host);
            world.start_programs(index);
        }
        world.plan_flows();
        world.plan_events();
        if config.points > 0 {
            world.sampler = Some(Sampler::new(config.points, scenario, &world.net));
        }
        Ok(world)
    }

    fn start_programs(&mut self, host: usize) {
        if let Some(parts) = self.hosts[host].program_parts() {
            let rng = Rng::new(self.seed ^ self.events, 2000 + host as u64);
            self.programs.start(self.scenario, host, parts, rng);
        }
    }

    fn plan_flows(&mut self) {
        let host = |name: &str| self.scenario.host_index(name).unwrap_or(0);
        for (number, flow) in self.scenario.flow.iter().enumerate() {
            let around = |name: &str| self.around[host(name)];
            self.watch.add(flow.up, flow.down, [around(&flow.from), around(&flow.to)]);
            for is_client in [true, false] {
                let (config, name) =
                    if is_client { (&flow.client, &flow.from) } else { (&flow.server, &flow.to) };
                let (to_write, to_read) =
                    if is_client { (flow.up, flow.down) } else { (flow.down, flow.up) };
                let app = self.apps.len();
                let place =
                    Place { app, host: host(name), flow: number, is_client, to_write, to_read };
                self.apps.push(App::new(config.clone(), &place, &self.ready));
                self.senders.push(Sender::default());
            }
            self.agenda.push_back((START + flow.start, Action::StartFlow(number)));
        }
    }

    fn plan_events(&mut self) {
        let end = START + self.scenario.faults_until;
        for event in &self.scenario.event {
            let at = START + event.at;
            self.agenda.push_back((at, Action::Happens(event.what.clone())));
            let host = |name: &str| self.scenario.host_index(name).unwrap_or(0);
            let (time, action) = match &event.what {
                &Happening::Partition { link, way, time } => (time, Action::Heal { link, way }),
                Happening::Stall { host: name, time } => {
                    (*time, Action::Resume { host: host(name) })
                }
                Happening::Crash { host: name, time } => {
                    (*time, Action::Reboot { host: host(name) })
                }
                _ => continue,
            };
            self.agenda.push_back(((at + time).min(end), action));
        }
        self.agenda.push_back((end, Action::EndFaults));
        // What is planned for one time happens in the order of the scenario.
        self.agenda.make_contiguous().sort_by_key(|&(at, _)| at);
    }

    fn run(&mut self) {
        let limit = START + self.scenario.limit;
        while self.violation.is_none() {
            self.settle();
            if self.violation.is_some() {
                break;
            }
            if self.end_programs() {
                continue;
            }
            if self.is_over() {
                break;
            }
            let Some(next) = self.next() else { break };
            self.sample_before(next.min(limit));
            if next > limit && !self.may_go_on(next) {
                break;
            }
            self.now = self.now.max(next);
            self.events += 1;
            self.act();
            if self.events.is_multiple_of(MEMORY_EVERY) {
                self.check_memory();
            }
        }
        if self.violation.is_none() {
            self.check_end();
        }
    }

    /// Whether a run may go on behind its limit, until `next`: all that has not finished are flows
    /// that still get on and have neither SACK nor timestamps. By Karn's rule only data that was
    /// sent once tells a round trip and ends the backoff of the timeout (RFC 6298, section 5), and
    /// without SACK a retransmission that is lost is found by the timeout alone. So a path that
    /// drops a segment of each flight takes a timeout of up to two minutes for every few segments.
    fn may_go_on(&self, next: Instant) -> bool {
        if self.config.measuring || next > START + self.scenario.limit * MOST_LIMITS {
            return false;
        }
        let read_by = |flow: Option<usize>| {
            let of_flow = self.apps.iter().filter(|app| flow.is_none_or(|flow| app.flow == flow));
            of_flow.filter_map(|app| app.last_read).max()
        };
        let is_recent =
            |last: Option<Instant>, patience| last.is_some_and(|last| next.since(last) <= patience);
        let unfinished = |app: &&App| app.end().is_none() && !self.watch.has_given_up(app.flow);
        let mut waiting = self.apps.iter().filter(unfinished).peekable();
        if waiting.peek().is_none() {
            // Connections that were closed may still have to send their ends again.
            return is_recent(read_by(None), LAST_PATIENCE);
        }
        waiting.all(|app| {
            let now = self.hosts[app.host].clock(self.now);
            let info = app.socket().map(|socket| socket.info(now));
            let bare = info.is_some_and(|info| !info.sack && !info.timestamps);
            bare && is_recent(read_by(Some(app.flow)), PATIENCE)
        })
    }

    /// Samples at the times before `next`, until which nothing changes.
    fn sample_before(&mut self, next: Instant) {
        let Some(sampler) = &mut self.sampler else { return };
        while let Some(at) = sampler.due_before(next) {
            let (apps, hosts) = (&self.apps, &self.hosts);
            let info = |app: usize| {
                let socket = apps[app].socket()?;
                Some(socket.info(hosts[apps[app].host].clock(at)))
            };
            sampler.take(info, &self.net);
        }
    }

    /// When something is due next.
    fn next(&self) -> Option<Instant> {
        let agenda = self.agenda.front().map(|&(at, _)| at);
        let timer = self.timers.peek().map(|&Reverse((at, _))| at);
        let hosts = self.hosts.iter().filter_map(Host::next);
        let sleeps = self.hosts.iter().enumerate().filter(|(_, host)| host.is_running());
        let sleeps =
            sleeps.filter_map(|(index, host)| Some(host.world_time(self.programs.next(index)?)));
        hosts.chain(agenda).chain(timer).chain(self.net.next()).chain(sleeps).min()
    }

    /// Does what the scenario has planned, and wakes applications that waited for the time.
    fn act(&mut self) {
        self.hosts.iter().for_each(|host| host.show_clock(self.now));
        while let Some((_, action)) = self.agenda.pop_front_if(|&mut (at, _)| at <= self.now) {
            self.perform(action);
        }
        while self.timers.peek().is_some_and(|&Reverse((at, _))| at <= self.now) {
            let Some(Reverse((_, app))) = self.timers.pop() else { break };
            self.ready.push(app);
        }
        for (index, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.is_running()) {
            self.programs.wake_due(index, host.clock(self.now));
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::StartFlow(flow) => self.start_flow(flow),
            Action::Happens(happening) => self.happen(&happening),
            Action::Heal { link, way } => {
                self.net.set_up(link, way, true);
                self.reached.note("sim.healed");
            }
            Action::Resume { host } => self.resume(host),
            Action::Reboot { host } => self.reboot(host),
            Action::EndFaults => {
                self.net.end_faults(self.now);
                for host in 0..self.hosts.len() {
                    self.resume(host);
                    self.hosts[host].set_mtu(self.net.mtu(host));
                    self.reboot(host);
                }
            }
        }
    }

    fn resume(&mut self, host: usize) {
        self.hosts[host].resume();
        self.programs.resume(host);
    }

    fn happen(&mut self, happening: &Happening) {
        let host = |name: &str| self.scenario.host_index(name).unwrap_or(0);
        match *happening {
            Happening::Partition { link, way, .. } => {
                self.net.set_up(link, way, false);
                let both = way == Way::Both;
                self.reached.note(if both { "sim.partition" } else { "sim.one-way-partition" });
            }
            Happening::Mtu { link, mtu } => {
                self.net.change(self.now, link, |config| config.mtu = mtu);
                self.reached.note("sim.mtu");
            }
            Happening::Rate { link, rate } => {
                self.net.change(self.now, link, |config| config.rate = rate);
                self.reached.note("sim.rate");
            }
            Happening::Stall { host: ref name, .. } => {
                self.hosts[host(name)].stall();
                self.reached.note("sim.stall");
            }
            Happening::Clock { host: ref name, by } => {
                self.hosts[host(name)].step_clock(by);
                self.hosts[host(name)].show_clock(self.now);
                self.reached.note("sim.clock-step");
            }
            Happening::Crash { host: ref name, .. } => self.crash(host(name)),
        }
    }

    fn crash(&mut self, host: usize) {
        self.reached.note("sim.crash");
        self.hosts[host].count_reached(&mut self.reached);
        for app in self.apps.iter_mut().filter(|app| app.host == host) {
            if START + self.scenario.flow[app.flow].start <= self.now {
                app.lose();
            }
        }
        for app in 0..self.apps.len() {
            let flow = self.apps[app].flow;
            if self.apps[app].host == host && START + self.scenario.flow[flow].start <= self.now {
                self.watch.give_up(flow);
            }
        }
        self.programs.crash(host);
        self.hosts[host].crash();
    }

    /// A host that has crashed is back.
    fn reboot(&mut self, host: usize) {
        if self.hosts[host].is_up() {
            return;
        }
        let mtu = self.net.mtu(host);
        match self.hosts[host].reboot(self.scenario, host, self.seed, mtu) {
            Ok(()) => {
                self.reached.note("sim.reboot");
                self.start_programs(host);
            }
            Err(error) => self.violate("a stack can be built", error.to_string()),
        }
    }

    fn start_flow(&mut self, flow: usize) {
        let config = &self.scenario.flow[flow];
        let (client, server) = (flow * 2, flow * 2 + 1);
        let now = self.now;
        if !self.hosts[self.apps[client].host].is_up()
            || !self.hosts[self.apps[server].host].is_up()
        {
            // Nobody is there, or nobody answers.
            self.watch.give_up(flow);
        }
        let remote = self.hosts[self.apps[server].host].listening_address(config.v6, flow);
        let options = |app: &App| {
            let SocketOptions { nodelay, keepalive } = app.socket_options();
            Options::default().nodelay(nodelay).keepalive(keepalive)
        };
        let listening = {
            let app = &self.apps[server];
            self.hosts[app.host].listen(remote, flow, options(app), app.waker())
        };
        match listening {
            Ok(()) => self.note_call(server, Call::Listen(self.apps[server].socket_options())),
            Err(error) => self.apps[server].fail(format!("listen: {error}")),
        }
        let opened = {
            let app = &self.apps[client];
            self.hosts[app.host].connect(now, remote, options(app))
        };
        match opened {
            Ok(socket) => {
                self.note_call(client, Call::Connect(self.apps[client].socket_options()));
                self.apps[client].start(socket);
                self.ready.push(client);
            }
            Err(error) => self.apps[client].fail(format!("connect: {error}")),
        }
        self.hosts[self.apps[client].host].touch();
    }

    /// Does all that can be done at this time.
    fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let arrived = self.move_packets();
            let acted = self.run_apps() | self.run_programs();
            let worked = (0..self.hosts.len()).fold(false, |any, host| self.run_host(host) | any);
            if self.violation.is_some() || !(arrived || acted || worked) {
                return;
            }
        }
        self.violate("a moment has an end", format!("{MAX_ROUNDS} rounds without rest"));
    }

    /// Takes what links have to deliver at this time.
    fn move_packets(&mut self) -> bool {
        let mut any = false;
        for wire in 0..self.net.wires() {
            while let Some(packet) = self.net.release(wire, self.now) {
                any = true;
                self.pass(|passage| passage.offer(wire, packet));
            }
            while let Some((node, packet)) = self.net.take(wire, self.now) {
                any = true;
                if node < self.hosts.len() {
                    self.deliver(vec![Made { host: node, packet, refused: None }]);
                } else {
                    self.pass(|passage| passage.route(node, packet));
                }
            }
            self.check_conserved(wire);
        }
        any
    }

    /// Sends packets on their way, and what that makes to hosts.
    fn pass(&mut self, send: impl FnOnce(&mut Passage<'_>)) {
        let flows = self.scenario.flow.len();
        let mut passage = Passage::new(&mut self.net, &mut self.faults, self.now, flows);
        send(&mut passage);
        let Passed { made, dropped_full } = passage.into_passed();
        dropped_full.iter().for_each(|segment| self.watch.dropped_full(self.now, segment));
        self.deliver(made);
    }

    /// Gives packets to hosts.
    fn deliver(&mut self, packets: Vec<Made>) {
        for Made { host, packet, refused } in packets {
            self.note_in_trace(1, host, &packet);
            if let Some((segment, mtu)) = refused {
                self.watch.refused(self.now, &segment, mtu);
            }
            if let Some(segment) = Segment::of(&packet, self.scenario.flow.len()) {
                self.watch.arrives(self.now, &segment, &packet);
            }
            self.journal.note(self.now.since(START), host, || What::arrived(&packet));
            self.hosts[host].deliver(packet);
        }
    }

    fn note_in_trace(&mut self, place: u8, host: usize, packet: &Packet) {
        self.trace.write_u8(place);
        self.trace.write_u64(host as u64);
        self.trace.write_u64(self.now.as_nanos());
        for part in packet.parts() {
            self.trace.write(part);
        }
    }

    /// Lets applications act that were woken.
    fn run_apps(&mut self) -> bool {
        let mut ready = self.ready.take();
        ready.sort_unstable();
        ready.dedup();
        let mut any = false;
        for index in ready {
            let host = self.apps[index].host;
            if !self.hosts[host].is_running() {
                // It goes on with its host.
                self.hosts[host].remember(index);
                continue;
            }
            any = true;
            let now = self.hosts[host].clock(self.now);
            let app = &mut self.apps[index];
            if app.socket().is_none() && !app.is_client && app.end().is_none() {
                match self.hosts[host].accept(now, app.flow, app.waker()) {
                    Some(socket) => app.start(socket),
                    None => continue,
                }
                self.note_call(index, Call::Accept);
            }
            let bytes_before = self.apps[index].bytes_read();
            let step = self.apps[index].step(now);
            for call in self.apps[index].take_calls() {
                self.note_call(index, call);
            }
            let app = &mut self.apps[index];
            if app.bytes_read() > bytes_before {
                app.last_read = Some(self.now);
            }
            if let Some(again) = step.again {
                self.timers.push(Reverse((self.hosts[host].world_time(again), index)));
            }
            if let Some((rule, what)) = step.wrong
                && !self.watch.has_given_up(self.apps[index].flow)
            {
                self.violate(rule, what);
            }
            self.hosts[host].touch();
        }
        any
    }

    /// Lets programs go on that were woken.
    fn run_programs(&mut self) -> bool {
        let hosts = &self.hosts;
        let (acted, failed) = self.programs.run(|host| hosts[host].is_running());
        for &host in &acted {
            self.hosts[host].touch();
        }
        for what in failed {
            self.violate("no program fails", what);
        }
        !acted.is_empty()
    }

    fn note_call(&self, app: usize, call: Call) {
        let App { host, flow, .. } = self.apps[app];
        self.journal.note(self.now.since(START), host, || What::Called { flow, call });
    }

    /// Polls the stack of a host until it has nothing to do, and lets its packets go.
    fn run_host(&mut self, index: usize) -> bool {
        if !self.hosts[index].wants_poll(self.now) {
            return false;
        }
        let remembered = self.hosts[index].take_remembered();
        // They are not called here: the moment is not over as long as one has something to do.
        let mut any = !remembered.is_empty();
        for app in remembered {
            self.ready.push(app);
        }
        loop {
            let worked = match self.hosts[index].poll(self.now) {
                Ok(worked) => worked,
                Err(error) => {
                    self.violate("a stack does not end", error.to_string());
                    return true;
                }
            };
            let busy = self.take_from(index);
            any |= worked;
            if !worked && !busy {
                self.check_host(index);
                return any;
            }
        }
    }

    /// Takes packets from a host, as many as its link's queue has place for.
    fn take_from(&mut self, index: usize) -> bool {
        let mut any = false;
        let ring = self.scenario.host[index].ring;
        while self.net.has_place(index, ring) {
            let Some(packet) = self.hosts[index].take() else { break };
            any = true;
            self.journal.note(self.now.since(START), index, || What::Left(packet.to_vec()));
            for segment in plimsoll_stack::offload::gso::split(packet) {
                self.send(index, segment);
            }
        }
        self.hosts[index].set_blocked(!self.net.has_place(index, ring));
        any
    }

    /// A host sends one wire segment.
    fn send(&mut self, host: usize, mut packet: Packet) {
        if !crate::link::wire::complete(&mut packet) {
            return self.violate("what is sent makes sense", format!("{packet:?}"));
        }
        self.packets += 1;
        self.note_in_trace(0, host, &packet);
        #[cfg(test)]
        self.leaked.iter_mut().for_each(|leaked| leaked.push(packet.share()));
        if let Some(segment) = Segment::of(&packet, self.scenario.flow.len())
            && let Err((rule, what)) = self.watch.sent(self.now, &segment, &packet)
        {
            self.violate(rule, what);
        }
        self.pass(|passage| passage.send(host, packet));
    }

    fn violate(&mut self, rule: &str, what: String) {
        let at = self.now.since(START);
        // A stack outlives a panic in one connection, and what is seen of that follows from it.
        let panicked = self.hosts.iter().any(Host::has_panicked);
        let rule = if panicked { "nothing panics" } else { rule };
        self.violation.get_or_insert(Violation { rule: rule.to_owned(), what, at });
    }

    fn check_conserved(&mut self, wire: usize) {
        if !self.net.is_conserved(wire) {
            self.violate("packets are conserved", self.net.describe(wire));
        }
    }

    /// What must hold of the figures of the connections of a host.
    fn check_host(&mut self, index: usize) {
        let now = self.hosts[index].clock(self.now);
        for app in 0..self.apps.len() {
            if self.apps[app].host != index {
                continue;
            }
            let Some(socket) = self.apps[app].socket() else { continue };
            let info = socket.info(now);
            if let Err((rule, what)) = self.hosts[index].figures(app).check(&info) {
                let flow = self.apps[app].flow;
                self.violate(rule, format!("flow {flow}: {what}"));
            }
            if let Err((rule, what)) = self.senders[app].check(&info, self.around[index])
                && !self.watch.has_given_up(self.apps[app].flow)
            {
                let flow = self.apps[app].flow;
                self.violate(rule, format!("flow {flow}: {what}"));
            }
            self.reached.look_at(&info);
        }
    }

    fn check_memory(&mut self) {
        let all = self.hosts.iter().filter_map(Host::memory).fold(Memory::default(), Memory::plus);
        // Flows may be over before anybody has looked; programs have connections of their own.
        self.most_connections = self.most_connections.max(all.connections());
        let (packets, most) = (self.net.packets(), self.most_connections + self.apps.len() as u64);
        let excess = |memory: Memory| memory.excess(self.hosts.len(), packets, most);
        if let Some(what) = excess(all).and_then(|_| excess(all.and_unread(self.most_unread()))) {
            self.violate("memory is bounded", what);
        }
    }

    /// Bytes that applications may not have read yet of connections that are in TIME-WAIT.
    fn most_unread(&self) -> u64 {
        let sockets = self.apps.iter().filter_map(|app| app.socket());
        let infos = sockets.map(|socket| socket.info(self.now));
        infos.filter(|info| info.state == State::TimeWait).map(|info| info.rcvbuf as u64).sum()
    }

    fn flows_are_over(&self) -> bool {
        let over = |app: &App| app.end().is_some() || self.watch.has_given_up(app.flow);
        self.apps.iter().all(over)
    }

    /// Drops the programs that nobody waits for, once all else is over. Says whether there were
    /// any: their sockets are closed by that, and the peers hear of it.
    fn end_programs(&mut self) -> bool {
        let others = !self.agenda.is_empty() || !self.flows_are_over();
        if others || self.programs.unfinished().next().is_some() || !self.programs.end() {
            return false;
        }
        self.hosts.iter_mut().for_each(Host::touch);
        true
    }

    /// Whether all has come to its end: applications, connections, packets.
    fn is_over(&mut self) -> bool {
        // A measurement ends with its flows, whatever is planned for later.
        if !self.agenda.is_empty() && !self.config.measuring {
            return false;
        }
        if !self.flows_are_over() {
            return false;
        }
        if self.programs.unfinished().next().is_some() {
            return false;
        }
        // Who talks with a host that has crashed may wait for ever; the user gives up.
        for app in &mut self.apps {
            if let Some(socket) = app.socket() {
                socket.abort(self.hosts[app.host].clock(self.now));
                self.hosts[app.host].touch();
            }
            app.lose();
        }
        self.net.is_empty() && self.hosts.iter().all(Host::is_quiet)
    }

    fn check_end(&mut self) {
        let (mut stuck, mut unfinished) = (Vec::new(), false);
        for app in &self.apps {
            if self.watch.has_given_up(app.flow) {
                continue;
            }
            let side = if app.is_client { "client" } else { "server" };
            let state = match app.end() {
                Some(End::Finished) => continue,
                // Faults last as long as a measurement, so a connection may time out.
                Some(End::Failed(_)) | None if self.config.measuring => {
                    unfinished = true;
                    continue;
                }
                // A peer that gave up may not have been able to say so.
                Some(End::Failed(_)) | None if self.watch.may_have_given_up(app.flow) => {
                    unfinished = true;
                    continue;
                }
                Some(End::Failed(reason)) => format!("failed: {reason}"),
                Some(End::Lost) => "lost".to_owned(),
                None => {
                    let now = self.hosts[app.host].clock(self.now);
                    let info = app.socket().map(|socket| socket.info(now));
                    format!("{} {info:?}", app.progress())
                }
            };
            stuck.push(format!("flow {} {side}: {state}", app.flow));
        }
        if !stuck.is_empty() {
            return self.violate("every flow finishes", stuck.join("; "));
        }
        if unfinished {
            return;
        }
        let running = self.programs.unfinished().next();
        if let Some(host) = running {
            let what = format!("one on '{}' has not", self.scenario.host[host].name);
            return self.violate("every program ends", what);
        }
        for host in 0..self.hosts.len() {
            if let Some(what) = self.hosts[host].leftovers() {
                return self.violate("every connection ends", what);
            }
        }
    }

    fn into_outcome(mut self) -> Outcome {
        for host in &self.hosts {
            host.count_reached(&mut self.reached);
        }
        self.net.count_reached(&mut self.reached);
        let flows: Vec<FlowOutcome> =
            (0..self.scenario.flow.len()).map(|flow| self.flow_outcome(flow)).collect();
        let whole = flows.iter().zip(&self.scenario.flow).filter(|(flow, _)| flow.finished);
        let bytes = whole.map(|(_, flow)| flow.up + flow.down).sum();
        Outcome {
            violation: self.violation,
            trace: self.trace.finish(),
            packets: self.packets,
            events: self.events,
            elapsed: self.now.since(START),
            bytes,
            faults: self.faults.into_recorded(),
            reached: self.reached,
            flows,
            links: self.net.into_outcomes(),
            series: self.sampler.map(Sampler::into_series),
            journal: self.journal.take(),
        }
    }

    fn flow_outcome(&self, flow: usize) -> FlowOutcome {
        let (client, server) = (&self.apps[flow * 2], &self.apps[flow * 2 + 1]);
        let direction = |reader: &App| {
            let (segments, retransmitted) = self.watch.segments(flow, !reader.is_client);
            Direction {
                bytes: reader.bytes_read(),
                last_read: reader.last_read.map(|at| at.since(START)),
                segments,
                retransmitted,
            }
        };
        FlowOutcome {
            start: self.scenario.flow[flow].start,
            finished: client.end() == Some(&End::Finished)
                && !matches!(server.end(), Some(End::Failed(_))),
            up: direction(server),
            down: direction(client),
        }
    }
}

/// What the world calls a socket.
type Socket = Arc<plimsoll_stack::TcpSocket>;
