//! The command line: every command, flag and default, once.
//!
//! Man pages and shell completions are made from the same definitions.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_lab::event_loop::WhenIdle;
use plimsoll_lab::workload::RequestResponse;
use plimsoll_sim::link::spec::LinkSpec;

use crate::http::url::Url;
use crate::service::Service;
use crate::units::{self, Cidr, FaultSpec};

/// A TCP/IP stack in user space: measure it, serve with it, fetch through it.
///
/// Without --device a workload runs both ends in this process, over a link in memory; that needs no
/// privilege. With --device tun:NAME it talks through a TUN device; that needs root, or a device
/// that root created for this user.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Move bulk data one way and print the throughput.
    Stream(StreamArgs),
    /// Request and response over open connections; print transactions and latency.
    Rr(RrArgs),
    /// Connect, request, response, close: a connection for every transaction.
    Crr(RrArgs),
    /// Open many connections at once and print the memory that each of them holds.
    Idle(IdleArgs),
    /// Run a command whose packets meet this stack, without privilege.
    Run(crate::run::RunArgs),
    /// Serve a network namespace that exists, with the options of slirp4netns(1).
    #[command(hide = true)]
    RunAttach(crate::run::attach::AttachArgs),
    /// The inside of `run --attach`.
    #[command(hide = true)]
    AttachInside(crate::run::attach::AttachInsideArgs),
    /// The inside of `run`.
    #[command(hide = true)]
    RunInside(crate::run::InsideArgs),
    /// Process 1 of `run`.
    #[command(hide = true)]
    RunInit(crate::run::InitArgs),
    /// The beginning of the command of `run`.
    #[command(hide = true)]
    RunBegin(crate::run::BeginArgs),
    /// Offer services on a TUN device until SIGINT or SIGTERM.
    Serve(ServeArgs),
    /// Fetch a URL over HTTP.
    Get(GetArgs),
    /// Print the counters of a running plimsoll.
    Nstat(NstatArgs),
    /// Print or change the settings of a running plimsoll.
    Sysctl(SysctlArgs),
    /// Print the sockets of a running plimsoll.
    Ss(SsArgs),
    /// Show the connections of a running plimsoll live: rates, RTT, and what holds each up.
    Top(TopArgs),
    /// Print or change the queueing disciplines of a running plimsoll.
    Qdisc(QdiscArgs),
    /// Print, add or remove the ports that a running `plimsoll run` publishes.
    Port(PortArgs),
    /// Print or change the link of a running `plimsoll run --link`.
    Weather(WeatherArgs),
    /// Run packetdrill scripts on this stack and a virtual clock, and report which pass.
    Drill(crate::drill::DrillArgs),
    /// Reproduce published experiments on this machine, before and after.
    Lab(crate::lab::LabArgs),
    /// Emulate a path of a given rate, delay and loss between two TUN devices, in real time.
    Link(crate::link::LinkCommandArgs),
    /// Read a capture, and report what held its flows up and what to do about it.
    Explain(crate::explain::ExplainArgs),
    /// Run this stack in simulated networks, and check its invariants.
    Sim(crate::sim::SimArgs),
    /// Print a completion script for a shell.
    #[cfg(feature = "manual")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory, or the main page to standard output.
    #[cfg(feature = "manual")]
    Man {
        /// The directory; it is created if it does not exist.
        dir: Option<PathBuf>,
    },
}

/// Whether a device may use offloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Offload {
    /// The offloads that the device offers.
    #[default]
    Auto,
    /// None: one packet per segment, checksums in software.
    Off,
}

/// A device by kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceName(pub String);

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        let name = text
            .strip_prefix("tun:")
            .ok_or_else(|| format!("unknown device '{text}'; try tun:plimsoll0"))?;
        // Linux keeps 15 bytes of a name.
        let usable = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        if name.is_empty() || name.len() > 15 || !name.bytes().all(usable) {
            return Err(format!("'{name}' is not an interface name of 1 to 15 characters"));
        }
        Ok(DeviceName(name.to_owned()))
    }
}

