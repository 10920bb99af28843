//! The inside: the namespaces of the command, its interface, and the files that name its name
//! server.
//!
//! The process is a fresh start of the program, with one thread, since only such a process may make
//! a user namespace. It has all rights in the namespaces that it makes and none outside.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use plimsoll::device::tun::{self, Offloads, TunConfig};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Signal, getgid, getuid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, UnshareFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::handover::{End, Message};
use crate::network::Network;
use crate::{INTERFACE, routing};

/// Packets that wait in the interface to be read by the gateway.
const QUEUE_LEN: u32 = 8192;

/// The interface that the gateway needs.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// Its addresses.
    pub network: Network,
    /// Its MTU in bytes.
    pub mtu: u16,
    /// Its queues.
    pub queues: usize,
    /// It passes wire segments with complete checksums, and no super-segments.
    pub no_offloads: bool,
}

/// The request of the gateway.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The interface.
    pub interface: Interface,
    /// The folder with the files that replace those of the host.
    pub files: PathBuf,
    /// Folders that are empty for the command, and files that it cannot use.
    pub covered: Vec<PathBuf>,
    /// Makes no process namespace.
    pub share_pid: bool,
    /// How the program is started again as process 1: its arguments before the command.
    pub init: Vec<String>,
    /// The command.
    pub command: Vec<std::ffi::OsString>,
}

/// Sets everything up, hands the interface over, runs process 1 and waits for its end.
///
/// # Errors
/// If a namespace or the interface cannot be made; the text says what is missing.
pub fn run(asked: &Inside) -> Result<()> {
    let end = End::of_stdin()?;
    // The command does not outlive its way out.
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl")?;
    enter_namespaces()?;
    tun::bring_up("lo").context("cannot bring the loopback interface up")?;
    let queues = make_interface(INTERFACE, &asked.interface, true)?;
    configure(INTERFACE, asked.interface.network, true)?;
    let gid = getgid().as_raw();
    fs::write("/proc/sys/net/ipv4/ping_group_range", format!("{gid} {gid}"))
        .context("cannot allow ping")?;
    replace_files(&asked.files)?;
    cover(&asked.covered)?;
    hand_over(&end, queues)?;
    keep_capabilities()?;
    if !asked.share_pid {
        unshare(UnshareFlags::NEWPID).context("cannot make a process namespace")?;
    }
    // A signal from the terminal is for the command; this process waits for it.
    let _ignored = ignore_terminal()?;
    let init = Command::new("/proc/self/exe")
        .args(&asked.init)
        .args(&asked.command)
        .stdin(end.into_fd())
        .status()
        .context("cannot start process 1")?;
    match (init.code(), init.signal()) {
        (Some(0), _) => Ok(()),
        (_, Some(signal)) => bail!("signal {signal} has ended process 1"),
        // It has said why.
        (code, _) => std::process::exit(code.unwrap_or(1)),
    }
}

/// Makes namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), rustix::io::Errno> {
    #[expect(deprecated, reason = "the other form is unsafe for flags that are not used here")]
    rustix::thread::unshare(flags)
}

/// User, network and mount namespace. The user and the group are the same as outside.
fn enter_namespaces() -> Result<()> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    unshare(flags).context(
        "cannot make a user namespace; where AppArmor forbids it, a profile for this program with \
         'userns,' allows it, as does 'sysctl kernel.apparmor_restrict_unprivileged_userns=0' for \
         all programs; where the kernel has it off, 'sysctl user.max_user_namespaces=10000'",
    )?;
    map_ids(uid, gid)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("cannot keep mounts apart from the host's")
}

/// Maps the user and the group of the new user namespace to themselves.
pub(crate) fn map_ids(uid: u32, gid: u32) -> Result<()> {
    let write = |name: &str, text: String| {
        let path = format!("/proc/self/{name}");
        fs::write(&path, text).with_context(|| format!("cannot write {path}"))
    };
    // Without it a process without rights may not map its group. It is denied already in a
    // namespace below.
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}

