//! `plimsoll run --attach`: a network namespace that exists, with the options of slirp4netns(1).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueEnum};
use plimsoll::gate::Unreachable;
use plimsoll_gateway::attach::{self, Attach};
use plimsoll_gateway::config::Target;
use plimsoll_gateway::network::Network;
use plimsoll_gateway::note;

use super::api::{self, Api};
use super::{GatewayArgs, InterfaceArgs, answering, or_failed, serving};
use crate::units;

/// The error of `--attach` in another place.
pub(super) const FIRST: &str = "--attach comes first, right after 'run'";

/// The program's words, in which `run --attach` is one command.
pub(crate) fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1..3).is_some_and(|first| first == ["run", "--attach"]) {
        words.splice(1..3, ["run-attach".into()]);
    }
    words
}

/// The form in which the namespace is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NetnsType {
    /// The number of a process in it.
    Pid,
    /// Its file.
    Path,
}

/// Serve a network namespace that exists, with the options of slirp4netns(1).
///
/// It takes the place of slirp4netns for rootlesskit, podman and the like, as a program with the
/// line: exec plimsoll run --attach "$@". "The command" means all processes of the
/// namespace. Unlike slirp4netns it leaves the host's loopback closed.
#[derive(Clone, Debug, Args)]
#[command(
    display_name = "plimsoll",
    override_usage = "plimsoll run --attach [OPTIONS] PID|PATH [TAPNAME]",
    disable_version_flag = true
)]
pub(crate) struct AttachArgs {
    /// Give the interface its addresses and routes, and bring it up with the loopback interface
    #[arg(short = 'c', long)]
    configure: bool,
    /// End when this descriptor has an event, as when the other side of a pipe was closed
    #[arg(short = 'e', long, value_name = "FD", value_parser = descriptor)]
    exit_fd: Option<i32>,
    /// Write "1" to this descriptor when the interface is there and the gateway serves
    #[arg(short = 'r', long, value_name = "FD", value_parser = descriptor)]
    ready_fd: Option<i32>,
    /// With --configure, IPv6 addresses and routes as well, of fd00::/64
    #[arg(short = '6', long)]
    enable_ipv6: bool,
    /// Socket at which ports are added and removed
    #[arg(short = 'a', long, value_name = "PATH")]
    api_socket: Option<PathBuf>,
    /// IPv4 network of 1 to 25 bits: the gateway is its address 2, the name server 3, the command
    /// 100
    #[arg(long, value_name = "CIDR", default_value = "10.0.2.0/24",
          value_parser = Network::attached)]
    cidr: Network,
    /// Keep the host's loopback closed, as it is unless --host-loopback is given
    #[arg(long, conflicts_with = "host_loopback")]
    disable_host_loopback: bool,
    /// Let the command reach the host's loopback at the gateway's address
    #[arg(long)]
    host_loopback: bool,
    /// Whether the namespace is given by a process in it or by its file
    #[arg(long, value_name = "TYPE", default_value = "pid")]
    netns_type: NetnsType,
    /// File of the user namespace to enter first [default: that of PID]
    #[arg(long, value_name = "PATH")]
    userns_path: Option<PathBuf>,
    /// Has no effect: the gateway always limits its files and rights, where the kernel offers that
    #[arg(long)]
    enable_sandbox: bool,
    /// Has no effect: the gateway always limits its system calls
    #[arg(long)]
    enable_seccomp: bool,
    /// Have no name server
    #[arg(long)]
    disable_dns: bool,
    /// Refused
    #[arg(long, hide = true, value_parser = |_: &str| Err::<String, _>(
        "the interface is a TUN device, which has no such address; leave the option out"))]
    macaddress: Option<String>,
    /// Refused
    #[arg(long, alias = "outbound-addr6", hide = true, value_parser = |_: &str| Err::<String, _>(
        "the host's routing chooses the address of each connection; leave the option out"))]
    outbound_addr: Option<String>,
    /// Only for network namespaces
    #[arg(long, hide = true, value_parser = target_type)]
    target_type: Option<String>,
    /// The other options.
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// A process in the namespace, or the namespace's file
    #[arg(value_name = "PID|PATH")]
    namespace: PathBuf,
    /// The name of the interface; one that exists is replaced if it is a TUN or TAP device that no
    /// program uses
    #[arg(value_name = "TAPNAME", default_value = "tap0")]
    interface: String,
}

fn descriptor(text: &str) -> Result<i32, String> {
    units::whole(text, 0, i32::MAX)
}

fn target_type(text: &str) -> Result<String, &'static str> {
    match text {
        "netns" => Ok(text.to_owned()),
        _ => Err("only netns is supported"),
    }
}

/// The program started again, in the namespace.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttachInsideArgs {
    #[arg(long, value_parser = Network::attached)]
    network: Network,
    #[command(flatten)]
    interface: InterfaceArgs,
    #[arg(long)]
    name: String,
    #[arg(long)]
    user: Option<PathBuf>,
    #[arg(long)]
    configure: bool,
    #[arg(long)]
    ipv6: bool,
    #[arg(last = true, value_name = "PATH")]
    namespace: PathBuf,
}

