//! The README's first program is an example, and works. Each public item of the crate is used in an
//! example, in an example of the documentation, or in the README, or is listed here with the reason
//! why it need not be.

#[path = "../../examples/custom_device.rs"]
mod custom_device;
#[cfg(feature = "tokio")]
#[path = "../../examples/tun_proxy.rs"]
mod tun_proxy;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Items that no example has a use for.
const WITHOUT: &[(&str, &str)] = &[
    ("Accept", "the future of `TcpListener::accept_async`"),
    ("AckReason", "a part of `Decision`, which is shown as text"),
    ("BbrCause", "a part of `Decision`"),
    ("BbrModel", "what `Info::bbr` gives, which is shown as text"),
    ("BbrState", "a part of `BbrModel`"),
    ("Bound", "a part of `Decision`"),
    ("Causes", "a part of `Released`"),
    ("ChecksumState", "of packets; a device with offloads looks at it"),
    ("Connecting", "the future of `Connector::connect_async`"),
    ("Decision", "what `Record` holds, which is shown as text"),
    ("Drained", "the future of `Stack::drained`"),
    ("Entered", "the guard of `net::enter`"),
    ("ErrorReport", "what `TcpStream::take_report` gives"),
    ("Gso", "of packets; a device with offloads looks at it"),
    ("Kick", "what `KickSlot` holds"),
    ("Kicker", "what `Stack::kicker` gives"),
    ("NextIncoming", "the future of `GatedListener::incoming`"),
    ("Note", "what a capture writes beside a packet"),
    ("Released", "a part of `Decision`"),
    ("Resend", "a part of `Decision`"),
    ("ReuniteError", "the error of halves that do not belong together"),
    ("Scope", "the future of `net::scope`"),
    ("Slices", "what `TcpStream::read_shared` gives"),
    ("Tail", "a part of `Decision`"),
    ("WaitCancelled", "the future of `Incoming::cancelled`"),
    ("lookup_host_on", "`lookup_host` with a stack, as the other names in `_on`"),
];

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of this crate") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file of this crate")
}

/// The names that `pub use` brings into a module, as they are known there.
fn used_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (start, _) in text.match_indices("pub use ") {
        let end = start + text[start..].find(';').expect("the end of a use");
        let list = &text[start..end];
        let list = list.split_once('{').map_or(list, |(_, list)| list);
        for part in list.split([',', '}']) {
            let name = part.rsplit([':', ' ']).next().unwrap_or_default().trim();
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// The items that a file declares public.
fn declared_names(text: &str) -> Vec<String> {
    let kinds = ["struct", "enum", "trait", "fn", "const", "type"];
    let of = |line: &str| {
        let rest = line.strip_prefix("pub ")?.trim_start_matches("async ");
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind)?.strip_prefix(' '))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some(rest[..end].to_owned())
    };
    text.lines().filter_map(of).collect()
}

#[test]
fn each_public_item_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut public = BTreeSet::new();
    for module in ["src/lib.rs", "src/net/mod.rs"] {
        public.extend(used_names(&read(&root.join(module))));
    }
    for module in ["src/gate.rs", "src/prometheus.rs"] {
        public.extend(declared_names(&read(&root.join(module))));
    }
    let mut sources = Vec::new();
    files(&root.join("src"), &mut sources);
    let mut examples = String::new();
    for source in &sources {
        let text = read(source);
        let doc = |line: &&str| line.trim_start().starts_with("//");
        examples.extend(text.lines().filter(doc).flat_map(|line| [line, "\n"]));
    }
    let mut programs = Vec::new();
    files(&root.join("examples"), &mut programs);
    programs.push(root.join("../../README.md"));
    programs.iter().for_each(|program| examples.push_str(&read(program)));

    let words: BTreeSet<&str> =
        examples.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let unused: Vec<&str> =
        public.iter().map(String::as_str).filter(|name| !words.contains(name)).collect();
    assert!(WITHOUT.iter().all(|(_, reason)| !reason.is_empty()), "each has a reason");
    let listed: Vec<&str> = WITHOUT.iter().map(|(name, _)| *name).collect();
    assert_eq!(unused, listed, "left: without an example; right: those that are listed here");
    assert!(public.len() > 60, "{} items were found", public.len());
}

#[test]
fn a_custom_device_carries_packets() {
    custom_device::main().expect("the example runs to its end");
}

#[test]
fn the_first_program_of_the_readme_is_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = read(&root.join("../../README.md"));
    let example = read(&root.join("examples/tun_proxy.rs"));
    let (_, code) = readme.split_once("```rust,no_run\n").expect("a program");
    let (code, _) = code.split_once("```").expect("the end of the program");
    let (_, program) = example.split_once("\n\n").expect("an empty line below the text");
    assert_eq!(code, program.replace("pub(crate) ", ""));
}

/// The kernel is client and upstream at once: what comes from 192.0.2.1 is routed into the proxy's
/// device, everything else to 198.51.100.7 stays on the loopback interface.
#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_first_program_of_the_readme_proxies() {
    crate::namespace::isolated("examples::the_first_program_of_the_readme_proxies", || {
        std::thread::spawn(|| tun_proxy::main().expect("the proxy never ends"));
        through_the_proxy();
    });
}

#[cfg(feature = "tokio")]
fn through_the_proxy() {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

    use crate::namespace::ip;
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    let is_there = || {
        let show =
            std::process::Command::new("ip").args(["link", "show", "plimsoll0", "up"]).output();
        show.is_ok_and(|out| out.status.success() && !out.stdout.is_empty())
    };
    while !is_there() {
        std::thread::yield_now();
    }
    ip("link set lo up");
    ip("address add 198.51.100.7/32 dev lo");
    ip("address add 192.0.2.1/24 dev plimsoll0");
    ip("rule add pref 10 lookup local");
    ip("rule del pref 0");
    ip("rule add pref 5 from 192.0.2.1 lookup 100");
    ip("route add 198.51.100.0/24 dev plimsoll0 table 100");
    for setting in ["plimsoll0/accept_local=1", "plimsoll0/rp_filter=0", "all/rp_filter=0"] {
        let (name, value) = setting.split_once('=').expect("a value");
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}"), value).expect("a setting");
    }

    let upstream = TcpListener::bind("198.51.100.7:80").expect("a port");
    let echo = std::thread::spawn(move || {
        let (mut stream, from) = upstream.accept().expect("the proxy's connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the request");
        stream.write_all(text.to_uppercase().as_bytes()).expect("the answer");
        from
    });
    let dial = |to: &str| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &"192.0.2.1:0".parse::<SocketAddr>().expect("an address"))?;
        connect(&socket, &to.parse::<SocketAddr>().expect("an address"))?;
        std::io::Result::Ok(TcpStream::from(socket))
    };
    let mut client = dial("198.51.100.7:80").expect("the proxy accepts");
    client.write_all(b"load line").expect("the request");
    client.shutdown(Shutdown::Write).expect("half-close");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the answer");
    assert_eq!(answer, "LOAD LINE");
    let from = echo.join().expect("the upstream ends");
    assert_ne!(from.ip().to_string(), "192.0.2.1", "the proxy itself dialled");
    let refused = dial("198.51.100.7:81").expect_err("no upstream listens there");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
