//! `plimsoll run`: a command whose packets meet our stack.

mod api;
pub(crate) mod attach;

use std::any::Any;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll::gate::Unreachable;
use plimsoll_gateway::config::{Config, Job};
use plimsoll_gateway::inside::{self, Inside, Interface};
use plimsoll_gateway::network::Network;
use plimsoll_gateway::policy::Policy;
use plimsoll_gateway::ports::Port;
use plimsoll_gateway::rules::rule::Rule;
use plimsoll_gateway::rules::{self, RefuseNames, Rules, ways_round};
use plimsoll_gateway::run::{Controls, Running};
use plimsoll_gateway::weather::LinkRequest;
use plimsoll_gateway::{init, note, run as gateway};
use plimsoll_sim::link::spec::{Direction, LinkSpec};

use crate::answers::Stacks;
use crate::args::Command;
use crate::control::protocol::{Answer, ConnectionLine, Connections, LinkLine, Request};
use crate::control::server::{self, Respond};
use crate::{UsageError, units};

/// `plimsoll run`.
///
/// With --attach as its first word it serves a network namespace that exists: see
/// 'plimsoll run --attach --help'.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The options of every gateway.
    #[command(flatten)]
    pub gateway: GatewayArgs,
    /// Let the command reach the host's loopback as host.plimsoll
    #[arg(long)]
    pub host_loopback: bool,
    /// With rules, let the command see the sockets that bypass them: D-Bus's, ssh-agent's,
    /// container engines'
    #[arg(long)]
    pub keep_sockets: bool,
    /// End with the command, and kill what it has left running
    #[arg(long)]
    pub no_wait: bool,
    /// Let the command see and signal the processes of this user, this one included, where /proc
    /// cannot be mounted
    #[arg(long)]
    pub share_pid: bool,
    /// It is another command, by its first word
    #[arg(long, hide = true, value_parser = |_: &str| Err::<String, _>(attach::FIRST))]
    pub attach: Option<String>,
    /// The command and its arguments, after --
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The options of a gateway.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayArgs {
    /// MTU of the command's interface in bytes, 1280 to 65520
    #[arg(short = 'm', long, value_name = "BYTES", default_value = "1500",
          value_parser = |text: &str| units::whole(text, 1280_u16, 65_520))]
    pub mtu: u16,
    /// Queues of the command's interface, each with its own loop, 1 to 16; one for two
    /// processors unless given
    #[arg(long, value_name = "NUMBER", value_parser = |text: &str| units::whole(text, 1_usize, 16))]
    pub queues: Option<usize>,
    /// Let the command reach link-local addresses, which includes metadata services
    #[arg(long)]
    pub allow_link_local: bool,
    /// Let the command reach this, and what other such rules allow, and nothing else: a name
    /// (api.example.com:443), all names below one (*.example.com), an address (192.0.2.1:22), a
    /// network (10.0.0.0/8), udp://, icmp:// or dns:// before one of them, public, private or
    /// none, or @FILE with a rule a line; may be given several times
    #[arg(long, value_name = "RULE", value_parser = read_rules)]
    pub net_allow: Vec<RuleList>,
    /// Refuse this, whatever else is allowed; may be given several times
    #[arg(long, value_name = "RULE", value_parser = read_rules)]
    pub net_deny: Vec<RuleList>,
    /// How lookups of other names are answered
    #[arg(long, value_name = "ANSWER", default_value = "nxdomain", value_parser = deny_as())]
    pub deny_as: RefuseNames,
    /// Write the rules that the command has needed to a file, for --net-allow @FILE
    #[arg(long, value_name = "FILE")]
    pub learn: Option<PathBuf>,
    /// Lead a port of the host to one of the command, on 127.0.0.1 unless an address is given; may
    /// be given several times
    #[arg(short = 'p', long = "publish", value_name = "[IP:]HOST:GUEST[/udp]")]
    pub ports: Vec<Port>,
    /// Let the command's packets cross a link in both directions, as in '3g,loss=2%' or
    /// 'rate=20mbit,delay=40ms,queue=1bdp'; SPEC is as for 'plimsoll link'
    #[arg(long, value_name = "SPEC")]
    pub link: Option<LinkSpec>,
    /// Differences of the link from the command to the network
    #[arg(long, value_name = "SPEC")]
    pub link_up: Option<LinkSpec>,
    /// Differences of the link from the network to the command
    #[arg(long, value_name = "SPEC")]
    pub link_down: Option<LinkSpec>,
    /// Write the command's packets to a file, with the stack's reasons as comments (pcapng)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Report at the end, on standard error, what held the command up: for each destination the
    /// causes, the costliest first
    #[arg(long)]
    pub explain: bool,
    /// Say on standard error which destinations are refused, and why
    #[arg(long)]
    pub verbose: bool,
}

