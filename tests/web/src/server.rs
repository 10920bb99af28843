//! axum's hello world, on the kernel's sockets or on ours.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::serve::{Listener, ListenerExt};
use plimsoll::net::{self, Driver};
use plimsoll::{Stack, StackBuilder, device};
use tokio::runtime::{Builder, Runtime};

use crate::{Sockets, say};

/// What every request is answered with.
const HELLO: &str = "Hello, World!";

/// Serves until it is ended.
pub(super) fn run(
    address: SocketAddr,
    sockets: Sockets,
    device: String,
    threads: usize,
) -> Result<()> {
    let server = async move {
        match sockets {
            Sockets::Kernel => serve(tokio::net::TcpListener::bind(address).await?, no_delay).await,
            Sockets::Thread => {
                let stack = on_tun(device)?.build()?;
                serve(net::TcpListener::bind_on(&stack, address).await?, our_no_delay).await
            }
            Sockets::Driver => {
                let stack = on_tun(device)?.build_without_thread()?;
                tokio::spawn(Driver::new(&stack)?);
                serve(net::TcpListener::bind_on(&stack, address).await?, our_no_delay).await
            }
        }
    };
    // Where the runtime has several threads, only tasks run on them.
    runtime(threads)?.block_on(async { tokio::spawn(server).await.context("the server panicked")? })
}

/// With one thread it is tokio's runtime of the current thread, as such programs choose it.
pub(super) fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().context("starting the runtime")
}

async fn serve<L>(listener: L, no_delay: fn(&mut L::Io)) -> Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    // It reads a whole request before it answers, so that an error in it is always seen.
    let routes = Router::new().fallback(async |_: Bytes| HELLO);
    say("ready")?;
    axum::serve(listener.tap_io(no_delay), routes).await.context("serving")
}

fn no_delay(stream: &mut tokio::net::TcpStream) {
    // Fails only on a connection that has ended already.
    let _ = stream.set_nodelay(true);
}

fn our_no_delay(stream: &mut net::TcpStream) {
    let _ = stream.set_nodelay(true);
}

/// A stack on the TUN device of the namespace.
pub(super) fn on_tun(name: String) -> Result<StackBuilder> {
    let config = device::tun::TunConfig::default().name(name);
    let tun = device::tun::open(config).context("opening the TUN device")?;
    Ok(Stack::builder().device(tun).address("192.0.2.2/24").address("2001:db8::2/64"))
}
