//! Which layer of the stack a piece of code belongs to.

use std::ops::{Add, AddAssign};

/// A layer, in the order in which a packet that arrives meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The kernel, in a write to the device: receiving what we send, and waking who waits.
    KernelWrite,
    /// The kernel, in a read from the device.
    KernelRead,
    /// The kernel, in all else: sleeping, waking our threads, page faults.
    KernelOther,
    /// Devices and the links in memory.
    Device,
    /// Queueing disciplines and what drains them.
    Qdisc,
    /// IP, the headers of TCP and UDP, checksums, GRO and GSO.
    Ip,
    /// Which socket a packet is for.
    Demux,
    /// One connection.
    Engine,
    /// What happens around a call of a connection: locks, backlog, calls of the application.
    Socket,
    /// Wakers, kicks, sleeping and spinning.
    WakeUp,
    /// The loop, its timers and completions, counters and settings.
    Poll,
    /// Packet buffers, and the allocator.
    Buffers,
    /// `memcpy` and its like, of payload and of values.
    Copies,
    /// The program that uses the stack.
    Application,
    /// What cannot be told.
    Other,
}

use Layer::{
    Application, Buffers, Copies, Demux, Device, Engine, Ip, KernelOther, KernelRead, KernelWrite,
    Other, Poll, Qdisc, Socket, WakeUp,
};

/// All layers with their names.
pub(crate) const LAYERS: [(Layer, &str); 15] = [
    (KernelWrite, "kernel, in our writes"),
    (KernelRead, "kernel, in our reads"),
    (KernelOther, "kernel, other"),
    (Device, "device"),
    (Qdisc, "qdisc"),
    (Ip, "IP"),
    (Demux, "demux"),
    (Engine, "engine"),
    (Socket, "socket"),
    (WakeUp, "wake-up"),
    (Poll, "poll"),
    (Buffers, "buffers"),
    (Copies, "copies"),
    (Application, "application"),
    (Other, "other"),
];

/// Source files, by what their paths begin with; the first that fits decides.
const FILES: [(&str, Layer); 58] = [
    ("crates/tcp/", Engine),
    ("crates/wire/", Ip),
    ("crates/buf/", Buffers),
    ("crates/stack/src/device/", Device),
    ("crates/stack/src/interfaces/rx_path", Device),
    ("crates/stack/src/interfaces/route", Ip),
    ("crates/stack/src/interfaces/", Qdisc),
    ("crates/stack/src/qdisc/", Qdisc),
    ("crates/stack/src/stack/sending", Qdisc),
    ("crates/stack/src/stack/raw", Qdisc),
    ("crates/stack/src/sync/token", Qdisc),
    ("crates/stack/src/stack/ip/", Ip),
    ("crates/stack/src/stack/gro", Ip),
    ("crates/stack/src/offload/", Ip),
    ("crates/stack/src/packet", Ip),
    ("crates/stack/src/arrived", Ip),
    ("crates/stack/src/tables/", Demux),
    ("crates/stack/src/flow", Demux),
    ("crates/stack/src/connection_id", Demux),
    ("crates/stack/src/stack/tcp_input", Demux),
    ("crates/stack/src/stack/passive_open", Demux),
    ("crates/stack/src/stack/home", Demux),
    ("crates/stack/src/stack/stray_rst", Demux),
    ("crates/stack/src/stack/poll", Poll),
    ("crates/stack/src/stack/metrics", Poll),
    ("crates/stack/src/stack/memory", Poll),
    ("crates/stack/src/stack/wait", WakeUp),
    ("crates/stack/src/stack/busy_poll", WakeUp),
    ("crates/stack/src/stack/", Socket),
    ("crates/stack/src/sockets/wakers", WakeUp),
    ("crates/stack/src/sockets/", Socket),
    ("crates/stack/src/sync/parking", WakeUp),
    ("crates/stack/src/sync/", Socket),
    ("crates/stack/src/kick", WakeUp),
    ("crates/stack/src/platform/", WakeUp),
    ("crates/stack/src/pollers/waiter", WakeUp),
    ("crates/stack/src/pollers/spinner", WakeUp),
    ("crates/stack/", Poll),
    ("crates/plimsoll/src/ready", WakeUp),
    ("crates/plimsoll/src/registration", WakeUp),
    ("crates/plimsoll/src/park", WakeUp),
    ("crates/plimsoll/src/spin", WakeUp),
    ("crates/plimsoll/src/idle_polls", WakeUp),
    ("crates/plimsoll/src/queue_loop", WakeUp),
    ("crates/plimsoll/src/platform/", WakeUp),
    ("crates/plimsoll/src/clock", Poll),
    ("crates/plimsoll/", Socket),
    ("crates/cli/", Application),
    ("crates/lab/", Application),
    ("bench/", Application),
    ("library/alloc/", Other),
    ("library/", Other),
    ("/hashbrown-", Demux),
    ("/siphasher-", Demux),
    ("/rustix-", Other),
    ("/crossbeam-", Other),
    ("/arc-swap-", Poll),
    ("/hdrhistogram-", Application),
];