/// The behaviour of an idle loop or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusyPoll {
    /// An event loop polls while that pays. A stack with a thread sleeps.
    Auto,
    /// It polls for this many microseconds before it sleeps.
    Micros(u32),
}

impl std::str::FromStr for BusyPoll {
    type Err = String;

    fn from_str(text: &str) -> Result<BusyPoll, String> {
        if text == "auto" {
            return Ok(BusyPoll::Auto);
        }
        let micros = units::whole(text, 0_u32, 1_000_000);
        micros.map(BusyPoll::Micros).map_err(|error| format!("{error}, nor 'auto'"))
    }
}

impl BusyPoll {
    /// The idle behaviour of an event loop.
    pub(crate) fn of_loop(self) -> WhenIdle {
        match self {
            BusyPoll::Auto => WhenIdle::Adapt,
            BusyPoll::Micros(0) => WhenIdle::Sleep,
            BusyPoll::Micros(micros) => WhenIdle::Poll(Duration::from_micros(micros.into())),
        }
    }

    /// For how long a thread of the stack polls before it sleeps.
    pub(crate) fn of_thread(self) -> Duration {
        match self {
            BusyPoll::Auto => Duration::ZERO,
            BusyPoll::Micros(micros) => Duration::from_micros(micros.into()),
        }
    }
}

/// Flags of every command that runs a stack.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stack")]
pub(crate) struct StackArgs {
    /// Device to run on, as tun:NAME
    #[arg(long, value_name = "tun:NAME")]
    pub device: Option<DeviceName>,
    /// Address of the stack with its prefix length, IPv4 and IPv6
    #[arg(long, value_name = "CIDR[,CIDR6]", value_delimiter = ',')]
    pub address: Vec<Cidr>,
    /// MTU in bytes [default: the device's; 1500 in memory]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 576_u16, u16::MAX))]
    pub mtu: Option<u16>,
    /// Queues of the TUN device, and threads of the stack: one for each
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_u8, 8))]
    pub queues: u8,
    /// Pin each event loop to its own CPU; with several queues, each loop takes the packets that
    /// its CPU sends
    #[arg(long)]
    pub pin: bool,
    /// Segmentation and checksum offload
    #[arg(long, value_enum, default_value_t)]
    pub offload: Offload,
    /// Bytes of the longest super-segment that is sent, headers included: over TUN more than 65535
    /// takes Linux 6.3 [default: 65535; 262144 in memory without a rate or a delay]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1500_usize, 1 << 18))]
    pub super_segment: Option<usize>,
    /// Change a setting of the stack; may be given several times
    #[arg(long = "sysctl", value_name = "NAME=VALUE", value_parser = units::assignment)]
    pub sysctls: Vec<(String, String)>,
    /// Write every packet to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Lose, reorder or duplicate packets, as in loss=0.02,reorder=0.02,duplicate=0.01,seed=1
    #[arg(long, value_name = "SPEC")]
    pub fault: Option<FaultSpec>,
    /// Microseconds to poll the device before sleeping, which costs CPU and saves latency; with
    /// auto an event loop polls while that finds packets, and yields to other threads meanwhile; 0
    /// sleeps at once
    #[arg(long, value_name = "US|auto", default_value = "auto", allow_hyphen_values = true)]
    pub busy_poll: BusyPoll,
}

/// Flags of the link in memory.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Link in memory")]
pub(crate) struct LinkArgs {
    /// Rate of the link in each direction, as in 10gbit [default: no limit]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true,
          value_parser = units::link_rate)]
    pub link_rate: Option<u64>,
    /// One-way delay; a bare number is milliseconds
    #[arg(long, value_name = "TIME", allow_hyphen_values = true,
          value_parser = units::link_delay)]
    pub delay: Option<Duration>,
    /// Share of packets lost, as in 0.01 or 1%
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true,
          value_parser = units::link_loss, default_value = "0")]
    pub loss: f64,
    /// Share of packets that later ones overtake
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true,
          value_parser = units::fraction, default_value = "0")]
    pub reorder: f64,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true,
          value_parser = units::fraction, default_value = "0")]
    pub duplicate: f64,
    /// Packets that the link queues in each direction
    #[arg(long, value_name = "PACKETS", allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_usize, 1 << 24))]
    pub queue: Option<usize>,
    /// Seed of the link's random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 0, u64::MAX))]
    pub link_seed: u64,
}

