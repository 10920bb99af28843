//! The kernel's own sockets, each connection on a thread that blocks.
//!
//! Threads are kept: one that has served a connection waits for the next. When the last one that
//! waits has found a connection, it starts another thread first, so nobody ever waits for one.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use peer_common::{Args, blocking};

/// Bytes of a thread's stack; 10,000 connections have as many threads.
const STACK: usize = 64 * 1024;

/// Threads that wait for connections at the beginning: more than any measurement of rates needs.
const THREADS_AT_FIRST: usize = 32;

/// The client's congestion control, and Plimsoll's default.
const CONGESTION_CONTROL: &str = "cubic";

struct Server {
    listener: TcpListener,
    /// Threads that wait for a connection.
    waiting: AtomicUsize,
}

impl Server {
    /// Starts a thread that serves one connection after the other.
    fn start(self: &Arc<Server>) -> io::Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let server = self.clone();
        thread::Builder::new().stack_size(STACK).spawn(move || server.serve()).map(drop)
    }

    fn serve(self: &Arc<Server>) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept()?;
            if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.start()?;
            }
            // A connection that fails is its client's loss.
            let _ = blocking::serve(&mut Stream(stream));
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Stream(TcpStream);

impl io::Read for Stream {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        self.0.read(block)
    }
}

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl blocking::Stream for Stream {
    fn end(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    fn set_nodelay(&mut self) -> io::Result<()> {
        self.0.set_nodelay(true)
    }
}

fn main() -> io::Result<()> {
    let args = Args::of_program()?;
    let listener = TcpListener::bind(args.address)?;
    // Connections have it from their listener, whatever the host prefers.
    rustix::net::sockopt::set_tcp_congestion(&listener, CONGESTION_CONTROL)?;
    let server = Arc::new(Server { listener, waiting: AtomicUsize::new(0) });
    for _ in 0..THREADS_AT_FIRST {
        server.start()?;
    }
    peer_common::ready()?;
    loop {
        thread::park();
    }
}
