//! What is to be simulated: hosts, routers, links, flows, what happens to them and when.
//!
//! A scenario is a TOML file, is built in code, or is [drawn](crate::draw()) from a seed. Together
//! with the seed it says everything about a run.
//!
//! ```
//! use std::time::Duration;
//!
//! use plimsoll_sim::link::LinkConfig;
//! use plimsoll_sim::scenario::{Flow, Host, LinkPair};
//! use plimsoll_sim::{RunConfig, Scenario, run};
//!
//! let second = Duration::from_secs(1);
//! let mut scenario = Scenario::new(60 * second, 5 * second);
//! scenario.host = vec![Host::new("a").offloads(true), Host::new("b")];
//! let link = LinkConfig::default().rate(Some(10_000_000)).delay(second / 50);
//! scenario.link = vec![LinkPair::new(["a", "b"], link)];
//! scenario.flow = vec![Flow::new("a", "b", 100_000, 0)];
//! assert_eq!(run(&scenario, 1, &RunConfig::default())?.violation, None);
//! # Ok::<(), plimsoll_sim::ScenarioError>(())
//! ```

mod check;
mod error;
mod event;
pub(crate) mod path;
mod record;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plimsoll_tcp::Duration;
use serde::{Deserialize, Serialize};

pub use self::check::{MAX_CALL, MAX_CALLS, MAX_PARTS};
pub use self::error::ScenarioError;
pub use self::event::{Event, Happening, Way};
pub use self::record::Record;

use crate::fault::Fault;
use crate::link::LinkConfig;
use crate::units;
use crate::world::Outcome;

/// The port of the first flow's server; the next flow has the next.
pub const FIRST_PORT: u16 = 1000;

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scenario {
    /// How long the run may take, in simulated time. All must have come to its end before.
    #[serde(with = "units::time")]
    pub limit: Duration,
    /// From here on the links lose their faults and are up, and nothing happens any more but what
    /// the flows do.
    #[serde(with = "units::time")]
    pub faults_until: Duration,
    /// Only the faults that are listed happen, even if none is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_listed: bool,
    /// The run whose faults are listed, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Hosts: stacks with one interface and one link each.
    pub host: Vec<Host>,
    /// Routers between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub router: Vec<Router>,
    /// Links.
    pub link: Vec<LinkPair>,
    /// Connections, and what is sent on them.
    pub flow: Vec<Flow>,
    /// What happens to links and hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event: Vec<Event>,
    /// What happens to packets. If there are any faults, or [`only_listed`](Self::only_listed) is
    /// set, the links throw no dice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fault: Vec<Fault>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Host {
    /// Its name: up to 40 letters, digits, `-` and `_`.
    pub name: String,
    /// Its device takes super-segments and completes checksums.
    pub offloads: bool,
    /// Packets of it that its link's queue takes before the device is busy; 0 is any number. With a
    /// small number, packets wait in the stack, as with a slow network card.
    pub ring: u64,
    /// Settings of the stack, by Linux's names.
    pub sysctl: BTreeMap<String, String>,
}

impl Host {
    /// A host with the default settings.
    pub fn new(name: &str) -> Host {
        Host { name: name.to_owned(), ..Host::default() }
    }

    /// Sets one of the [settings](Self::sysctl).
    #[must_use]
    pub fn sysctl(mut self, name: &str, value: &str) -> Host {
        self.sysctl.insert(name.to_owned(), value.to_owned());
        self
    }
}

plimsoll_tcp::setters!(Host { offloads: bool, ring: u64 });

/// A router. It forwards at once; its queues are those of the links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Router {
    /// Its name: up to 40 letters, digits, `-` and `_`.
    pub name: String,
    /// It answers nothing: the sender of too long a packet does not hear of it.
    pub silent: bool,
}

impl Router {
    /// A router that answers.
    pub fn new(name: &str) -> Router {
        Router { name: name.to_owned(), silent: false }
    }
}

plimsoll_tcp::setters!(Router { silent: bool });

/// Two directions of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LinkPair {
    /// The names of its ends.
    pub between: [String; 2],
    /// From the first to the second.
    pub forward: LinkConfig,
    /// From the second to the first; as forward unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<LinkConfig>,
    /// What changes packets on their way into it, in both directions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middlebox: Vec<Middlebox>,
}

impl LinkPair {
    /// A link between two nodes whose directions are alike.
    pub fn new(between: [&str; 2], forward: LinkConfig) -> LinkPair {
        let between = between.map(str::to_owned);
        LinkPair { between, forward, backward: None, middlebox: Vec::new() }
    }

    /// The configuration of one direction.
    pub fn direction(&self, backward: bool) -> &LinkConfig {
        match &self.backward {
            Some(config) if backward => config,
            _ => &self.forward,
        }
    }
}

plimsoll_tcp::setters!(LinkPair { backward: Option<LinkConfig>, middlebox: Vec<Middlebox> });

