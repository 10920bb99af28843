//! Scenarios from a seed.
//!
//! Each run draws which kinds of faults it has at all, and then how strong they are: a run with all
//! of them at once hides what each of them would show.

mod plain;

use std::collections::BTreeMap;

use plimsoll_tcp::Duration;

use crate::link::{LinkConfig, Loss, QueueConfig};
use crate::rng::Rng;
use crate::scenario::{
    Application, Event, Flow, Happening, Host, LinkPair, Middlebox, Router, Scenario, Way,
};

pub use self::plain::plain;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Settings that a host may have, with their values. The first is the default.
const SETTINGS: [(&str, &[&str]); 20] = [
    ("net.ipv4.tcp_congestion_control", &["cubic", "reno", "bbr", "dctcp"]),
    ("net.ipv4.tcp_sack", &["1", "0"]),
    ("net.ipv4.tcp_dsack", &["1", "0"]),
    ("net.ipv4.tcp_timestamps", &["1", "0"]),
    ("net.ipv4.tcp_window_scaling", &["1", "0"]),
    ("net.ipv4.tcp_ecn", &["2", "0", "1", "3", "4", "5"]),
    ("net.ipv4.tcp_ecn_option", &["2", "0", "1", "3"]),
    ("plimsoll.tcp_abe", &["0", "1"]),
    ("net.ipv4.tcp_mtu_probing", &["0", "1", "2"]),
    ("net.ipv4.tcp_recovery", &["1", "0"]),
    ("net.ipv4.tcp_early_retrans", &["3", "0"]),
    ("net.ipv4.tcp_frto", &["2", "0"]),
    ("net.ipv4.tcp_rmem", &["4096 131072 6291456", "4096 16384 65536", "4096 8192 8192"]),
    ("net.ipv4.tcp_wmem", &["4096 16384 4194304", "4096 16384 32768"]),
    ("net.ipv4.tcp_slow_start_after_idle", &["1", "0"]),
    ("net.ipv4.tcp_autocorking", &["1", "0"]),
    ("net.ipv4.tcp_limit_output_bytes", &["4194304", "16384"]),
    ("plimsoll.tcp_tso_tail", &["split", "trim", "empty", "nagle"]),
    ("net.core.default_qdisc", &["fq", "pfifo"]),
    ("net.ipv4.tcp_backlog_ack_defer", &["1", "0"]),
];

const BOXES: [Middlebox; 8] = [
    Middlebox::StripSack,
    Middlebox::StripWindowScale,
    Middlebox::StripTimestamps,
    Middlebox::StripAll,
    Middlebox::BleachEcn,
    Middlebox::HideCe,
    Middlebox::Split,
    Middlebox::Merge,
];

/// Draws a scenario. The same seed gives the same scenario in every version that has the same
/// number in [`VERSION`].
pub fn draw(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 0);
    let faults_until = rng.time(SECOND * 3, SECOND * 25);
    let shape = Shape { rate: rng.spread(500_000, 60_000_000), rng: &mut rng };
    let Parts { host, router, link } = shape.draw();
    let flow = flows(&mut rng, &host, faults_until);
    let event = events(&mut rng, &host, &link, faults_until);
    let empty = Scenario::new(SECOND * 1800, faults_until);
    Scenario { host, router, link, flow, event, ..empty }
}

/// Changes whenever the same seed gives another scenario.
pub const VERSION: u32 = 2;

struct Parts {
    host: Vec<Host>,
    router: Vec<Router>,
    link: Vec<LinkPair>,
}

struct Shape<'a> {
    rate: u64,
    rng: &'a mut Rng,
}

