//! Stacks from flags: devices, addresses, capture, faults, settings.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use plimsoll::device::{self, Device, pcapng};
use plimsoll::{BuildError, Instant, Stack, StackBuilder, SysctlError};
use plimsoll_lab::figures::Counters;

use crate::ToldAlready;
use crate::args::{LinkArgs, Offload, StackArgs};
use crate::control::server::{self, ControlSocket};
use crate::output;
use crate::units::FaultSpec;

/// Addresses of the two stacks in one process.
pub(crate) const CLIENT: &str = "192.0.2.1";
/// See [`CLIENT`].
pub(crate) const SERVER: &str = "192.0.2.2";

/// An error of the command line.
pub(crate) fn usage(message: &str) -> anyhow::Error {
    crate::UsageError(message.to_owned()).into()
}

/// The captures of a command.
#[derive(Default)]
pub(crate) struct Captures(Vec<pcapng::Capture>);

impl Captures {
    /// Writes a capture of `device` to `path`. If that ends early, it is said at once.
    fn wrap(&mut self, device: Device, path: PathBuf) -> anyhow::Result<Device> {
        let file = File::create(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = today.saturating_sub(plimsoll::now().since(Instant::ZERO));
        let config = pcapng::CaptureConfig::default().epoch(epoch);
        let (device, capture) = pcapng::wrap_file(device, file, config);
        capture.on_error(move |error| {
            output::warn(&format!(
                "the capture {} ends early, with its last whole packet: {error}",
                path.display()
            ));
        });
        self.0.push(capture);
        Ok(device)
    }

    /// Writes out what is left of them.
    ///
    /// # Errors
    /// If one of them is not complete, which has been said by then.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.0.iter().for_each(pcapng::Capture::flush);
        match self.0.iter().any(|capture| capture.error().is_some()) {
            true => Err(ToldAlready.into()),
            false => Ok(()),
        }
    }
}

/// The required flags that are missing for a stack on a TUN device.
pub(crate) fn missing(args: &StackArgs) -> Vec<String> {
    let mut missing = Vec::new();
    if args.device.is_none() {
        missing.push(
            "--device is missing: say what to talk through, as in --device tun:plimsoll0".into(),
        );
    }
    if args.address.is_empty() {
        missing
            .push("--address is missing: give the stack one, as in --address 192.0.2.2/24".into());
    }
    missing
}

/// A stack on the TUN device that the flags name.
pub(crate) fn tun_stack(
    args: &StackArgs,
    thread: bool,
    captures: &mut Captures,
) -> anyhow::Result<Stack> {
    let missing = missing(args);
    let (Some(name), []) = (&args.device, missing.as_slice()) else {
        return Err(usage(&missing.join("; ")));
    };
    let mut seen = BTreeSet::new();
    if let Some(twice) = args.address.iter().find(|cidr| !seen.insert(cidr.address)) {
        return Err(usage(&format!("--address has {} twice; once is enough", twice.address)));
    }
    let mut queues = Vec::new();
    for (index, device) in open_tun(&name.0, args)?.into_iter().enumerate() {
        queues.push(wrapped(device, args, index, captures)?);
    }
    let mut queues = queues.into_iter();
    let first = queues.next().ok_or_else(|| usage("--queues must not be 0"))?;
    let count = usize::from(args.queues);
    let mut builder = Stack::builder().device(first).more_queues(queues).queues(count);
    for cidr in &args.address {
        builder = builder.address(format!("{}/{}", cidr.address, cidr.prefix));
    }
    finish(builder, args, thread)
}

/// The device with what the flags put around it. A capture of a further queue has its number behind
/// its name. It is outermost, so that it shows what the stack sends and sees.
fn wrapped(
    mut device: Device,
    args: &StackArgs,
    queue: usize,
    captures: &mut Captures,
) -> anyhow::Result<Device> {
    if let Some(spec) = args.fault {
        device = device::fault::wrap(device, fault_config(spec));
    }
    let Some(path) = &args.pcap else { return Ok(device) };
    let mut path = path.clone().into_os_string();
    if queue > 0 {
        path.push(format!(".{queue}"));
    }
    captures.wrap(device, path.into())
}

/// Names the device in an error that says that it has gone.
pub(crate) fn name_device<T>(args: &StackArgs, result: anyhow::Result<T>) -> anyhow::Result<T> {
    let Some(name) = &args.device else { return result };
    result.map_err(|error| {
        let gone = std::io::Error::from(std::io::ErrorKind::NetworkDown).to_string();
        let text = format!("{error:#}").to_lowercase();
        match text.contains("network is down") || text.contains(&gone) {
            true => error.context(format!("tun device {} has failed or is gone", name.0)),
            false => error,
        }
    })
}