/// Makes the interface, and brings it up if `up`. Returns its queues.
pub(crate) fn make_interface(name: &str, asked: &Interface, up: bool) -> Result<Vec<OwnedFd>> {
    let config = TunConfig::default().name(name).mtu(Some(asked.mtu)).up(up);
    let config = if asked.no_offloads { config.offloads(Offloads::Off) } else { config };
    let (name, queues) = tun::create(config, asked.queues)?;
    routing::set_queue_len(routing::index(&name)?, QUEUE_LEN)?;
    Ok(queues)
}

/// Gives the interface its addresses and routes.
pub(crate) fn configure(name: &str, network: Network, ipv6: bool) -> Result<()> {
    let index = routing::index(name)?;
    routing::add_address(index, network.guest().into(), network.prefix())?;
    routing::add_default_route(index, network.gateway().into())?;
    // A kernel without IPv6 has none inside either.
    let off = fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    if ipv6 && off.is_ok_and(|off| off.trim() == "0") {
        routing::add_address(index, network.guest_v6().into(), Network::PREFIX_V6)?;
        routing::add_default_route(index, network.gateway_v6().into())?;
    }
    Ok(())
}

/// Hands the queues of the interface to the gateway.
pub(crate) fn hand_over(end: &End, queues: Vec<OwnedFd>) -> Result<()> {
    let fds: Vec<_> = queues.iter().map(|queue| queue.as_fd()).collect();
    end.send(Message::Queues, &fds)
}

/// Mounts the files of `folder` over those of the same names in /etc.
fn replace_files(folder: &Path) -> Result<()> {
    for name in ["resolv.conf", "hosts"] {
        let path = Path::new("/etc").join(name);
        // Programs read the file that a symbolic link points to.
        let target = match fs::canonicalize(&path) {
            Ok(target) => target,
            Err(_) if name == "hosts" => continue,
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("{}: the command needs one to find its name server", path.display())
                });
            }
        };
        mount_bind(folder.join(name), &target)
            .with_context(|| format!("cannot mount over {}", target.display()))?;
    }
    for service in NAME_SERVICES.iter().filter(|service| Path::new(service).exists()) {
        mount_bind("/dev/null", *service).with_context(|| format!("cannot cover {service}"))?;
    }
    Ok(())
}

/// Sockets of the host's services for names, by which the C library asks before it reads
/// `resolv.conf` (nss-resolve(8), nscd(8)).
const NAME_SERVICES: [&str; 2] = ["/run/systemd/resolve/io.systemd.Resolve", "/run/nscd/socket"];

/// Mounts an empty file system over each folder, and nothing over each file.
fn cover(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        if !path.is_dir() {
            mount_bind("/dev/null", path)
                .with_context(|| format!("cannot cover {}", path.display()))?;
            continue;
        }
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", path, "tmpfs", flags, None::<&std::ffi::CStr>)
            .with_context(|| format!("cannot cover {}", path.display()))?;
    }
    Ok(())
}

/// Programs that this process starts keep its rights, which process 1 needs to mount /proc.
fn keep_capabilities() -> Result<()> {
    let needed = CapabilitySet::SYS_ADMIN;
    let mut sets = rustix::thread::capabilities(None).context("capabilities")?;
    sets.inheritable |= needed;
    rustix::thread::set_capabilities(None, sets).context("capabilities")?;
    rustix::thread::configure_capability_in_ambient_set(needed, true).context("capabilities")
}

/// Takes signals that a terminal sends to all processes in the foreground, and that of `kill`:
/// they are for the command.
pub(crate) fn ignore_terminal() -> Result<Signals> {
    take_signals(&[SIGINT, SIGQUIT, SIGHUP, SIGTERM])
}

/// Takes these signals. Those that were ignored when the program was started, as by nohup(1), stay
/// ignored for the command.
pub(crate) fn take_signals(wanted: &[i32]) -> Result<Signals> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let wanted = wanted.iter().filter(|&&signal| ignored & (1 << (signal - 1)) == 0);
    Signals::new(wanted).context("signals")
}