/// How long a workload runs, and where it prints.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct RunArgs {
    /// Seconds to run [default: 10]
    #[arg(short = 'l', long = "length", value_name = "SECONDS", allow_hyphen_values = true,
          value_parser = units::run_time)]
    pub length: Option<Duration>,
    /// Flows at once
    #[arg(short = 'P', long, value_name = "FLOWS", default_value_t = 1,
          allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_u32, 16_384))]
    pub flows: u32,
    /// Send buffer of a socket in bytes [default: grows by itself]
    #[arg(short = 'w', long, value_name = "SNDBUF", allow_hyphen_values = true,
          value_parser = units::buffer_size)]
    pub sndbuf: Option<usize>,
    /// Set TCP_NODELAY
    #[arg(short = 'D', long)]
    pub nodelay: bool,
    /// Talk to this address instead of a second stack in this process; needs --device
    #[arg(long, value_name = "ADDR:PORT", requires = "device", requires = "address",
          value_parser = units::address_and_port)]
    pub to: Option<SocketAddr>,
    /// Give every socket a thread with blocking calls, instead of one event loop per stack
    #[arg(long)]
    pub threads: bool,
    /// Also write the figures as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `plimsoll stream`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamArgs {
    /// Bytes of one write
    #[arg(short = 'm', long, value_name = "SIZE", default_value = "16384",
          allow_hyphen_values = true, value_parser = units::buffer_size)]
    pub message: usize,
    /// Stop after this many bytes of each flow, as in 1GiB, instead of after a time
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = units::size,
          allow_hyphen_values = true, conflicts_with = "length")]
    pub bytes: Option<u64>,
    /// Collect small writes in a buffer of this size, which goes to the stack when it is full or
    /// the loop ends a turn
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true,
          value_parser = units::buffer_size)]
    pub write_buffer: Option<usize>,
    /// Write and read by reference instead of copying: the same block is sent repeatedly. Writes of
    /// less than half a segment are still copied, and so are reads of threads (--threads)
    #[arg(long, conflicts_with = "write_buffer")]
    pub shared: bool,
    /// Receive instead of send; with --to the peer must be a chargen service
    #[arg(short = 'R', long)]
    pub reverse: bool,
    /// The rest of the workload.
    #[command(flatten)]
    pub run: RunArgs,
    /// The link.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// `plimsoll rr` and `plimsoll crr`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RrArgs {
    /// Bytes of a request and of a response
    #[arg(short = 'r', long, value_name = "REQ,RESP", default_value = "1,1",
          allow_hyphen_values = true, value_parser = units::request_response)]
    pub request: RequestResponse,
    /// Stop after this many transactions of each flow instead of after a time
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "length",
          allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1, u64::MAX - 1))]
    pub transactions: Option<u64>,
    /// The rest of the workload.
    #[command(flatten)]
    pub run: RunArgs,
    /// The link.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// `plimsoll idle`.
#[derive(Clone, Debug, Args)]
pub(crate) struct IdleArgs {
    /// Connections to open
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10_000,
          allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_u32, 4_000_000))]
    pub connections: u32,
    /// Also write the figures as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Change a setting of the stack; may be given several times
    #[arg(long = "sysctl", value_name = "NAME=VALUE", value_parser = units::assignment)]
    pub sysctls: Vec<(String, String)>,
}