/// Opens the device with its queues. Setting its MTU and bringing it up needs privilege; without
/// it the device is taken as it is.
fn open_tun(name: &str, args: &StackArgs) -> anyhow::Result<Vec<Device>> {
    let offloads = match args.offload {
        Offload::Auto => device::tun::Offloads::Auto,
        Offload::Off => device::tun::Offloads::Off,
    };
    let count = usize::from(args.queues);
    let config = |mtu, up| {
        let defaults = device::tun::TunConfig::default();
        let longest = args.super_segment.unwrap_or(defaults.max_super_segment);
        defaults.name(name).offloads(offloads).max_super_segment(longest).mtu(mtu).up(up)
    };
    let open = |config| open_steered(config, args.pin, count);
    let refused = match open(config(args.mtu, true)) {
        Ok(queues) => return Ok(queues),
        Err(refused) => refused,
    };
    let queues = open(config(None, false)).map_err(|error| {
        let kind = if count > 1 { " multi_queue" } else { "" };
        let make = format!(
            "as root, 'ip tuntap add dev {name} mode tun vnet_hdr{kind} user $USER' and \
             'ip link set {name} up' make the device for a user"
        );
        anyhow!("cannot open tun device {name}: {error} ({make})")
    })?;
    if !device::tun::is_up(name) {
        output::warn(&format!("nothing will arrive yet: {refused}"));
    }
    Ok(queues)
}

/// Opens the queues of a device. Loops that stay on their processors take what is sent there; where
/// the kernel refuses to choose queues so, it is said, and they are chosen by flow.
fn open_steered(
    config: device::tun::TunConfig,
    pinned: bool,
    count: usize,
) -> Result<Vec<Device>, device::DeviceError> {
    if !pinned || count == 1 {
        return device::tun::open_queues(config, count);
    }
    let steered = config.clone().steering(device::tun::Steering::Processor);
    device::tun::open_queues(steered, count).or_else(|refused| {
        let queues = device::tun::open_queues(config, count)?;
        output::warn(&format!("queues are chosen by flow: {refused}"));
        Ok(queues)
    })
}

/// The two stacks of a workload in this process, client first.
pub(crate) fn memory_stacks(
    args: &StackArgs,
    link: &LinkArgs,
    thread: bool,
    captures: &mut Captures,
) -> anyhow::Result<(Stack, Stack)> {
    let defaults = device::memory_link::LinkConfig::default();
    let queue_limit = link.queue.unwrap_or(defaults.queue_limit);
    // Without a limit on the rate, a long packet does not delay others.
    let limited = link.link_rate.is_some() || link.delay.is_some();
    let longest = args.super_segment.unwrap_or(match limited {
        true => defaults.max_super_segment,
        false => usize::MAX,
    });
    let config = defaults
        .mtu(args.mtu.unwrap_or(1500))
        .rate(link.link_rate)
        .delay(link.delay.unwrap_or_default())
        .loss(link.loss)
        .reorder(link.reorder)
        .duplicate(link.duplicate)
        .queue_limit(queue_limit)
        .seed(link.link_seed)
        .max_super_segment(longest)
        .offloads(args.offload == Offload::Auto);
    let (here, there) = device::memory_link::pair(config);
    // The capture shows both directions at one end; faults hit both directions at one end, too.
    let here = wrapped(here, args, 0, captures)?;
    let client = Stack::builder().device(here).address(format!("{CLIENT}/24")).name("client");
    let server = Stack::builder().device(there).address(format!("{SERVER}/24")).name("server");
    let client = finish(client, args, thread)?;
    let server = finish(server, args, thread)?;
    Ok((client, server))
}

fn finish(mut builder: StackBuilder, args: &StackArgs, thread: bool) -> anyhow::Result<Stack> {
    if let Some(mtu) = args.mtu {
        builder = builder.mtu(mtu);
    }
    for (name, value) in &args.sysctls {
        builder = builder.sysctl(name, value);
    }
    builder = builder.busy_poll(args.busy_poll.of_thread());
    let built = if thread { builder.build() } else { builder.build_without_thread() };
    built.map_err(|error| match error {
        BuildError::Sysctl(error) => setting_error(&error),
        other => anyhow::Error::from(other).context("cannot build the stack"),
    })
}

/// That a setting of --sysctl was refused.
pub(crate) fn setting_error(error: &SysctlError) -> anyhow::Error {
    let help = match error {
        SysctlError::Unknown { .. } => "; 'plimsoll sysctl --explain' prints all settings",
        _ => "",
    };
    usage(&format!("--sysctl: {error}{help}"))
}

fn fault_config(spec: FaultSpec) -> device::fault::FaultConfig {
    device::fault::FaultConfig::default()
        .loss(spec.loss)
        .reorder(spec.reorder)
        .duplicate(spec.duplicate)
        .corrupt(spec.corrupt)
        .delay(spec.delay)
        .seed(spec.seed)
}

/// The counters of a stack by their names.
pub(crate) fn counters(stack: &Stack) -> Counters {
    stack.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Opens the control socket for stacks with names. Running without one is worth a warning only.
pub(crate) fn control(stacks: &[(&str, &Stack)]) -> Option<ControlSocket> {
    let stacks: Vec<_> =
        stacks.iter().map(|(name, stack)| ((*name).to_owned(), (*stack).clone())).collect();
    match server::open(Arc::new(crate::answers::Stacks::new(stacks))) {
        Ok(socket) => Some(socket),
        Err(error) => {
            output::warn(&format!(
                "no control socket, so nstat, sysctl and ss cannot ask: {error}"
            ));
            None
        }
    }
}
