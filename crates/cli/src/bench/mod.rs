//! The workloads as commands: `stream`, `rr`, `crr` and `idle`.
//!
//! The workloads themselves are in the `plimsoll-lab` crate; here they get their sides and their
//! sizes from flags.

pub(crate) mod idle;
pub(crate) mod rr;
pub(crate) mod stream;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use plimsoll::Options;
use plimsoll_lab::event_loop::SCRATCH_BYTES;
use plimsoll_lab::workload::{Kind, Measured, Workload};

use crate::args::{LinkArgs, RunArgs, StackArgs};
use crate::net::{self, Captures};

/// The port of the server side in this process.
const PORT: u16 = 5001;

/// How long a workload runs if neither `-l` nor `-n` says.
const DEFAULT_LENGTH: Duration = Duration::from_secs(10);

/// Builds the sides that the flags ask for, and their captures.
fn workload(
    kind: Kind,
    run: &RunArgs,
    link: &LinkArgs,
    stack: &StackArgs,
) -> anyhow::Result<(Workload, Captures)> {
    let mut captures = Captures::default();
    let (client, server, remote) = match run.to {
        Some(remote) => (net::tun_stack(stack, run.threads, &mut captures)?, None, remote),
        None => {
            if stack.device.is_some() {
                let message = "--device without --to: say whom to talk to with --to ADDR:PORT";
                return Err(net::usage(message));
            }
            let (client, server) = net::memory_stacks(stack, link, run.threads, &mut captures)?;
            let ip: IpAddr = net::SERVER.parse().context("a literal address")?;
            (client, Some(server), SocketAddr::new(ip, PORT))
        }
    };
    let options = Options::default().nodelay(run.nodelay).sndbuf(run.sndbuf);
    let workload = Workload {
        kind,
        flows: run.flows,
        options: options.clone(),
        server_options: options,
        read_bytes: SCRATCH_BYTES,
        read_buffers: 1,
        shared: false,
        write_buffer: None,
        length: run.length.unwrap_or(DEFAULT_LENGTH),
        warm_up: None,
        cpus: stack.pin.then_some([0, 1]),
        gives_way: false,
        threads: run.threads,
        idle: stack.busy_poll.of_loop(),
        client,
        server,
        peer: None,
        remote,
    };
    Ok((workload, captures))
}

/// Runs it, with a control socket for its stacks.
fn measure(workload: &Workload, stack: &StackArgs) -> anyhow::Result<Measured> {
    let mut named = vec![("client", &workload.client)];
    named.extend(workload.server.iter().map(|server| ("server", server)));
    let _control = net::control(&named);
    net::name_device(stack, workload.measure())
}