/// `plimsoll serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Services: discard:PORT[:shared], chargen:PORT[:WRITE_SIZE], echo:PORT, rr:PORT:REQ[:RESP],
    /// http:PORT:DIR
    #[arg(value_name = "SERVICE")]
    pub services: Vec<Service>,
    /// Connections that may wait to be accepted, per service
    #[arg(long, value_name = "COUNT", default_value_t = 4096, allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_u32, 65_535))]
    pub backlog: u32,
    /// Connections of all http services together; further ones get status 503
    #[arg(long, value_name = "COUNT", default_value_t = 8192, allow_hyphen_values = true,
          value_parser = |text: &str| units::whole(text, 1_usize, 1_000_000))]
    pub http_connections: usize,
    /// Send buffer of a socket in bytes [default: grows by itself]
    #[arg(short = 'w', long, value_name = "SNDBUF", allow_hyphen_values = true,
          value_parser = units::buffer_size)]
    pub sndbuf: Option<usize>,
    /// Write figures as JSON at the end; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// `plimsoll get`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GetArgs {
    /// The URL to fetch: http://ADDRESS[:PORT]/PATH, an IPv6 address in brackets
    pub url: Url,
    /// Where to write it [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Give up when connecting or the next byte takes longer
    #[arg(long, value_name = "TIME", default_value = "60s", allow_hyphen_values = true,
          value_parser = units::run_time)]
    pub timeout: Duration,
    /// Also write the figures as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The running plimsoll to ask.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TargetArgs {
    /// Process to ask [default: the only one that runs]
    #[arg(long, allow_hyphen_values = true, value_parser = units::pid)]
    pub pid: Option<u32>,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll nstat`.
#[derive(Clone, Debug, Args)]
pub(crate) struct NstatArgs {
    /// Print only counters whose name contains one of these
    pub names: Vec<String>,
    /// Print counters that are zero, too
    #[arg(short = 'z', long)]
    pub zeros: bool,
    /// Describe each counter, without asking a running process
    #[arg(long, conflicts_with_all = ["zeros", "json", "pid"])]
    pub explain: bool,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll sysctl`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SysctlArgs {
    /// Settings to print, or to change if a value is given [default: print all]
    #[arg(value_name = "NAME[=VALUE]")]
    pub settings: Vec<String>,
    /// Describe the settings with these words in their names, with range and default, without
    /// asking a running process
    #[arg(long, conflicts_with_all = ["json", "pid"])]
    pub explain: bool,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll qdisc`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QdiscArgs {
    /// Print only this interface, or give it this discipline, as in `tun0 fq limit 1000` or
    /// `set tun0 pfifo` [default: print all]
    #[arg(value_name = "[show|set] DEV [KIND ...]")]
    pub words: Vec<String>,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll port`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PortArgs {
    /// Publish this port, as after -p of `plimsoll run`
    #[arg(long, value_name = "[IP:]HOST:GUEST[/udp]", conflicts_with = "remove")]
    pub add: Option<plimsoll_gateway::ports::Port>,
    /// Publish this port no more; its connections stay
    #[arg(long, value_name = "[IP:]HOST:GUEST[/udp]")]
    pub remove: Option<plimsoll_gateway::ports::Port>,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll weather`.
///
/// SPEC is as for `plimsoll run --link`, without a trace and a seed. Names that it does not give
/// stay as they are. A preset first, which may be `perfect`, leaves nothing of the link before.
#[derive(Clone, Debug, Args)]
pub(crate) struct WeatherArgs {
    /// The change of both directions [default: print the link and its counts]
    #[arg(value_name = "SPEC")]
    pub both: Option<LinkSpec>,
    /// The change from the command to the network
    #[arg(long, value_name = "SPEC")]
    pub up: Option<LinkSpec>,
    /// The change from the network to the command
    #[arg(long, value_name = "SPEC")]
    pub down: Option<LinkSpec>,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll ss`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SsArgs {
    /// Print only listeners, and UDP sockets without a peer
    #[arg(short = 'l', long)]
    pub listening: bool,
    /// Print all sockets
    #[arg(short = 'a', long, conflicts_with = "listening")]
    pub all: bool,
    /// Print the details of each connection (TCP_INFO)
    #[arg(short = 'i', long)]
    pub info: bool,
    /// Print the last decisions of each connection that keeps a log of them (see the setting
    /// plimsoll.decision_log)
    #[arg(short = 'w', long)]
    pub why: bool,
    /// The process to ask.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `plimsoll top`.
///
/// Keys: q quits, p pauses, s sorts by the next of rate, RTT, retransmissions, what holds up, and
/// destination; arrows, PageUp, PageDown, Home and End scroll. Up is away from the command, down is
/// towards it. '-' is a figure that is not known.
#[derive(Clone, Copy, Debug, Args)]
#[cfg_attr(
    not(feature = "top"),
    allow(dead_code, reason = "the command only says what is missing")
)]
pub(crate) struct TopArgs {
    /// Time between two looks, 100ms to 1h; a bare number is seconds
    #[arg(short = 'd', long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true,
          value_parser = units::interval)]
    pub interval: Duration,
    /// Process to ask [default: the only one that runs]
    #[arg(long, allow_hyphen_values = true, value_parser = units::pid)]
    pub pid: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn error(line: &str) -> String {
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(_) => panic!("{line} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn letters_of_netperf() {
        let line = "plimsoll stream -m 128 -P 4 -l 3 -w 64K -D";
        let Command::Stream(args) = Cli::parse_from(line.split(' ')).command else { panic!() };
        assert_eq!((args.message, args.run.flows, args.run.sndbuf), (128, 4, Some(65536)));
        assert_eq!(args.run.length, Some(Duration::from_secs(3)));
        assert!(args.run.nodelay);
        let line = "plimsoll rr -r 4096,4096 -P 20";
        let Command::Rr(args) = Cli::parse_from(line.split(' ')).command else { panic!() };
        assert_eq!(args.request, RequestResponse { request: 4096, response: 4096 });
    }

    #[test]
    fn polls_before_a_sleep() {
        let of = |words: &str| {
            let line = format!("plimsoll serve {words}");
            let Command::Serve(args) = Cli::parse_from(line.split_whitespace()).command else {
                panic!()
            };
            (args.stack.busy_poll.of_loop(), args.stack.busy_poll.of_thread().as_micros())
        };
        assert_eq!(of(""), (WhenIdle::Adapt, 0));
        assert_eq!(of("--busy-poll 0"), (WhenIdle::Sleep, 0));
        let long = Duration::from_micros(50);
        assert_eq!(of("--busy-poll 50"), (WhenIdle::Poll(long), 50));
    }

    #[test]
    fn errors_say_what_to_write() {
        for (line, part) in [
            ("plimsoll serve --device eth0 echo:7", "try tun:plimsoll0"),
            ("plimsoll serve --device tun:t --address 192.0.2.2 echo:7", "192.0.2.2/24"),
            ("plimsoll serve ftp:21", "known services"),
            ("plimsoll stream --loss 3", "between 0 and 1"),
            ("plimsoll stream --to 192.0.2.1:9", "--device"),
            ("plimsoll stream -l 3 -n 1G", "cannot be used with"),
            ("plimsoll get ftp://x/", "http://"),
            ("plimsoll stream --mtu 20", "not a whole number from 576 to 65535"),
            ("plimsoll serve --queues 0", "not a whole number from 1 to 8"),
            ("plimsoll serve --busy-poll -1", "not a whole number from 0 to 1000000, nor 'auto'"),
            ("plimsoll stream -l -1", "must not be negative"),
            ("plimsoll stream --delay -5", "must not be negative"),
            ("plimsoll stream --delay 1h", "at most 20 s"),
            ("plimsoll stream --link-rate 10 -l 2", "10kbit or more"),
            ("plimsoll stream --loss 1 -l 2", "nothing would arrive"),
            ("plimsoll rr -n -3", "not a whole number"),
            ("plimsoll nstat --pid abc", "not the number of a process"),
            ("plimsoll top --interval 1ms", "from 100 ms to 1 h"),
            ("plimsoll stream --to 192.0.2.1", "has no port; add one, as in 192.0.2.1:5001"),
            ("plimsoll serve --address 127.0.0.1/8", "loopback"),
        ] {
            let message = error(line);
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
