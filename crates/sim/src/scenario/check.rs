//! What contradicts itself in a scenario.
//!
//! Every refusal names the key, what is wrong with its value, and what to write.

use std::collections::HashSet;

use plimsoll_stack::SysctlTable;
use plimsoll_tcp::Duration;

use super::{Application, Flow, Happening, Scenario, ScenarioError, Way};
use crate::link::MIN_MTU;

/// Flows, and hosts and routers, of one scenario, at most.
pub const MAX_PARTS: usize = 200;
/// Bytes of one write or read of an application, at most.
pub const MAX_CALL: usize = 16 << 20;
/// The same of all applications of a scenario together: so much memory their buffers take.
pub const MAX_CALLS: usize = 256 << 20;
/// The longest name of a host or router.
const MAX_NAME: usize = 40;

type Checked = Result<(), ScenarioError>;

fn bad(key: impl Into<String>, reason: impl Into<String>) -> Checked {
    Err(ScenarioError::new(key, reason))
}

impl Scenario {
    /// Checks that nothing contradicts anything else. [`parse`](Self::parse) and
    /// [`run`](crate::run) do so as well.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_times()?;
        self.check_record()?;
        self.check_names()?;
        self.check_sysctls()?;
        self.check_links()?;
        self.check_flows()?;
        self.check_calls()?;
        self.check_events()?;
        self.check_faults()
    }

    fn check_times(&self) -> Checked {
        if self.limit.is_zero() {
            return bad("limit", "a run of no time has no end; write 600s, say");
        }
        if self.faults_until > self.limit {
            return bad(
                "faults_until",
                "it is behind limit: no time is left without faults; write at most what limit says",
            );
        }
        if self.host.len() + self.router.len() > MAX_PARTS {
            return bad("host", format!("at most {MAX_PARTS} hosts and routers"));
        }
        if self.flow.len() > MAX_PARTS {
            return bad("flow", format!("at most {MAX_PARTS} flows"));
        }
        Ok(())
    }

    fn check_record(&self) -> Checked {
        let Some(record) = &self.record else { return Ok(()) };
        if record.trace.len() != 16 || !record.trace.bytes().all(|c| c.is_ascii_hexdigit()) {
            let reason = format!(
                "'{}' is no trace, which is 16 hexadecimal digits; record the run again",
                record.trace
            );
            return bad("record.trace", reason);
        }
        if !self.only_listed {
            let reason = "a record has the faults of its run and no others; write true";
            return bad("only_listed", reason);
        }
        Ok(())
    }

    fn check_names(&self) -> Checked {
        let hosts = self.host.iter().map(|host| &host.name).enumerate().map(|at| ("host", at));
        let routers = self.router.iter().map(|router| &router.name).enumerate();
        let mut seen = HashSet::new();
        for (table, (index, name)) in hosts.chain(routers.map(|at| ("router", at))) {
            let key = format!("{table}[{index}].name");
            if name.is_empty() {
                return bad(key, format!("it has no name; write name = \"{table}{index}\", say"));
            }
            // A capture has the name of its host.
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.len() > MAX_NAME || !name.chars().all(plain) {
                return bad(
                    key,
                    format!(
                        "'{name}' is no name; write up to {MAX_NAME} of a-z, A-Z, 0-9, - and _"
                    ),
                );
            }
            if !seen.insert(name) {
                return bad(key, format!("there are two of the name '{name}'; give it another"));
            }
        }
        Ok(())
    }

    fn check_sysctls(&self) -> Checked {
        for (index, host) in self.host.iter().enumerate() {
            for (name, value) in &host.sysctl {
                if let Err(error) = SysctlTable::check(name, value) {
                    return bad(format!("host[{index}].sysctl.\"{name}\""), error.to_string());
                }
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Checked {
        let mut degree = vec![0; self.host.len() + self.router.len()];
        for (index, link) in self.link.iter().enumerate() {
            for (end, name) in link.between.iter().enumerate() {
                match self.node_index(name) {
                    Some(node) => degree[node] += 1,
                    None => {
                        let key = format!("link[{index}].between[{end}]");
                        return bad(key, self.unknown("host or router", name));
                    }
                }
            }
            if link.between[0] == link.between[1] {
                let reason = format!("both ends are '{}'; name two", link.between[0]);
                return bad(format!("link[{index}].between"), reason);
            }
            for backward in [false, true] {
                if let Err(error) = link.direction(backward).check() {
                    let given = backward && link.backward.is_some();
                    let way = if given { "backward" } else { "forward" };
                    return bad(format!("link[{index}].{way}.{}", error.field), error.reason);
                }
            }
        }
        let hosts = degree.iter().take(self.host.len());
        match hosts.enumerate().find(|&(_, &links)| links != 1) {
            Some((index, links)) => {
                let name = &self.host[index].name;
                let reason = match links {
                    0 => {
                        format!("no link ends at '{name}'; write a [[link]] between it and another")
                    }
                    _ => format!(
                        "{links} links end at '{name}', and a host has one; put a router between them"
                    ),
                };
                bad(format!("host[{index}]"), reason)
            }
            None => Ok(()),
        }
    }

    /// There is no part of that name; those that are there are listed.
    fn unknown(&self, what: &str, name: &str) -> String {
        let hosts = self.host.iter().map(|host| host.name.as_str());
        let routers = self.router.iter().map(|router| router.name.as_str());
        let routers = routers.filter(|_| what != "host");
        let known: Vec<&str> = hosts.chain(routers).collect();
        format!("there is no {what} '{name}'; there are: {}", known.join(", "))
    }

    fn check_flows(&self) -> Checked {
        for (index, flow) in self.flow.iter().enumerate() {
            let key = |name: &str| format!("flow[{index}].{name}");
            for (end, name) in [("from", &flow.from), ("to", &flow.to)] {
                if self.host_index(name).is_none() {
                    return bad(key(end), self.unknown("host", name));
                }
            }
            if flow.from == flow.to {
                let reason = format!("'{}' would talk with itself; name another host", flow.from);
                return bad(key("to"), reason);
            }
            if !self.is_connected(flow) {
                let (from, to) = (&flow.from, &flow.to);
                let reason = format!("no links lead from '{from}' to '{to}'; write a [[link]]");
                return bad(key("to"), reason);
            }
            if flow.client.answers && flow.server.answers {
                let reason = "both applications would wait for the other's data; take one away";
                return bad(key("server.answers"), reason);
            }
            if flow.start > self.limit {
                return bad(key("start"), "it is behind limit; write an earlier time");
            }
        }
        Ok(())
    }

    /// Whether links lead from one end of a flow to the other. Hosts forward nothing.
    fn is_connected(&self, flow: &Flow) -> bool {
        let (mut reached, mut next) = (vec![&flow.from], 0);
        while let Some(&node) = reached.get(next) {
            next += 1;
            if node == &flow.to {
                return true;
            }
            if next > 1 && self.host_index(node).is_some() {
                continue;
            }
            for link in &self.link {
                let [a, b] = &link.between;
                let other = if a == node { b } else { a };
                if (a == node || b == node) && !reached.contains(&other) {
                    reached.push(other);
                }
            }
        }
        false
    }

    fn check_calls(&self) -> Checked {
        let mut all = 0;
        for (index, flow) in self.flow.iter().enumerate() {
            for (end, app) in [("client", &flow.client), ("server", &flow.server)] {
                for (call, bytes) in [("write", app.write), ("read", app.read)] {
                    let key = format!("flow[{index}].{end}.{call}");
                    if bytes == 0 {
                        return bad(key, "a call of 0 bytes does nothing; write at least 1");
                    }
                    if bytes > MAX_CALL {
                        return bad(
                            key,
                            format!("{bytes} bytes in one call; write at most {MAX_CALL} (16 MiB)"),
                        );
                    }
                }
                all += app.buffer_len();
                if all > MAX_CALLS {
                    return bad(
                        format!("flow[{index}].{end}.write"),
                        format!(
                            "with this one, the buffers of the applications take {all} bytes, more \
                             than {MAX_CALLS} (256 MiB); write smaller ones or fewer flows"
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    fn check_events(&self) -> Checked {
        for (index, event) in self.event.iter().enumerate() {
            if event.at > self.faults_until {
                return bad(
                    format!("event[{index}].at"),
                    "it is behind faults_until, after which nothing happens; write an earlier time",
                );
            }
            let key = |name: &str| format!("event[{index}].{}.{name}", event.what.key());
            self.check_happening(&event.what, key)?;
        }
        Ok(())
    }

    fn check_happening(&self, what: &Happening, key: impl Fn(&str) -> String) -> Checked {
        match what {
            Happening::Partition { link, .. }
            | Happening::Mtu { link, .. }
            | Happening::Rate { link, .. }
                if *link >= self.link.len() =>
            {
                bad(key("link"), self.unknown_link(*link))
            }
            Happening::Stall { host, .. }
            | Happening::Clock { host, .. }
            | Happening::Crash { host, .. }
                if self.host_index(host).is_none() =>
            {
                bad(key("host"), self.unknown("host", host))
            }
            Happening::Partition { time: Duration::ZERO, .. }
            | Happening::Stall { time: Duration::ZERO, .. }
            | Happening::Crash { time: Duration::ZERO, .. } => {
                bad(key("for"), "for no time nothing happens; write 1s, say")
            }
            Happening::Clock { by: Duration::ZERO, .. } => {
                bad(key("by"), "a step of no time changes nothing; write 1s, say")
            }
            Happening::Clock { by, .. } if *by > self.limit => {
                bad(key("by"), "the clock would be behind limit at once; write a shorter time")
            }
            Happening::Mtu { mtu, .. } if *mtu < MIN_MTU => {
                let reason = format!("{mtu} is less than the {MIN_MTU} that TCP needs");
                bad(key("mtu"), reason)
            }
            Happening::Rate { rate: Some(0), .. } => {
                bad(key("rate"), "at 0 nothing ever arrives; make it a partition")
            }
            _ => Ok(()),
        }
    }

    fn unknown_link(&self, link: usize) -> String {
        match self.link.len() {
            0 => format!("there is no link {link}, nor any other; write a [[link]]"),
            links => format!("there is no link {link}; write 0 to {}", links - 1),
        }
    }

    fn check_faults(&self) -> Checked {
        let mut seen = HashSet::new();
        for (index, fault) in self.fault.iter().enumerate() {
            let key = |name: &str| format!("fault[{index}].{name}");
            let packet = &fault.packet;
            if packet.link >= self.link.len() {
                return bad(key("packet.link"), self.unknown_link(packet.link));
            }
            if packet.way == Way::Both {
                let reason = "a packet goes one way; write forward or backward";
                return bad(key("packet.way"), reason);
            }
            if packet.flow.is_some_and(|flow| usize::from(flow) >= self.flow.len()) {
                let reason = format!(
                    "there is no such flow; the first is 0, and there are {}",
                    self.flow.len()
                );
                return bad(key("packet.flow"), reason);
            }
            if !fault.fate.is_fault() {
                return bad(key("fate"), "nothing happens to the packet; write lose = true, say");
            }
            if !seen.insert(packet) {
                return bad(
                    key("packet"),
                    "this packet is listed twice; write one [[fault]] with all that happens to it",
                );
            }
        }
        Ok(())
    }
}

impl Application {
    /// Bytes that the buffer of its calls takes.
    pub(crate) fn buffer_len(&self) -> usize {
        self.write.max(self.read)
    }
}