impl AttachInsideArgs {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        attach::inside(&Attach {
            name: self.name.clone(),
            interface: self.interface.interface(self.network),
            user: self.user.clone(),
            network: self.namespace.clone(),
            configure: self.configure,
            ipv6: self.ipv6,
        })
    }
}

/// Serves, and returns 1 after a failure as slirp4netns does.
pub(super) fn status(args: &AttachArgs) -> ExitCode {
    ExitCode::from(or_failed(args.serve().map(|served| u8::from(!served)), 1))
}

impl AttachArgs {
    fn serve(&self) -> anyhow::Result<bool> {
        // First of all: no descriptor of this program's own has one of these numbers.
        let [ready, exit] = attach::inherited([self.ready_fd, self.exit_fd])?;
        if self.enable_ipv6 && !self.configure {
            note(&format!(
                "--enable-ipv6 needs --configure, as there are no router advertisements; or add \
                 {}/64 and a default route through {} to {}",
                self.cidr.guest_v6(),
                self.cidr.gateway_v6(),
                self.interface
            ));
        }
        let (user, network) = self.files()?;
        let target = Target {
            user,
            network,
            configure: self.configure,
            ipv6: self.enable_ipv6,
            ready,
            exit,
        };
        let (cidr, disable_dns) = (self.cidr, self.disable_dns);
        let network = if disable_dns { cidr.without_name_server() } else { cidr };
        let loopback = if self.host_loopback { Ok(()) } else { Err(Unreachable::Network) };
        let start = "attach-inside";
        let config = self.gateway.config(&self.interface, (network, loopback), start)?;
        // The gateway is not allowed to open it later.
        let socket = self.api_socket.as_deref().map(api::listen).transpose()?;
        serving(|| {
            attach::attach(&config, target, |running| {
                let api = socket.map(|socket| Api::open(socket, running, cidr)).transpose()?;
                Ok(Box::new((answering(running), api)))
            })
        })
    }

    /// The files of the user namespace and of the network namespace.
    fn files(&self) -> anyhow::Result<(Option<PathBuf>, PathBuf)> {
        if self.netns_type == NetnsType::Path {
            return Ok((self.userns_path.clone(), self.namespace.clone()));
        }
        let pid = units::pid(&self.namespace.to_string_lossy()).map_err(|error| {
            crate::UsageError(format!("{error}; a path needs --netns-type=path"))
        })?;
        let user = self.userns_path.clone();
        let user = user.unwrap_or_else(|| format!("/proc/{pid}/ns/user").into());
        Ok((Some(user), format!("/proc/{pid}/ns/net").into()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<AttachArgs, String> {
        let line = words(line.split_whitespace().map(OsString::from));
        match Cli::try_parse_from(line).map(|cli| cli.command) {
            Ok(Command::RunAttach(args)) => Ok(args),
            Ok(_) => panic!("it is another command"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_of_slirp4netns() {
        let args = parsed("plimsoll run --attach -c -e 3 -r4 -m 65520 -6 -a /x 77 tap1").unwrap();
        assert_eq!((args.exit_fd, args.ready_fd, args.gateway.mtu), (Some(3), Some(4), 65520));
        assert!(args.configure && args.enable_ipv6 && args.interface == "tap1");
        let user = PathBuf::from("/proc/77/ns/user");
        assert_eq!(args.files().unwrap(), (Some(user), "/proc/77/ns/net".into()));
        let args = parsed("plimsoll run --attach --netns-type=path /n --enable-seccomp").unwrap();
        assert_eq!(args.files().unwrap(), (None, "/n".into()));
        assert_eq!(args.interface, "tap0");
        let error = parsed("plimsoll run --attach /n").unwrap().files().unwrap_err();
        assert!(error.to_string().contains("--netns-type=path"), "{error}");
    }

    #[test]
    fn help_and_version_are_found_by_callers() {
        let help = parsed("plimsoll run --attach --help").unwrap_err();
        for option in [
            "--netns-type",
            "--enable-sandbox",
            "--enable-seccomp",
            "--enable-ipv6",
            "--api-socket",
            "--cidr",
            "--disable-host-loopback",
            "--disable-dns",
            "--net-allow",
        ] {
            assert!(help.contains(option), "{option}");
        }
        assert!(!help.contains("--outbound-addr") && !help.contains("--macaddress"), "{help}");
        let version = parsed("plimsoll run --attach -v").unwrap_err();
        assert_eq!(version, format!("plimsoll {}\n", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (words, part) in [
            ("--attach", "PID|PATH"),
            ("--attach -m 1000 7", "1280 to 65520"),
            ("--attach --cidr 10.0.2.1/24 7", "10.0.2.0/24, not like"),
            ("--attach --macaddress 02:00:00:00:00:01 7", "TUN device"),
            ("--attach --outbound-addr 192.0.2.1 7", "routing chooses"),
            ("--attach --outbound-addr6 eth0 7", "routing chooses"),
            ("--attach --target-type=bess 7", "only netns"),
            ("--attach --host-loopback --disable-host-loopback 7", "cannot be used with"),
            ("--attach --netns-type=fd 7", "path"),
            ("--attach -e x 7", "whole number"),
            ("--attach 7 tap0 more", "unexpected argument"),
            ("-m 1500 --attach 7", "comes first"),
        ] {
            let error = parsed(&format!("plimsoll run {words}")).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
