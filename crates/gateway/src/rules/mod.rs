//! Rules by name: which destinations a command may reach.
//!
//! A rule is by address or by name. The gateway dials the address in the packet and never looks a
//! name up itself: a name opens the [addresses] that its answers gave. Many names share an address,
//! so the first bytes of a connection that a name has opened are [read](hello) before they go
//! out ([first_bytes]): the server name in them decides.
//!
//! [`crate::policy`] comes before all rules: they open nothing that it closes.

pub(crate) mod addresses;
pub(crate) mod first_bytes;
pub mod hello;
mod refusals;
pub mod rule;
pub mod ways_round;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll::gate::Unreachable;

use self::addresses::Addresses;
use self::hello::Hello;
use self::refusals::{Needs, Refusals};
use self::rule::{Protocol, Rule, is_private};
use crate::names::HOST;
use crate::network::Network;
use crate::policy::embedded;

/// How the lookup of a name is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefuseNames {
    /// As a name that does not exist. The C library of Alpine Linux (musl) waits its whole time for
    /// another answer than that.
    #[default]
    NxDomain,
    /// As REFUSED.
    Refused,
}

/// All rules of a run.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// With any of these, all else is refused.
    pub allow: Vec<Rule>,
    /// These win over the others.
    pub deny: Vec<Rule>,
    /// How lookups are refused.
    pub refuse_names: RefuseNames,
    /// Where the rules that the run has needed go.
    pub learn: Option<PathBuf>,
}

impl Rules {
    /// Whether there is a rule.
    pub fn is_any(&self) -> bool {
        !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// The first rule that denies the name for this protocol and port.
    fn denies(&self, name: &str, protocol: Protocol, port: u16) -> Option<&Rule> {
        let covers = |rule: &&Rule| rule.covers_name(name) && rule.covers_port(protocol, port);
        self.deny.iter().find(covers)
    }
}

/// Reads rules: one, or those of a file if it is `@FILE`.
///
/// # Errors
/// If the file cannot be read, or a rule is wrong.
pub fn read(text: &str) -> Result<Vec<Rule>> {
    let Some(path) = text.strip_prefix('@') else { return Ok(vec![text.parse()?]) };
    let lines = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let rule = |(number, line): (usize, &str)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let wrong = || format!("{path}, line {}", number + 1);
        (!line.is_empty()).then(|| line.parse().with_context(wrong))
    };
    lines.lines().enumerate().filter_map(rule).collect()
}

/// The question about a connection that its first bytes answer.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    to: SocketAddr,
    /// The name that was looked up.
    name: Option<String>,
    /// A name has opened the address, so the server name needs a rule.
    by_name: bool,
}