/// The rules of one option.
#[derive(Clone, Debug)]
pub(crate) struct RuleList(Vec<Rule>);

fn read_rules(text: &str) -> Result<RuleList, String> {
    rules::read(text).map(RuleList).map_err(|error| format!("{error:#}"))
}

/// `--deny-as`.
fn deny_as() -> impl TypedValueParser<Value = RefuseNames> {
    PossibleValuesParser::new(["nxdomain", "refused"]).map(|answer| match &*answer {
        "refused" => RefuseNames::Refused,
        _ => RefuseNames::NxDomain,
    })
}

impl GatewayArgs {
    fn rules(&self) -> Rules {
        let all = |lists: &[RuleList]| lists.iter().flat_map(|list| list.0.clone()).collect();
        Rules {
            allow: all(&self.net_allow),
            deny: all(&self.net_deny),
            refuse_names: self.deny_as,
            learn: self.learn.clone(),
        }
    }

    /// The request for a gateway.
    fn config(
        &self,
        interface: &str,
        (network, host_loopback): (Network, Result<(), Unreachable>),
        start_inside: &str,
    ) -> anyhow::Result<Config> {
        let link = self.link()?;
        let queues = if link.is_some() { 1 } else { gateway::default_queues() };
        Ok(Config {
            interface: interface.to_owned(),
            mtu: self.mtu,
            queues: self.queues.unwrap_or(queues),
            link,
            policy: Policy {
                network,
                host_loopback,
                allow_link_local: self.allow_link_local,
                verbose: self.verbose,
            },
            rules: self.rules(),
            ports: self.ports.clone(),
            pcap: self.pcap.clone(),
            explain: self.explain,
            control: server::folders(),
            start_inside: vec![start_inside.to_owned()],
        })
    }

    /// The links that the command's packets cross, if there are some.
    fn link(&self) -> anyhow::Result<Option<LinkRequest>> {
        if [&self.link, &self.link_up, &self.link_down].into_iter().all(Option::is_none) {
            return Ok(None);
        }
        if self.queues.is_some_and(|queues| queues > 1) {
            let error = "a link has one queue; leave --queues out with --link".to_owned();
            return Err(UsageError(error).into());
        }
        let or_none = |spec: &Option<LinkSpec>| spec.clone().unwrap_or_default();
        let differences = [or_none(&self.link_up), or_none(&self.link_down)];
        let request = LinkRequest::new(&or_none(&self.link), &differences, self.mtu);
        let request = request.map_err(|(direction, error)| {
            let (option, own) = match direction {
                Direction::Up => ("--link-up", &self.link_up),
                Direction::Down => ("--link-down", &self.link_down),
            };
            UsageError(format!("{} {error}", if own.is_some() { option } else { "--link" }))
        })?;
        Ok(Some(request))
    }
}

/// The interface that the program started again makes.
#[derive(Clone, Debug, Args)]
pub(crate) struct InterfaceArgs {
    #[arg(long)]
    mtu: u16,
    #[arg(long)]
    queues: usize,
    #[arg(long)]
    no_offloads: bool,
}

impl InterfaceArgs {
    fn interface(&self, network: Network) -> Interface {
        let &InterfaceArgs { mtu, queues, no_offloads } = self;
        Interface { network, mtu, queues, no_offloads }
    }
}

/// The program started again, in namespaces of its own.
#[derive(Clone, Debug, Args)]
pub(crate) struct InsideArgs {
    #[arg(long)]
    network: Network,
    #[command(flatten)]
    interface: InterfaceArgs,
    #[arg(long)]
    files: PathBuf,
    #[arg(long)]
    cover: Vec<PathBuf>,
    #[command(flatten)]
    init: InitArgs,
}

/// The same as process 1.
#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    #[arg(long)]
    no_wait: bool,
    #[arg(long)]
    share_pid: bool,
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The same right before it becomes the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct BeginArgs {
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Runs one of these commands, which end with a status of their own. `None` if it is another.
pub(crate) fn status(command: &Command) -> Option<ExitCode> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let result = match command {
        Command::Run(args) => run(args),
        Command::RunAttach(args) => return Some(attach::status(args)),
        Command::AttachInside(args) => args.run().map(|()| 0),
        Command::RunInside(args) => {
            let mut start = words(&["run-init"]);
            start.extend(args.init.no_wait.then(|| "--no-wait".to_owned()));
            start.extend(args.init.share_pid.then(|| "--share-pid".to_owned()));
            start.push("--".to_owned());
            inside::run(&Inside {
                interface: args.interface.interface(args.network),
                files: args.files.clone(),
                covered: args.cover.clone(),
                share_pid: args.init.share_pid,
                init: start,
                command: args.init.command.clone(),
            })
            .map(|()| 0)
        }
        Command::RunInit(args) => {
            let start = words(&["run-begin", "--"]);
            init::run(&start, &args.command, (!args.no_wait, args.share_pid)).map(|()| 0)
        }
        Command::RunBegin(args) => {
            let (status, error) = init::start_command(&args.command);
            say(&error);
            Ok(status)
        }
        _ => return None,
    };
    Some(ExitCode::from(or_failed(result, gateway::FAILED)))
}

