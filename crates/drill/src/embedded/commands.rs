//! What shell lines do to the embedded stack.

use std::net::IpAddr;

use plimsoll_stack::RouteConfig;
use plimsoll_stack::qdisc::Kind;
use plimsoll_tcp::{CongestionAlgorithm, Duration};

use super::EmbeddedHost;
use super::device::Shape;
use crate::host::HostError;
use crate::shell::{Command, Qdisc, RouteMetrics};

/// The least MTU of a link of IPv6.
const LEAST_MTU_V6: u16 = 1280;

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
            Err(error) => refused(error.to_string()),
        }
    }

    /// Adds a route with these attributes, in the place of the one to the same prefix.
    fn route(&mut self, metrics: &RouteMetrics) -> Result<(), HostError> {
        let congestion = match &metrics.congctl {
            None => None,
            Some(name) => match CongestionAlgorithm::from_name(name) {
                None => return refused(format!("there is no congestion control {name}")),
                found => found,
            },
        };
        // Linux takes less over IPv6 than every link must carry (RFC 8200, section 5), we do not.
        let least = if metrics.v6 { LEAST_MTU_V6 } else { 0 };
        let attributes = plimsoll_stack::RouteMetrics::default()
            .mtu(metrics.mtu.map(|mtu| mtu.max(least)))
            .mtu_lock(metrics.mtu_lock)
            .advmss(metrics.advmss)
            .initcwnd(metrics.initcwnd)
            .initrwnd(metrics.initrwnd)
            .rto_min(metrics.rto_min_ms.map(|millis| Duration::from_millis(millis.into())))
            .quickack(metrics.quickack == Some(true))
            .congestion(congestion)
            .ecn(metrics.ecn)
            .fastopen_no_cookie(metrics.fastopen_no_cookie == Some(true));
        let everywhere = if metrics.v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
        let (prefix, prefix_len) = metrics.to.unwrap_or((everywhere, 0));
        let route = RouteConfig { prefix, prefix_len, interface: 0, metrics: attributes };
        self.routes.retain(|known| (known.prefix, known.prefix_len) != (prefix, prefix_len));
        self.routes.push(route);
        // A link that is too narrow for the route is widened as long as the script may do so.
        let mtu = metrics.mtu.unwrap_or(0).max(self.shape.mtu);
        if mtu > self.shape.mtu && !self.begun {
            return self.rebuild(Shape { mtu, ..self.shape });
        }
        self.add_route(route)
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
        refused(format!("no socket listens on port {port}"))
    }
}

fn cubic(name: &str, value: &str) -> Result<(), HostError> {
    match (name, value) {
        // What Linux does by default.
        ("hystart", "1") | ("hystart_detect", "3") => Ok(()),
        _ => refused(format!("cubic has no parameter {name} that could be {value}")),
    }
}
