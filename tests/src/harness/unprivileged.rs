//! A program as an ordinary user, who may open the TUN device.

use std::path::Path;
use std::process::Command;

use super::netns::Namespace;

/// The number of the user and of the group.
pub(crate) const USER: u32 = 65534;

/// `program` in a namespace, as a user without rights. A mount namespace of its own has a
/// `/dev/net/tun` that all may open, since the machine's may be root's alone. `folder`, which has
/// the program, becomes readable for all, and files in it that are called `hosts` and `resolv.conf`
/// are those of /etc.
pub(crate) fn command(ns: &Namespace, folder: &Path, program: impl AsRef<Path>) -> Command {
    let script = "mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && \
                  chmod 666 /dev/net/tun && cd / && chmod 755 \"$0\" && \
                  for name in hosts resolv.conf; do if [ -e \"$0/$name\" ]; then \
                  mount --bind \"$0/$name\" /etc/$name || exit; fi; done && \
                  exec setpriv --reuid=\"$1\" --regid=\"$1\" --clear-groups -- \"${@:2}\"";
    let mut command = ns.command("unshare");
    command
        .args(["--mount", "bash", "-c", script])
        .arg(folder)
        .arg(USER.to_string())
        .arg(program.as_ref());
    command
}
