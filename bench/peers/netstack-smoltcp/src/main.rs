//! netstack-smoltcp over TUN on a runtime of tokio with a thread for each processor: two tasks
//! carry packets between the device and the stack, and each connection has a task.

use std::io;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use netstack_smoltcp::{Stack, StackBuilder};
use peer_common::tun::{MTU, Tun};
use peer_common::{Args, asynchronous};

async fn run(args: Args) -> io::Result<()> {
    let tun = Arc::new(Tun::open(&args.device)?);
    let builder = StackBuilder::default().enable_tcp(true).mtu(MTU.into());
    let (stack, runner, _, listener) = builder.build()?;
    tokio::spawn(runner.ok_or_else(|| io::Error::other("a stack with TCP has a runner"))?);
    let mut listener =
        listener.ok_or_else(|| io::Error::other("a stack with TCP has a listener"))?;
    tokio::spawn(carry(tun, stack));
    peer_common::ready()?;
    while let Some((stream, ..)) = listener.next().await {
        tokio::spawn(asynchronous::serve(stream));
    }
    Ok(())
}

/// Carries packets both ways. What the device does not take is lost.
async fn carry(tun: Arc<Tun>, stack: Stack) {
    let (mut to_stack, mut from_stack) = stack.split();
    let out = tun.clone();
    tokio::spawn(async move {
        while let Some(Ok(packet)) = from_stack.next().await {
            let _ = out.send(&packet).await;
        }
    });
    let mut packet = vec![0; MTU.into()];
    while let Ok(count) = tun.receive(&mut packet).await {
        let _ = to_stack.send(packet[..count].to_vec()).await;
    }
}

fn main() -> io::Result<()> {
    let args = Args::of_program()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(args))
}
