//! Small scenarios of one connection that a kernel can be put into.
//!
//! A kernel plays one end of a run from a packetdrill script. It follows for long only where little
//! is at stake but what a defect would change: few packets, a rate at which they do not come in
//! bursts, a round trip far above the tick of its clock, settings that it has as well, and windows
//! that grow by counting ACKs. So these runs are short, and most of what the full swarm draws is
//! left out.

use std::collections::BTreeMap;

use super::{MS, SECOND};
use crate::link::{LinkConfig, Loss, QueueConfig};
use crate::rng::Rng;
use crate::scenario::{Application, Event, Flow, Happening, Host, LinkPair, Router, Scenario, Way};

/// Settings that one of the hosts may have beside Reno. The first is Linux's default.
const SETTINGS: [(&str, &[&str]); 8] = [
    ("net.ipv4.tcp_sack", &["1", "0"]),
    ("net.ipv4.tcp_timestamps", &["1", "0"]),
    ("net.ipv4.tcp_window_scaling", &["1", "0"]),
    ("net.ipv4.tcp_ecn", &["2", "1"]),
    ("net.ipv4.tcp_early_retrans", &["3", "0"]),
    ("net.ipv4.tcp_frto", &["2", "0"]),
    ("net.ipv4.tcp_slow_start_after_idle", &["1", "0"]),
    ("net.ipv4.tcp_rmem", &["4096 131072 6291456", "4096 8192 8192"]),
];

/// Draws a small scenario of one connection. The same seed gives the same scenario in every version
/// that has the same number in [`VERSION`](super::VERSION).
pub fn plain(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, 1);
    let faults_until = rng.time(SECOND, SECOND * 8);
    let ecn = rng.chance(0.2);
    let host = ["h0", "h1"].map(|name| host(&mut rng, name, ecn)).to_vec();
    let path = path(&mut rng, ecn);
    // A path of two links has a router between, which says what is too big for the second.
    let (router, link) = match rng.chance(0.8) {
        true => (Vec::new(), vec![LinkPair::new(["h0", "h1"], path)]),
        false => {
            let near = LinkConfig::default();
            let link = vec![LinkPair::new(["h0", "r"], near), LinkPair::new(["r", "h1"], path)];
            (vec![Router::new("r")], link)
        }
    };
    let last = link.len() - 1;
    let event = match rng.chance(0.3) {
        true => vec![Event { at: rng.time(MS * 100, SECOND), what: happening(&mut rng, last) }],
        false => Vec::new(),
    };
    let flow = vec![flow(&mut rng)];
    Scenario { host, router, link, flow, event, ..Scenario::new(SECOND * 600, faults_until) }
}

fn host(rng: &mut Rng, name: &str, ecn: bool) -> Host {
    let mut sysctl = BTreeMap::new();
    for (name, values) in SETTINGS {
        if rng.chance(0.1) {
            sysctl.insert(name.to_owned(), rng.pick(values).to_owned());
        }
    }
    if ecn {
        sysctl.insert("net.ipv4.tcp_ecn".to_owned(), "1".to_owned());
    }
    sysctl.insert("net.ipv4.tcp_congestion_control".to_owned(), "reno".to_owned());
    Host { sysctl, ..Host::new(name) }
}

fn path(rng: &mut Rng, ecn: bool) -> LinkConfig {
    let mut config = LinkConfig::default()
        .rate(Some(rng.pick(&[1_000_000, 2_000_000, 4_000_000])))
        .delay(rng.time(MS * 40, MS * 80))
        .queue(QueueConfig::drop_tail(500_000));
    if rng.chance(0.8) {
        config.loss = Loss::Independent(rng.spread(10, 200) as f64 / 1000.0);
    }
    if rng.chance(0.3) {
        config.reorder = rng.unit() * 0.2;
        config.reorder_delay = rng.time(MS * 5, MS * 150);
    }
    if rng.chance(0.2) {
        config.duplicate = rng.unit() * 0.1;
    }
    if rng.chance(0.1) {
        config.corrupt = rng.unit() * 0.1;
    }
    if ecn {
        config.mark = rng.unit() * 0.2;
    }
    config
}

fn happening(rng: &mut Rng, link: usize) -> Happening {
    match rng.chance(0.6) {
        true => {
            let way = rng.pick(&[Way::Forward, Way::Backward, Way::Both]);
            Happening::Partition { link, way, time: rng.time(MS * 100, SECOND * 3) }
        }
        false => Happening::Mtu { link, mtu: rng.range(900, 1400) as u16 },
    }
}

fn flow(rng: &mut Rng) -> Flow {
    let (large, small) = (rng.spread(5_000, 100_000), rng.spread(1, 3_000));
    let (up, down) = if rng.chance(0.7) { (large, small) } else { (small, large) };
    let client = application(rng);
    let server = application(rng).answers(rng.chance(0.5));
    Flow { v6: rng.chance(0.2), client, server, ..Flow::new("h0", "h1", up, down) }
}

fn application(rng: &mut Rng) -> Application {
    let app = Application::default().nodelay(rng.chance(0.2)).half_close(rng.chance(0.3));
    match rng.range(0, 9) {
        0 => app.write(rng.range(200, 3_000) as usize).write_gap(rng.time(MS * 5, MS * 100)),
        1 => app.read(rng.range(1_000, 5_000) as usize).read_gap(rng.time(MS * 5, MS * 100)),
        2 => app.stall(rng.time(MS * 300, SECOND * 3)),
        _ => app,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunConfig, run};

    #[test]
    fn runs_hold_have_one_connection_and_are_small() {
        for seed in 0..200 {
            let drawn = plain(seed);
            assert_eq!(drawn.flow.len(), 1, "{seed}");
            let outcome = run(&drawn, seed, &RunConfig::default()).unwrap();
            assert!(outcome.violation.is_none(), "{seed}: {outcome:?}");
            assert!(outcome.packets < 3_000, "{seed}: {} packets", outcome.packets);
        }
    }
}