impl Shape<'_> {
    /// Two hosts on one link, or some around a bottleneck between two routers.
    fn draw(mut self) -> Parts {
        let hosts = if self.rng.chance(0.6) { 2 } else { self.rng.range(2, 5) as usize };
        let host: Vec<Host> = (0..hosts).map(|index| self.host(index)).collect();
        if hosts == 2 && self.rng.chance(0.7) {
            let link = vec![self.bottleneck(["h0", "h1"])];
            return Parts { host, router: Vec::new(), link };
        }
        // Who does not probe never gets a packet through a black hole.
        let probes = |host: &Host| {
            host.sysctl.get("net.ipv4.tcp_mtu_probing").is_some_and(|value| value != "0")
        };
        let silent = self.rng.chance(0.5) && host.iter().all(probes);
        let router = ["left", "right"].map(|name| Router { name: name.to_owned(), silent });
        let mut link = vec![self.bottleneck(["left", "right"])];
        for index in 0..hosts {
            let side = if index % 2 == 0 { "left" } else { "right" };
            link.push(self.access(index, side));
        }
        Parts { host, router: router.to_vec(), link }
    }

    fn host(&mut self, index: usize) -> Host {
        let mut sysctl = BTreeMap::new();
        for (name, values) in SETTINGS {
            if self.rng.chance(0.25) {
                sysctl.insert(name.to_owned(), self.rng.pick(values).to_owned());
            }
        }
        Host {
            name: format!("h{index}"),
            offloads: self.rng.chance(0.5),
            ring: if self.rng.chance(0.3) { self.rng.range(1, 8) } else { 0 },
            sysctl,
        }
    }

    fn access(&mut self, index: usize, side: &str) -> LinkPair {
        let rate = self.rate.saturating_mul(self.rng.range(2, 10));
        let forward = LinkConfig::default()
            .rate(Some(rate))
            .delay(self.rng.time(Duration::ZERO, MS * 5))
            .queue(QueueConfig::drop_tail(500_000));
        LinkPair {
            between: [format!("h{index}"), side.to_owned()],
            forward,
            backward: None,
            middlebox: Vec::new(),
        }
    }

    fn bottleneck(&mut self, ends: [&str; 2]) -> LinkPair {
        let forward = self.faulty();
        let backward = self.rng.chance(0.5).then(|| {
            let other = self.faulty();
            LinkConfig { delay: forward.delay, mtu: forward.mtu, ..other }
        });
        let middlebox = match self.rng.chance(0.3) {
            true => vec![self.rng.pick(&BOXES)],
            false => Vec::new(),
        };
        LinkPair { between: ends.map(str::to_owned), forward, backward, middlebox }
    }

    fn faulty(&mut self) -> LinkConfig {
        let delay = Duration::from_micros(self.rng.spread(100, 150_000));
        let mtu = self.rng.pick(&[1500, 1500, 1500, 1280, 9000]);
        let mut config = LinkConfig::default()
            .rate(Some(self.rate))
            .delay(delay)
            .mtu(mtu)
            .queue(self.queue(delay, u64::from(mtu)));
        if self.rng.chance(0.5) {
            config.loss = self.loss();
        }
        if self.rng.chance(0.25) {
            config.reorder = self.rng.unit() * 0.1;
            config.reorder_delay = self.rng.time(MS, delay + MS * 10);
        }
        if self.rng.chance(0.2) {
            config.duplicate = self.rng.unit() * 0.05;
        }
        if self.rng.chance(0.2) {
            config.corrupt = self.rng.unit() * 0.03;
        }
        if self.rng.chance(0.2) {
            config.mark = self.rng.unit() * 0.05;
        }
        if self.rng.chance(0.25) {
            config.jitter = self.rng.time(Duration::ZERO, delay / 2 + MS);
        }
        config
    }

    fn loss(&mut self) -> Loss {
        match self.rng.chance(0.6) {
            true => Loss::Independent(self.rng.spread(1, 150) as f64 / 1000.0),
            false => Loss::Bursty {
                enter: self.rng.unit() * 0.02,
                leave: 0.1 + self.rng.unit() * 0.6,
                good: 0.0,
                bad: 0.3 + self.rng.unit() * 0.7,
            },
        }
    }

    /// Four full packets are the least: with less, a sender without SACK and timestamps gets on by
    /// timeouts only, and its timeout never comes down (RFC 6298, section 5.7).
    fn queue(&mut self, delay: Duration, mtu: u64) -> QueueConfig {
        let bdp = (self.rate as f64 / 8.0 * (delay * 2).as_secs_f64()) as u64;
        let bytes = (bdp * self.rng.pick(&[1, 2, 4, 8, 16]) / 4).max(4 * mtu);
        match self.rng.range(0, 5) {
            0 => QueueConfig::codel(bytes.max(60_000)),
            1 => QueueConfig::dual_pi2(bytes.max(60_000)),
            2 => QueueConfig::DropTail { bytes, packets: 1000, mark_above: bytes / 4 },
            _ => QueueConfig::drop_tail(bytes),
        }
    }
}

