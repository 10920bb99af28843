//! `plimsoll run`: a command whose packets meet our stack.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_gateway::inside::{self, Inside};
use plimsoll_gateway::{init, run as gateway};

use crate::args::Command;
use crate::units;

/// `plimsoll run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// MTU of the command's interface in bytes, 1280 to 65520
    #[arg(short = 'm', long, value_name = "BYTES", default_value = "1500",
          value_parser = |text: &str| units::whole(text, 1280_u16, 65_520))]
    pub mtu: u16,
    /// Let the command reach the host's loopback as host.plimsoll
    #[arg(long)]
    pub host_loopback: bool,
    /// Let the command reach link-local addresses, which includes metadata services
    #[arg(long)]
    pub allow_link_local: bool,
    /// Lead a port of the host to one of the command (TCP), on 127.0.0.1 unless an address is
    /// given; may be given several times
    #[arg(short = 'p', long = "publish", value_name = "[IP:]HOST:GUEST", value_parser = port)]
    pub ports: Vec<gateway::Port>,
    /// End with the command, and kill what it has left running
    #[arg(long)]
    pub no_wait: bool,
    /// Write the command's packets to a file, with the stack's reasons as comments (pcapng)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Say on standard error which destinations are refused, and why
    #[arg(long)]
    pub verbose: bool,
    /// The command and its arguments, after --
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The program started again, in namespaces of its own.
#[derive(Clone, Debug, Args)]
pub(crate) struct InsideArgs {
    #[arg(long)]
    mtu: u16,
    #[arg(long)]
    files: PathBuf,
    #[arg(long)]
    no_wait: bool,
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The same as process 1.
#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    #[arg(long)]
    no_wait: bool,
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
        Command::RunInside(args) => {
            let mut start = words(&["run-init"]);
            start.extend(args.no_wait.then(|| "--no-wait".to_owned()));
            start.push("--".to_owned());
            inside::run(&Inside {
                mtu: args.mtu,
                queues: 1,
                files: args.files.clone(),
                init: start,
                command: args.command.clone(),
            })
            .map(|()| 0)
        }
        Command::RunInit(args) => {
            let start = words(&["run-begin", "--"]);
            init::run(&start, &args.command, !args.no_wait).map(|()| 0)
        }
        Command::RunBegin(args) => {
            let (status, error) = init::start_command(&args.command);
            say(&error);
            Ok(status)
        }
        _ => return None,
    };
    let status = result.unwrap_or_else(|error| {
        say(&error);
        gateway::FAILED
    });
    Some(ExitCode::from(status))
}

/// A published port, as in `8080:80` or `192.0.2.1:8080:80`.
fn port(text: &str) -> Result<gateway::Port, String> {
    let wrong =
        || format!("'{text}' is not of the form [IP:]HOST:GUEST, as in 8080:80 or [::1]:8080:80");
    let (host, guest) = text.rsplit_once(':').ok_or_else(wrong)?;
    let guest = guest.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(wrong)?;
    let host = match host.parse::<u16>() {
        Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        Err(_) => host.parse().map_err(|_| wrong())?,
    };
    Ok(gateway::Port { host, guest })
}

fn say(error: &anyhow::Error) {
    // The reader may be gone.
    let _ = writeln!(io::stderr(), "plimsoll: {error:#}");
}

fn run(args: &RunArgs) -> anyhow::Result<u8> {
    anyhow::ensure!(
        !args.command.is_empty(),
        "there is no command; give it after --, as in 'plimsoll run -- curl http://192.0.2.1/'"
    );
    gateway::run(&gateway::Config {
        mtu: args.mtu,
        wait_for_all: !args.no_wait,
        host_loopback: args.host_loopback,
        allow_link_local: args.allow_link_local,
        ports: args.ports.clone(),
        pcap: args.pcap.clone(),
        verbose: args.verbose,
        start_inside: vec!["run-inside".to_owned()],
        command: args.command.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports() {
        let of = |text| port(text).map(|port| (port.host.to_string(), port.guest));
        assert_eq!(of("8080:80"), Ok(("127.0.0.1:8080".to_owned(), 80)));
        assert_eq!(of("192.0.2.1:8080:80"), Ok(("192.0.2.1:8080".to_owned(), 80)));
        assert_eq!(of("[::1]:8080:80"), Ok(("[::1]:8080".to_owned(), 80)));
        for wrong in ["80", "8080:0", "8080:http", "::1:80:80:", "8080:80/udp", "99999:80"] {
            assert!(of(wrong).unwrap_err().contains("[IP:]HOST:GUEST"), "{wrong}");
        }
    }
}
