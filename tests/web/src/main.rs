//! Programs that use async sockets, the kernel's or ours, and are otherwise the same.
//!
//! `plimsoll-interop` starts them in network namespaces: `server` under h2spec, h2load and wrk,
//! `bulk` beside its blocking twin. They are a package of their own, so that the other tests build
//! without tokio.

mod bulk;
mod quic;
mod server;

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(about = "Web servers and streams on the kernel's sockets or on Plimsoll's")]
enum Program {
    /// Serves axum's hello world as HTTP/1 and HTTP/2 until it is ended
    Server {
        /// The address to listen on; with sockets of ours, 192.0.2.2 or 2001:db8::2
        address: SocketAddr,
        /// Whose sockets
        #[arg(long)]
        sockets: Sockets,
        /// The TUN device of sockets of ours
        #[arg(long, default_value = "plim0")]
        device: String,
        /// Threads of the runtime
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        threads: u16,
    },
    /// Sends through a link in memory and prints the rate as JSON
    Bulk {
        /// Which streams
        #[arg(long)]
        streams: Streams,
        /// For how long it sends
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Takes a stream of QUIC in and prints what it brought as JSON
    QuicReceive(QuicEnd),
    /// Sends a stream of QUIC for some time and prints what arrived as JSON
    QuicSend {
        #[command(flatten)]
        end: QuicEnd,
        /// For how long it sends
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
}

/// An end of a connection of QUIC.
#[derive(clap::Args)]
struct QuicEnd {
    /// The address to listen on, or that of the other end
    address: SocketAddr,
    /// Whose sockets
    #[arg(long)]
    sockets: Sockets,
    /// The TUN device of sockets of ours
    #[arg(long, default_value = "plim0")]
    device: String,
}

/// Whose sockets the server has, and who runs the stack.
#[derive(Clone, Copy, ValueEnum)]
enum Sockets {
    /// tokio's, on the kernel
    Kernel,
    /// Plimsoll's, on a stack with a thread of its own
    Thread,
    /// Plimsoll's, on a stack that is a task of the server's runtime
    Driver,
}

/// How bytes are read and written.
#[derive(Clone, Copy, ValueEnum)]
enum Streams {
    /// By two threads, in blocking calls
    Blocking,
    /// By two tasks of a runtime with two threads
    Async,
}

fn main() -> Result<()> {
    match Program::parse() {
        Program::Server { address, sockets, device, threads } => {
            server::run(address, sockets, device, threads.into())
        }
        Program::QuicReceive(end) => quic::receive(end.address, end.sockets, end.device),
        Program::QuicSend { end, seconds } => {
            quic::send(end.address, end.sockets, end.device, seconds)
        }
        Program::Bulk { streams, seconds } => bulk::run(streams, seconds),
    }
}

/// Says one line to whoever started this program.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("writing to standard output")
}
