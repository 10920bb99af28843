//! Stacks from flags: devices, addresses, capture, faults, settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use plimsoll::device::{self, Device};
use plimsoll::{BuildError, Stack, StackBuilder};

use crate::args::{LinkArgs, Offload, StackArgs};
use crate::control::server::{self, ControlSocket, Respond};
use crate::units::FaultSpec;

/// Addresses of the two stacks in one process.
pub(crate) const CLIENT: &str = "192.0.2.1";
/// See [`CLIENT`].
pub(crate) const SERVER: &str = "192.0.2.2";

/// The time to poll before sleeping.
pub(crate) fn busy_poll(args: &StackArgs) -> Duration {
    Duration::from_micros(u64::from(args.busy_poll))
}

/// An error of the command line.
pub(crate) fn usage(message: &str) -> anyhow::Error {
    crate::UsageError(message.to_owned()).into()
}

/// A stack on the TUN device that the flags name.
pub(crate) fn tun_stack(args: &StackArgs, thread: bool) -> anyhow::Result<Stack> {
    let Some(name) = &args.device else {
        return Err(usage("--device is missing: say what to talk through, as in tun:plimsoll0"));
    };
    if args.address.is_empty() {
        return Err(usage("--address is missing: give the stack one, as in 192.0.2.2/24"));
    }
    let mut queues = open_tun(&name.0, args)?.into_iter();
    let first = queues.next().ok_or_else(|| usage("--queues must not be 0"))?;
    let count = usize::from(args.queues);
    let mut builder = Stack::builder().device(first).more_queues(queues).queues(count);
    for cidr in &args.address {
        builder = builder.address(format!("{}/{}", cidr.address, cidr.prefix));
    }
    finish(builder, args, args.pcap.clone(), args.fault, thread)
}

/// Opens the device with its queues. Setting its MTU and bringing it up needs privilege; without
/// it the device is taken as it is.
fn open_tun(name: &str, args: &StackArgs) -> anyhow::Result<Vec<Device>> {
    let offloads = match args.offload {
        Offload::Auto => device::tun::Offloads::Auto,
        Offload::Off => device::tun::Offloads::Off,
    };
    let config = |mtu, up| device::tun::TunConfig { name: name.to_owned(), offloads, mtu, up };
    let count = usize::from(args.queues);
    let refused = match device::tun::open_queues(config(args.mtu, true), count) {
        Ok(queues) => return Ok(queues),
        Err(refused) => refused,
    };
    let queues = device::tun::open_queues(config(None, false), count).map_err(|error| {
        let make = format!(
            "as root, 'ip tuntap add dev {name} mode tun vnet_hdr user $USER' and \
             'ip link set {name} up' make the device for a user"
        );
        anyhow!("cannot open tun device {name}: {error} ({make})")
    })?;
    if !device::tun::is_up(name) {
        eprintln!("plimsoll: nothing will arrive yet: {refused}");
    }
    Ok(queues)
}

/// The two stacks of a workload in this process, client first.
pub(crate) fn memory_stacks(
    args: &StackArgs,
    link: &LinkArgs,
    thread: bool,
) -> anyhow::Result<(Stack, Stack)> {
    let defaults = device::memory_link::LinkConfig::default();
    let config = device::memory_link::LinkConfig {
        mtu: args.mtu.unwrap_or(1500),
        rate: link.link_rate,
        delay: link.delay.unwrap_or_default(),
        loss: link.loss,
        reorder: link.reorder,
        duplicate: link.duplicate,
        queue_limit: link.queue.unwrap_or(defaults.queue_limit),
        seed: link.link_seed,
        offloads: args.offload == Offload::Auto,
        ..defaults
    };
    let (here, there) = device::memory_link::pair(config);
    let client = Stack::builder().device(here).address(format!("{CLIENT}/24")).name("client");
    let server = Stack::builder().device(there).address(format!("{SERVER}/24")).name("server");
    // The capture shows both directions at one end; faults hit both directions at one end, too.
    let client = finish(client, args, args.pcap.clone(), args.fault, thread)?;
    let server = finish(server, args, None, None, thread)?;
    Ok((client, server))
}

fn finish(
    mut builder: StackBuilder,
    args: &StackArgs,
    pcap: Option<PathBuf>,
    fault: Option<FaultSpec>,
    thread: bool,
) -> anyhow::Result<Stack> {
    if let Some(mtu) = args.mtu {
        builder = builder.mtu(mtu);
    }
    if let Some(path) = pcap {
        builder = builder.pcap(path);
    }
    if let Some(spec) = fault {
        builder = builder.fault(fault_config(spec));
    }
    for (name, value) in &args.sysctls {
        builder = builder.sysctl(name, value);
    }
    builder = builder.busy_poll(busy_poll(args));
    let built = if thread { builder.build() } else { builder.build_without_thread() };
    built.map_err(|error| match error {
        BuildError::Sysctl(_) => usage(&error.to_string()),
        other => anyhow::Error::from(other).context("cannot build the stack"),
    })
}

fn fault_config(spec: FaultSpec) -> device::fault::FaultConfig {
    device::fault::FaultConfig {
        loss: spec.loss,
        reorder: spec.reorder,
        duplicate: spec.duplicate,
        corrupt: spec.corrupt,
        delay: spec.delay,
        seed: spec.seed,
        ..Default::default()
    }
}

/// Opens the control socket for stacks with names. Running without one is worth a warning only.
pub(crate) fn control(stacks: &[(&str, &Stack)]) -> Option<ControlSocket> {
    let stacks: Vec<_> =
        stacks.iter().map(|(name, stack)| ((*name).to_owned(), (*stack).clone())).collect();
    let respond: Arc<dyn Respond> = Arc::new(crate::answers::Stacks(stacks));
    match server::open(respond) {
        Ok(socket) => Some(socket),
        Err(error) => {
            eprintln!("plimsoll: no control socket, so nstat, sysctl and ss cannot ask: {error}");
            None
        }
    }
}