/// The status, or that of a failure, which is reported.
fn or_failed(result: anyhow::Result<u8>, failed: u8) -> u8 {
    result.unwrap_or_else(|error| {
        say(&error);
        if error.is::<UsageError>() { 2 } else { failed }
    })
}

fn say(error: &anyhow::Error) {
    note(&format!("{error:#}"));
}

fn run(args: &RunArgs) -> anyhow::Result<u8> {
    anyhow::ensure!(
        !args.command.is_empty(),
        "there is no command; give it after --, as in 'plimsoll run -- curl http://192.0.2.1/'"
    );
    let network = Network::choose()?;
    if !network.is_first_choice() {
        note(&format!(
            "the host has a route into 10.0.2.0/24, so the command's network is {network}"
        ));
    }
    let loopback = if args.host_loopback { Ok(()) } else { Err(Unreachable::Port) };
    let config =
        args.gateway.config(plimsoll_gateway::INTERFACE, (network, loopback), "run-inside")?;
    let hides = config.rules.is_any() && !args.keep_sockets;
    let job = Job {
        wait_for_all: !args.no_wait,
        share_pid: args.share_pid,
        hidden: if hides { ways_round::find() } else { Vec::new() },
        command: args.command.clone(),
    };
    serving(|| gateway::run(&config, &job, |running| Ok(answering(running))))
}

/// Runs a gateway. A panic of it has the status of any other failure.
fn serving<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let panicked = |_| Err(anyhow::anyhow!("the gateway has panicked"));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

/// Opens the control socket. It is closed with the result.
fn answering(running: &Running<'_>) -> Box<dyn Any> {
    let stacks = Stacks::new(vec![("run".to_owned(), running.stack.clone())]);
    match server::open(Arc::new(Answers { stacks, controls: running.controls.clone() })) {
        Ok(socket) => Box::new(socket),
        Err(error) => {
            let error = anyhow::Error::new(error);
            say(&error.context(
                "'plimsoll top', 'ss', 'nstat', 'sysctl', 'port' and 'weather' are not answered",
            ));
            Box::new(())
        }
    }
}

/// Answers the requests of the control socket.
struct Answers {
    stacks: Stacks,
    controls: Controls,
}

impl Answers {
    /// Changes the links if there is something to change.
    fn weather(&self, specs: &[String; 3]) -> Result<Vec<LinkLine>, String> {
        let without = "there is no link to change; give --link to 'plimsoll run', which may be \
                       --link perfect";
        let weather = self.controls.weather.as_ref().ok_or(without)?;
        let [both, up, down] = specs.each_ref().map(|spec| spec.parse::<LinkSpec>());
        let (both, differences) = (both?, [up?, down?]);
        if [&both].into_iter().chain(&differences).any(|spec| !spec.is_empty()) {
            weather.change(&both, &differences)?;
        }
        let [up, down] = weather.links();
        Ok(vec![LinkLine::new("up", &up), LinkLine::new("down", &down)])
    }
}

impl Respond for Answers {
    fn respond(&self, request: Request) -> Answer {
        let Controls { ports, connections, .. } = &self.controls;
        let changed = match request {
            Request::Ports => ports.list(),
            Request::PortAdd { port } => {
                port.parse().and_then(|port| ports.add(port)).and_then(|_| ports.list())
            }
            Request::PortRemove { port } => {
                port.parse().and_then(|port| ports.remove(port)).and_then(|()| ports.list())
            }
            Request::Connections => {
                let answer = connections.list().map(|carried| Connections {
                    running_ms: self.stacks.running_ms(),
                    flows: carried.flows,
                    lines: carried.connections.iter().map(ConnectionLine::from).collect(),
                });
                return answer.map_or_else(Answer::Error, Answer::Connections);
            }
            Request::Weather { specs } => {
                return self.weather(&specs).map_or_else(Answer::Error, Answer::Weather);
            }
            request => return self.stacks.respond(request),
        };
        match changed {
            Ok(ports) => Answer::Ports(ports.iter().map(|(_, port)| port.to_string()).collect()),
            Err(error) => Answer::Error(error),
        }
    }
}
