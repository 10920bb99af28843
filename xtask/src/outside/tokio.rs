//! tokio's own tests of its sockets, on ours.
//!
//! A program moves from tokio's sockets to ours by a change of its imports alone. tokio's own test
//! files move in this way, and a last line gives the process its stack. The tests also use sockets
//! of std and socket2; stand-ins for these use the same stack.

use super::project::{Excluded, Project};

pub(crate) const TOKIO: Project = Project {
    name: "tokio",
    manifest: MANIFEST,
    library: include_str!("shim.txt"),
    files: &[
        "tests/io_copy_bidirectional.rs",
        "tests/tcp_accept.rs",
        "tests/tcp_accept_ready.rs",
        "tests/tcp_connect.rs",
        "tests/tcp_echo.rs",
        "tests/tcp_into_split.rs",
        "tests/tcp_into_std.rs",
        "tests/tcp_peek.rs",
        "tests/tcp_shutdown.rs",
        "tests/tcp_socket.rs",
        "tests/tcp_split.rs",
        "tests/tcp_stream.rs",
        "tests/udp.rs",
    ],
    prefixes: &["tcp_", "udp"],
    not_run: &[],
    excluded: &[
        Excluded {
            file: "tcp_accept_ready",
            test: "later_reads_after_runtime_drop_report_shutdown",
            why: "our sockets do not end with a runtime: the stack has its own thread",
        },
        Excluded {
            file: "tcp_accept_ready",
            test: "unix_accepted_stream_reads_without_an_event",
            why: "it is about sockets of the domain AF_UNIX",
        },
    ],
    replacements: &[
        ("tokio::net::Tcp", "plimsoll::net::Tcp"),
        ("tokio::net::{Tcp", "plimsoll::net::{Tcp"),
        (
            "use tokio::{io::ReadBuf, net::UdpSocket, time};",
            "use plimsoll::net::UdpSocket;\nuse tokio::{io::ReadBuf, time};",
        ),
        ("use std::{net, thread};", "use outside::std_net as net;\nuse std::thread;"),
        ("use std::{io::Write, net};", "use outside::std_net as net;\nuse std::io::Write;"),
        ("std::net::TcpStream::connect(", "outside::std_net::TcpStream::connect("),
        ("socket2::SockRef", "outside::socket2::SockRef"),
        // The type is meant.
        ("std::net::TcpStream)", "plimsoll::TcpStream)"),
    ],
    end: "outside::begin!();\n",
    words: &[],
};

const MANIFEST: &str = r#"
[features]
default = ["full", "net", "macros", "rt", "io-util"]
full = []
net = []
macros = []
rt = []
io-util = []

[dependencies]
plimsoll = { path = "PLIMSOLL", features = ["tokio"] }

[dev-dependencies]
tokio = { version = "1", features = ["full"] }
tokio-stream = "0.1"
tokio-test = "0.4"
futures = "0.3"
"#;
