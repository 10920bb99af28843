//! Shell lines of a script, as far as they are understood.

/// Something that a shell line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `sysctl -q name=value`, and what stands for it.
    Sysctl {
        /// With dots, such as `net.ipv4.tcp_sack`.
        name: String,
        /// As written, quotes removed.
        value: String,
    },
}