fn flows(rng: &mut Rng, hosts: &[Host], faults_until: Duration) -> Vec<Flow> {
    let count = rng.pick(&[1, 1, 1, 2, 3, 5]);
    (0..count).map(|_| flow(rng, hosts, faults_until)).collect()
}

fn flow(rng: &mut Rng, hosts: &[Host], faults_until: Duration) -> Flow {
    let from = rng.range(0, hosts.len() as u64 - 1) as usize;
    let to = (from + rng.range(1, hosts.len() as u64 - 1) as usize) % hosts.len();
    let (large, small) = (rng.spread(50_000, 4_000_000), rng.spread(1, 20_000));
    let (up, down) = match rng.range(0, 3) {
        0 => (large, large / 2),
        1 => (small, large),
        _ => (large, small),
    };
    let answers = rng.chance(0.3);
    let mut client = application(rng);
    let mut server = application(rng);
    server.answers = answers;
    client.half_close = rng.chance(0.4);
    server.half_close = rng.chance(0.4);
    Flow {
        from: hosts[from].name.clone(),
        to: hosts[to].name.clone(),
        v6: rng.chance(0.4),
        start: rng.time(Duration::ZERO, faults_until / 4),
        up,
        down,
        client,
        server,
    }
}

fn application(rng: &mut Rng) -> Application {
    let mut app = Application {
        write: rng.spread(1_000, 100_000) as usize,
        read: rng.spread(1_000, 100_000) as usize,
        nodelay: rng.chance(0.4),
        keepalive: rng.chance(0.2),
        ..Application::default()
    };
    match rng.range(0, 9) {
        0 => app.stall = rng.time(MS * 100, SECOND * 8),
        // A trickle: what a second takes is a few kilobytes, and the stream is long.
        1 => (app.write, app.write_gap) = (20_000, rng.time(MS, MS * 40)),
        2 => (app.read, app.read_gap) = (20_000, rng.time(MS, MS * 40)),
        3 => app.write = rng.range(100, 1_400) as usize,
        _ => {}
    }
    app
}

fn events(rng: &mut Rng, hosts: &[Host], links: &[LinkPair], faults_until: Duration) -> Vec<Event> {
    let count = if rng.chance(0.5) { rng.range(1, 4) } else { 0 };
    let mut events: Vec<Event> = (0..count)
        .map(|_| Event {
            at: rng.time(Duration::ZERO, faults_until),
            what: happening(rng, hosts, links),
        })
        .collect();
    events.sort_by_key(|event| event.at);
    events
}

fn happening(rng: &mut Rng, hosts: &[Host], links: &[LinkPair]) -> Happening {
    let link = rng.range(0, links.len() as u64 - 1) as usize;
    let host = hosts[rng.range(0, hosts.len() as u64 - 1) as usize].name.clone();
    match rng.range(0, 11) {
        0..=2 => {
            let way = rng.pick(&[Way::Forward, Way::Backward, Way::Both]);
            Happening::Partition { link, way, time: rng.time(MS * 50, SECOND * 12) }
        }
        3 | 4 => Happening::Mtu { link, mtu: rng.range(576, 1500) as u16 },
        5 | 6 => {
            let rate = links[link].forward.rate.unwrap_or(10_000_000);
            Happening::Rate { link, rate: Some((rate * rng.range(1, 16) / 4).max(200_000)) }
        }
        7 | 8 => Happening::Stall { host, time: rng.time(MS, SECOND * 3) },
        9 | 10 => Happening::Clock { host, by: rng.time(MS, SECOND * 5) },
        _ => Happening::Crash { host, time: rng.time(MS, SECOND * 5) },
    }
}
