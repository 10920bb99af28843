//! Hosts of any address, on a stack.

use std::net::Ipv4Addr;
use std::thread;

use anyhow::{Context, Result};
use plimsoll::{Stack, TcpListener, UdpFlowConfig, UdpListener, UdpSocket};

use crate::dns;
use crate::peer::options::Options;
use crate::peer::workload::say;

/// Takes any address: answers questions for names at the port of `ADDRESS` and connections at port
/// 80 until it is ended. With `--sysctl NAME=VALUE,...` the stack has other settings.
pub(super) fn serve(stack: &Stack, options: &Options) -> Result<()> {
    for pair in options.text("sysctl").into_iter().flat_map(|text| text.split(',')) {
        let (name, value) = pair.split_once('=').context("--sysctl NAME=VALUE")?;
        stack.set_sysctl(name, value)?;
    }
    let listener = TcpListener::bind_any_port(stack, 80).context("listening")?;
    thread::spawn(move || while listener.accept().is_ok() {});
    let port = options.address().port();
    let flows = UdpListener::bind_any_with(stack, port, UdpFlowConfig::default());
    let flows = flows.context("taking datagrams")?;
    say("ready")?;
    loop {
        let flow = flows.accept().context("accepting a flow")?;
        thread::spawn(move || {
            let mut buf = [0; 2048];
            while let Ok(len) = flow.recv(&mut buf) {
                let answer = dns::answer(&buf[..len]).expect("a question");
                flow.send(&answer).expect("there is room for one answer");
            }
        });
    }
}

/// Takes any address, and answers questions to the group of mDNS.
pub(super) fn mdns(stack: &Stack, options: &Options) -> Result<()> {
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let _any = TcpListener::bind_any_port(stack, 80).context("listening")?;
    let socket = UdpSocket::bind(stack, options.address()).context("binding")?;
    socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).context("joining the group")?;
    say("ready")?;
    let mut buf = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buf).context("receiving")?;
        socket.send_to(&dns::answer(&buf[..len])?, from).context("answering")?;
    }
}