/// What changes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Middlebox {
    /// Takes SACK-permitted out of SYNs.
    StripSack,
    /// Takes the window scale out of SYNs.
    StripWindowScale,
    /// Takes timestamps out of SYNs.
    StripTimestamps,
    /// Takes all options but the MSS out of SYNs.
    StripAll,
    /// Sets the bits of ECN to zero.
    BleachEcn,
    /// Takes marks back: CE becomes ECT(0).
    HideCe,
    /// Cuts segments of data into two.
    Split,
    /// Makes one segment of two that arrive within a millisecond and follow each other, if it fits
    /// into the MTU.
    Merge,
}

/// One connection: who opens it, and what both applications do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Flow {
    /// The host that connects.
    pub from: String,
    /// The host that listens.
    pub to: String,
    /// By IPv6.
    #[serde(default, skip_serializing_if = "is_false")]
    pub v6: bool,
    /// When it begins.
    #[serde(default, with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub start: Duration,
    /// Bytes from who connects.
    pub up: u64,
    /// Bytes from who listens.
    pub down: u64,
    /// The application that connects.
    #[serde(default)]
    pub client: Application,
    /// The application that listens.
    #[serde(default)]
    pub server: Application,
}

impl Flow {
    /// `from` connects to `to`, sends `up` bytes and gets `down` bytes.
    pub fn new(from: &str, to: &str, up: u64, down: u64) -> Flow {
        Flow {
            from: from.to_owned(),
            to: to.to_owned(),
            v6: false,
            start: Duration::ZERO,
            up,
            down,
            client: Application::default(),
            server: Application::default(),
        }
    }
}

plimsoll_tcp::setters!(Flow {
    v6: bool,
    start: Duration,
    client: Application,
    server: Application,
});

/// How an application writes, reads and closes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Application {
    /// Bytes of each write, 1 to 16777216.
    pub write: usize,
    /// Time between two writes.
    #[serde(with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub write_gap: Duration,
    /// Bytes of each read, 1 to 16777216.
    pub read: usize,
    /// Time between two reads.
    #[serde(with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub read_gap: Duration,
    /// Stops once in the middle of its data, for so long.
    #[serde(with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub stall: Duration,
    /// Writes nothing before it has read all.
    #[serde(skip_serializing_if = "is_false")]
    pub answers: bool,
    /// Shuts its sending side when it has written all. Otherwise it closes when it has also read
    /// all.
    #[serde(skip_serializing_if = "is_false")]
    pub half_close: bool,
    /// TCP_NODELAY.
    #[serde(skip_serializing_if = "is_false")]
    pub nodelay: bool,
    /// SO_KEEPALIVE.
    #[serde(skip_serializing_if = "is_false")]
    pub keepalive: bool,
}

impl Default for Application {
    fn default() -> Application {
        Application {
            write: 65_536,
            write_gap: Duration::ZERO,
            read: 65_536,
            read_gap: Duration::ZERO,
            stall: Duration::ZERO,
            answers: false,
            half_close: false,
            nodelay: false,
            keepalive: false,
        }
    }
}

plimsoll_tcp::setters!(Application {
    write: usize,
    write_gap: Duration,
    read: usize,
    read_gap: Duration,
    stall: Duration,
    answers: bool,
    half_close: bool,
    nodelay: bool,
    keepalive: bool,
});

impl Scenario {
    /// A scenario without anything: add hosts, links and flows to it. `limit` is how long the run
    /// may take, `faults_until` when the links lose their faults.
    pub fn new(limit: Duration, faults_until: Duration) -> Scenario {
        Scenario {
            limit,
            faults_until,
            only_listed: false,
            record: None,
            host: Vec::new(),
            router: Vec::new(),
            link: Vec::new(),
            flow: Vec::new(),
            event: Vec::new(),
            fault: Vec::new(),
        }
    }

    /// The same with only the faults that are listed, which are those of a run with `seed`.
    #[must_use]
    pub fn recorded(mut self, seed: u64, outcome: &Outcome) -> Scenario {
        self.fault.clone_from(&outcome.faults);
        self.only_listed = true;
        self.record = Some(Record::new(seed, outcome.trace));
        self
    }

    /// Reads a scenario.
    ///
    /// # Errors
    /// If the text is none, or if it contradicts itself; the error names line and key.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario =
            toml::from_str(text).map_err(|error| ScenarioError::of_toml(&error, text))?;
        scenario.check().map_err(|error| error.located(text))?;
        Ok(scenario)
    }

    /// The scenario as a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
    }

    /// The place of a host among the hosts.
    pub fn host_index(&self, name: &str) -> Option<usize> {
        self.host.iter().position(|host| host.name == name)
    }

    /// The place of a host or router among all of them, hosts first.
    pub fn node_index(&self, name: &str) -> Option<usize> {
        let router = || self.router.iter().position(|router| router.name == name);
        self.host_index(name).or_else(|| router().map(|index| index + self.host.len()))
    }

    /// The address of a node.
    pub fn address(node: usize, v6: bool) -> IpAddr {
        let last = node as u8 + 1;
        match v6 {
            false => Ipv4Addr::new(192, 0, 2, last).into(),
            true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)).into(),
        }
    }
}
