//! ipstack over TUN on a runtime of tokio with a thread for each processor: the stack has the
//! device, and each connection has a task.

use std::io;

use ipstack::{IpStack, IpStackConfig, IpStackStream};
use peer_common::tun::{MTU, Tun};
use peer_common::{Args, asynchronous};

async fn run(args: Args) -> io::Result<()> {
    let tun = Tun::open(&args.device)?;
    let mut config = IpStackConfig::default();
    config.mtu(MTU).map_err(io::Error::other)?;
    let mut stack = IpStack::new(config, tun);
    peer_common::ready()?;
    loop {
        if let IpStackStream::Tcp(stream) = stack.accept().await.map_err(io::Error::other)? {
            tokio::spawn(asynchronous::serve(stream));
        }
    }
}

fn main() -> io::Result<()> {
    let args = Args::of_program()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(args))
}
