//! What shell lines do to the embedded stack.

use plimsoll_stack::SysctlError;
use plimsoll_stack::qdisc::Kind;

use super::EmbeddedHost;
use super::device::Shape;
use crate::host::HostError;
use crate::shell::{Command, Qdisc, RouteMetrics};

/// Settings that the stack does not have, each with the one value that asks for what it does
/// anyway. Where there is none, the setting is about something that another one turns on.
const ACCEPTED: &[(&str, Option<&str>)] = &[
    // Only with AccECN, which `tcp_ecn` does not offer.
    ("net.ipv4.tcp_ecn_option", None),
    ("net.ipv4.tcp_mtu_probing", Some("0")),
    // Only with probing.
    ("net.ipv4.tcp_base_mss", None),
];

fn refused(text: impl Into<String>) -> Result<(), HostError> {
    Err(HostError(text.into()))
}

impl EmbeddedHost {
    /// Does what a shell line asks.
    pub(super) fn apply(&mut self, command: &Command) -> Result<(), HostError> {
        match command {
            Command::Sysctl { name, value } => self.set(name, value),
            Command::FlushMetrics => {
                self.stack.flush_metrics();
                Ok(())
            }
            // Packets go the other way.
            Command::Route(metrics) if metrics.v6 != self.network.local.is_ipv6() => Ok(()),
            Command::Route(metrics) => self.route(metrics),
            Command::LinkMtu(mtu) => self.rebuild(Shape { mtu: *mtu, ..self.shape }),
            Command::Offload { tso, gso } => {
                let offload = tso.or(*gso).unwrap_or(self.shape.offload);
                self.rebuild(Shape { offload, ..self.shape })
            }
            Command::Qdisc(qdisc) => {
                let bucket = match qdisc {
                    Qdisc::TokenBucket(bucket) => Some(*bucket),
                    _ => None,
                };
                self.rebuild(Shape { bucket, ..self.shape })?;
                self.queue_by(match *qdisc {
                    Qdisc::Fq(config) => Kind::Fq(config),
                    Qdisc::Fifo { limit: Some(limit) } => Kind::Pfifo { limit: limit as usize },
                    _ => Kind::PFIFO,
                })
            }
            Command::Counters { wanted } => self.counters(wanted.as_deref()),
            Command::Listening(port) => self.listening(*port),
            Command::CubicParameter { name, value } => cubic(name, value),
            Command::ZeroFile { path, len } => self.files.create(path, *len),
            Command::RemoveFile(path) => {
                self.files.remove(path);
                Ok(())
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), HostError> {
        match self.stack.set_sysctl(self.now, name, value) {
            Ok(()) => {
                self.settings.push((name.to_owned(), value.to_owned()));
                Ok(())
            }
            Err(error) => accept(name, value, &error),
        }
    }

    fn route(&mut self, metrics: &RouteMetrics) -> Result<(), HostError> {
        let unknown = [
            ("initrwnd", metrics.initrwnd.is_some()),
            ("quickack", metrics.quickack.is_some()),
            ("rto_min", metrics.rto_min_ms.is_some()),
            ("congctl", metrics.congctl.is_some()),
            ("features ecn", metrics.ecn),
            ("fastopen_no_cookie", metrics.fastopen_no_cookie.is_some()),
        ];
        if let Some((name, _)) = unknown.iter().find(|(_, given)| *given) {
            return refused(format!("routes have no {name} here"));
        }
        let mtu = metrics.mtu.unwrap_or(self.shape.mtu);
        let headers = if self.network.local.is_ipv4() { 40 } else { 60 };
        let natural = mtu.saturating_sub(headers);
        if let Some(advmss) = metrics.advmss.filter(|advmss| *advmss != natural) {
            return refused(format!("a route's advmss of {advmss} does not follow from its MTU"));
        }
        if let Some(initcwnd) = metrics.initcwnd {
            self.set("plimsoll.initcwnd", &initcwnd.to_string())?;
        }
        self.rebuild(Shape { mtu, ..self.shape })
    }

    fn counters(&mut self, wanted: Option<&str>) -> Result<(), HostError> {
        let now = self.stack.counters();
        let before = std::mem::replace(&mut self.counted, now);
        let Some(wanted) = wanted else { return Ok(()) };
        let old = |name: &str| before.iter().find(|(known, _)| *known == name).map(|(_, v)| *v);
        let grew =
            |&(name, value): &(&str, u64)| name.contains(wanted) && value != old(name).unwrap_or(0);
        if self.counted.iter().any(grew) {
            return Ok(());
        }
        refused(format!("nstat shows no change of {wanted}"))
    }

    fn listening(&self, port: u16) -> Result<(), HostError> {
        let listens = |socket: &plimsoll_stack::SocketSummary| {
            socket.state.is_none() && socket.local.port() == port
        };
        if self.stack.sockets().iter().any(listens) {
            return Ok(());
        }
        refused(format!("nobody listens on port {port}"))
    }
}

/// Takes a setting that the stack does not take, if it asks for what is so anyway.
fn accept(name: &str, value: &str, error: &SysctlError) -> Result<(), HostError> {
    match ACCEPTED.iter().find(|(known, _)| *known == name) {
        None => refused(error.to_string()),
        Some((_, Some(only))) if *only != value => {
            refused(format!("{name}: this stack only does what the value {only} stands for"))
        }
        Some(_) => Ok(()),
    }
}

fn cubic(name: &str, value: &str) -> Result<(), HostError> {
    match (name, value) {
        // What Linux does by default.
        ("hystart", "1") | ("hystart_detect", "3") => Ok(()),
        _ => refused(format!("cubic has no parameter {name} that could be {value}")),
    }
}
