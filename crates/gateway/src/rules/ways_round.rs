//! The sockets by which a command could have others reach what its rules forbid.
//!
//! A socket with an abstract name is of the host's network, which the command does not have.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::getuid;

/// Folders and sockets of services of the system: D-Bus, systemd, container engines, X11, and
/// others that start programs.
const OF_SYSTEM: [&str; 14] = [
    "/run/dbus",
    "/run/systemd/private",
    "/run/systemd/io.systemd.Manager",
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/buildkit",
    "/run/snapd.socket",
    "/run/libvirt",
    "/run/screen",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
];

/// Variables that name a socket of this user, and the text before its path.
const SOCKETS: [(&str, &str); 4] = [
    ("SSH_AUTH_SOCK", ""),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path="),
    ("DOCKER_HOST", "unix://"),
    ("CONTAINER_HOST", "unix://"),
];

/// Those that exist on this system and of this user.
pub fn find() -> Vec<PathBuf> {
    let uid = getuid().as_raw();
    let of_user = [format!("/run/user/{uid}"), format!("/tmp/tmux-{uid}")];
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // It holds no more than sockets and the like, unless it is a folder for everything.
    let runtime = runtime.filter(|path| path.is_absolute() && !is_common(path));
    let named = SOCKETS.iter().filter_map(|(name, before)| {
        let value = env::var(name).ok()?;
        // An address of D-Bus has a list of values.
        value.strip_prefix(before)?.split(',').next().map(PathBuf::from)
    });
    let fixed = OF_SYSTEM.iter().map(PathBuf::from).chain(of_user.map(PathBuf::from));
    let all = fixed.chain(runtime).chain(named);
    // A link leads to the path that is covered. A folder covers all that is in it.
    let mut found: Vec<_> = all.filter_map(|path| fs::canonicalize(path).ok()).collect();
    found.sort();
    found.dedup_by(|inner, outer| inner.starts_with(&*outer));
    found.retain(|path| !is_common(path));
    found
}

/// Whether a folder holds other things as well.
fn is_common(path: &Path) -> bool {
    ["/", "/tmp", "/run", "/var/run", "/var/tmp", "/home", "/root"]
        .iter()
        .any(|common| path == Path::new(common))
}