/// The rules at work.
pub struct Access {
    rules: Rules,
    network: Network,
    /// Names the connections whose server name cannot be read.
    verbose: bool,
    addresses: Mutex<Addresses>,
    refusals: Mutex<Refusals>,
    needs: Mutex<Needs>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rule that would allow a destination.
fn rule_for(protocol: Protocol, to: SocketAddr, name: Option<&str>) -> String {
    let ip = to.ip().to_canonical();
    let host = match (name, ip) {
        (Some(HOST), _) => HOST.to_owned(),
        (Some(name), ip) if is_private(ip) => format!("{name}+private"),
        (Some(name), _) => name.to_owned(),
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    match protocol {
        Protocol::Tcp => format!("{host}:{}", to.port()),
        Protocol::Udp => format!("udp://{host}:{}", to.port()),
        Protocol::Icmp => format!("icmp://{host}"),
        Protocol::Dns => format!("dns://{host}"),
    }
}

/// A destination in a line for the user.
fn shown(protocol: Protocol, to: SocketAddr, name: Option<&str>) -> String {
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    match protocol {
        Protocol::Icmp => format!("icmp {}{name}", to.ip()),
        _ => format!("{} {to}{name}", protocol.word()),
    }
}

impl Access {
    /// The rules for a command of this network.
    pub fn new(rules: Rules, network: Network, verbose: bool) -> Access {
        Access {
            rules,
            network,
            verbose,
            addresses: Mutex::default(),
            refusals: Mutex::default(),
            needs: Mutex::default(),
        }
    }

    pub(crate) fn network(&self) -> Network {
        self.network
    }

    pub(crate) fn refuse_names(&self) -> RefuseNames {
        self.rules.refuse_names
    }

    /// Whether the command may look this name up. A refusal is reported.
    pub(crate) fn allows_lookup(&self, name: &str) -> bool {
        let denies = |rule: &&Rule| rule.covers_name(name) && rule.covers_all_ports();
        if let Some(rule) = self.rules.deny.iter().find(denies) {
            let line = format!("refused the lookup of {name}: --net-deny '{rule}' forbids it");
            locked(&self.refusals).report(line);
            return false;
        }
        let covers = |rule: &Rule| rule.covers_all_names() || rule.covers_name(name);
        let allowed = self.rules.allow.is_empty() || self.rules.allow.iter().any(covers);
        if !allowed {
            let line = format!(
                "refused the lookup of {name}: no rule allows it; --net-allow '{name}' would, and \
                 'dns://{name}' the lookup alone"
            );
            locked(&self.refusals).report(line);
        }
        allowed
    }

    /// Keeps an address that an answer to the lookup of a name has given.
    pub(crate) fn keep(&self, ip: IpAddr, name: &str, ttl: Duration, now: Instant) {
        locked(&self.addresses).keep(ip.to_canonical(), name, ttl, now);
    }

    /// A name was looked up, and exists.
    pub(crate) fn looked_up(&self, name: &str) {
        if self.rules.learn.is_some() {
            locked(&self.needs).add_lookup(name);
        }
    }

    /// The latest name of an address that `wanted` accepts.
    fn name(&self, ip: IpAddr, now: Instant, wanted: impl Fn(&str) -> bool) -> Option<String> {
        // It is in the command's table of names, so it may never be looked up.
        if self.network.loopback_for(ip).is_some() {
            return Some(HOST.to_owned()).filter(|name| wanted(name));
        }
        locked(&self.addresses).find(ip.to_canonical(), now, wanted)
    }

    /// The name by which the command has learnt of an address.
    pub(crate) fn name_of(&self, ip: IpAddr, now: Instant) -> Option<String> {
        self.name(ip, now, |_| true)
    }

    /// Whether an allowed name opens this address.
    fn opens(&self, name: &str, protocol: Protocol, to: SocketAddr) -> bool {
        // The host itself is open by an option of its own.
        let opens = |rule: &Rule| match name {
            HOST => rule.covers_name(HOST) && rule.covers_port(protocol, to.port()),
            _ => rule.opens(name, protocol, to),
        };
        self.rules.denies(name, protocol, to.port()).is_none() && self.rules.allow.iter().any(opens)
    }

    /// Whether the command may reach this destination, and what its first bytes have yet to show.
    ///
    /// # Errors
    /// The error by which the command learns that it may not. It is reported.
    pub(crate) fn decide(
        &self,
        protocol: Protocol,
        to: SocketAddr,
    ) -> Result<Option<Check>, Unreachable> {
        let rules = &self.rules;
        if !rules.is_any() && rules.learn.is_none() {
            return Ok(None);
        }
        let now = Instant::now();
        let latest = self.name_of(to.ip(), now);
        let refused = |why: String| {
            let shown = shown(protocol, to, latest.as_deref());
            locked(&self.refusals).report(format!("refused {shown}: {why}"));
            Err(Unreachable::Prohibited)
        };
        let inner = match to.ip() {
            IpAddr::V6(ip) => embedded(ip).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let spellings = [Some(to.ip()), inner].into_iter().flatten();
        let denying = spellings
            .map(|ip| SocketAddr::new(ip, to.port()))
            .find_map(|to| self.rules.deny.iter().find(|rule| rule.covers_address(protocol, to)));
        let denied_name = || {
            // One of several names suffices: the first bytes show which it is.
            let port = to.port();
            let open = |name: &str| rules.denies(name, protocol, port).is_none();
            let name = latest.as_deref()?;
            self.name(to.ip(), now, open)
                .map_or_else(|| rules.denies(name, protocol, port), |_| None)
        };
        if let Some(rule) = denying.or_else(denied_name) {
            return refused(format!("--net-deny '{rule}' forbids it"));
        }
        let by_address = rules.allow.iter().any(|rule| rule.covers_address(protocol, to));
        let by_name = !rules.allow.is_empty() && !by_address;
        if by_name && self.name(to.ip(), now, |name| self.opens(name, protocol, to)).is_none() {
            let rule = rule_for(protocol, to, latest.as_deref());
            return refused(format!("no rule allows it; --net-allow '{rule}' would"));
        }
        if rules.learn.is_some() {
            locked(&self.needs).add(rule_for(protocol, to, latest.as_deref()), latest.as_deref());
        }
        let reads = by_name || rules.learn.is_some() || rules.deny.iter().any(Rule::is_by_name);
        let check = || Check { to, name: latest.clone(), by_name };
        Ok((protocol == Protocol::Tcp && reads).then(check))
    }

    /// Whether a connection may go on, by its first bytes. A refusal is reported.
    pub(crate) fn admits(&self, check: &Check, hello: &Hello) -> bool {
        let Check { to, name, by_name } = check;
        let shown = || shown(Protocol::Tcp, *to, name.as_deref());
        let refused = |why: String| {
            locked(&self.refusals).report(format!("refused {}: {why}", shown()));
            false
        };
        let server = match hello {
            Hello::Name(server) => server,
            Hello::Other | Hello::Nameless => {
                if self.verbose && *by_name {
                    let line = format!("{}: no server name; the lookup has decided", shown());
                    locked(&self.refusals).report(line);
                }
                return true;
            }
            Hello::Incomplete | Hello::Malformed => {
                return refused("its first bytes are no whole ClientHello of TLS".to_owned());
            }
        };
        if let Some(rule) = self.rules.denies(server, Protocol::Tcp, to.port()) {
            return refused(format!("--net-deny '{rule}' forbids the server name {server}"));
        }
        let allows =
            |rule: &Rule| rule.covers_name(server) && rule.covers_port(Protocol::Tcp, to.port());
        if *by_name && !self.rules.allow.iter().any(allows) {
            let rule = format!("{server}:{}", to.port());
            return refused(format!(
                "no rule allows the server name {server}; --net-allow '{rule}' would"
            ));
        }
        // A name of an address, as curl sends it, is no name for a rule.
        if self.rules.learn.is_some()
            && name.is_some()
            && server.parse::<Rule>().is_ok_and(|it| it.is_by_name())
        {
            locked(&self.needs).add(rule_for(Protocol::Tcp, *to, Some(server)), Some(server));
        }
        true
    }

    /// The rules that the run has needed, as a file for `--net-allow @FILE`.
    pub(crate) fn needed(&self) -> String {
        locked(&self.needs).to_string()
    }
}

#[cfg(test)]
mod tests;