/// Functions whose source names no file of ours, by what their names hold.
const FUNCTIONS: [(&str, Layer); 16] = [
    ("memcpy", Copies),
    ("memmove", Copies),
    ("memset", Copies),
    ("memcmp", Copies),
    ("malloc", Buffers),
    ("free", Buffers),
    ("calloc", Buffers),
    ("realloc", Buffers),
    ("plimsoll_buf", Buffers),
    ("plimsoll_stack::device", Device),
    ("plimsoll_stack::packet", Ip),
    ("plimsoll_stack::sockets::wakers", WakeUp),
    ("plimsoll_tcp", Engine),
    ("plimsoll_wire", Ip),
    ("plimsoll_stack", Socket),
    ("plimsoll_lab", Application),
];

/// The layer of code with these frames, the innermost first, in the words of `frames`.
pub(crate) fn of_frames(frames: &[String]) -> Layer {
    let known = frames.iter().map(|frame| of_frame(frame)).find(|layer| *layer != Other);
    // What is generic and stands alone tells by its types what it is for.
    known.or_else(|| frames.last().map(|frame| of_function(frame))).unwrap_or(Other)
}

fn of_frame(frame: &str) -> Layer {
    let file = frame.split_whitespace().next().unwrap_or_default();
    let fits = |part: &str| {
        if part.starts_with('/') { file.contains(part) } else { file.starts_with(part) }
    };
    FILES.iter().find(|(part, _)| fits(part)).map_or(Other, |(_, layer)| *layer)
}

/// The layer of a function of which only the name is known.
pub(crate) fn of_function(name: &str) -> Layer {
    FUNCTIONS.iter().find(|(part, _)| name.contains(part)).map_or(Other, |(_, layer)| *layer)
}

/// The layer of the kernel's work, by the names of its functions, the innermost first.
pub(crate) fn of_kernel<'a>(chain: impl Iterator<Item = &'a str>) -> Layer {
    for name in chain {
        if name.starts_with("tun_chr_write") || name.starts_with("tun_get_user") {
            return KernelWrite;
        }
        if name.starts_with("tun_chr_read") || name.starts_with("tun_do_read") {
            return KernelRead;
        }
    }
    KernelOther
}

/// A sum for each layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums([f64; LAYERS.len()]);

impl Sums {
    pub(crate) fn add(&mut self, layer: Layer, value: f64) {
        self.0[layer as usize].add_assign(value);
    }

    pub(crate) fn get(&self, layer: Layer) -> f64 {
        self.0[layer as usize]
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().copied().fold(0.0, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(text: &[&str]) -> Vec<String> {
        text.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn layers_stand_in_their_order() {
        for (at, (layer, _)) in LAYERS.iter().enumerate() {
            assert_eq!(*layer as usize, at);
        }
    }

    #[test]
    fn inlined_code_counts_for_who_wrote_it() {
        let inlined = [
            "library/core/src/option.rs:5 map",
            "crates/wire/src/tcp.rs:9 parse",
            "crates/stack/src/stack/ip/input.rs:7 deliver",
        ];
        assert_eq!(of_frames(&frames(&inlined)), Ip);
        let drops = ["library/core/src/ptr/mod.rs:805 drop_in_place<plimsoll_tcp::Segment>"];
        assert_eq!(of_frames(&frames(&drops)), Engine);
        assert_eq!(of_frames(&frames(&["crates/stack/src/kick.rs:1 kick"])), WakeUp);
        assert_eq!(of_frames(&frames(&["crates/stack/src/snmp.rs:1 bump"])), Poll);
        assert_eq!(of_frames(&[]), Other);
    }

    #[test]
    fn the_kernel_is_told_apart_by_what_it_was_asked_for() {
        let write = ["try_to_wake_up", "tcp_rcv_established", "tun_get_user", "tun_chr_write_iter"];
        assert_eq!(of_kernel(write.into_iter()), KernelWrite);
        assert_eq!(of_kernel(["copy", "tun_chr_read_iter"].into_iter()), KernelRead);
        assert_eq!(of_kernel(["schedule", "do_epoll_wait"].into_iter()), KernelOther);
    }

    /// A file that was renamed would silently become another layer.
    #[test]
    fn every_file_of_ours_that_is_named_exists() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (part, _) in FILES.iter().filter(|(part, _)| part.starts_with("crates/")) {
            let path = root.join(part);
            let folder = path.parent().unwrap();
            let stem = part.rsplit('/').next().unwrap();
            let entries = std::fs::read_dir(folder).unwrap();
            let mut names = entries.map(|entry| entry.unwrap().file_name());
            assert!(names.any(|name| name.to_string_lossy().starts_with(stem)), "{part}");
        }
    }
}
