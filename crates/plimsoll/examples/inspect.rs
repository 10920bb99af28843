//! Asks a stack about itself: its connections, why one sent what it sent, its queues and memory,
//! and what became of everything at the end.
//!
//! ```sh
//! cargo run --example inspect
//! ```

use std::io::{Read, Write};
use std::time::Duration;

use plimsoll::{
    BudgetUse, CongestionAlgorithm, ConnectionCounts, Connector, CounterGroup, CounterValue,
    DEFAULT_BACKLOG, DatagramInfo, Hold, Info, InterfaceMetrics, InterfaceStatus, Keepalive,
    ListenOn, ListenerMetrics, MemoryUse, Metrics, Options, QdiscSummary, Record, ShutdownReport,
    SocketSummary, Stack, State, SysctlError, TcpListener, TcpStream, TsoTail, UdpMemoryUse,
    UdpMetrics, UdpOptions, UdpSocket, UdpSocketSummary,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stack = Stack::builder().loopback_only().build()?;
    match stack.set_sysctl("net.ipv4.tcp_autocork", "0") {
        Err(SysctlError::Unknown { name, .. }) => println!("there is no {name}"),
        other => println!("unexpected: {other:?}"),
    }

    let on = ListenOn::Address("127.0.0.1:80".parse()?);
    let listener = TcpListener::bind_on(&stack, on, DEFAULT_BACKLOG, Options::default())?;
    let options = Options::default()
        .congestion(Some(CongestionAlgorithm::NewReno))
        .tso_tail(Some(TsoTail::Trim))
        .decision_log(Some(64));
    let mut near = Connector::new(&stack).options(options).connect("127.0.0.1:80".parse()?)?;
    near.set_keepalive(Some(Keepalive::default().idle(Duration::from_secs(30)).count(3)))?;
    let (mut far, _peer) = listener.accept()?;
    near.write_all(&[7; 3000])?;
    far.read_exact(&mut [0; 3000])?;

    connection(&near);
    datagrams(&stack)?;
    let BudgetUse { connections, half_open, .. } = stack.budget_use();
    println!("{connections} connections, {half_open} half open");
    sockets(&stack.sockets());
    metrics(&stack.metrics());
    for InterfaceStatus { name, mtu, error, .. } in stack.interfaces() {
        println!("{name}: MTU {mtu}, {}", error.map_or("up".to_owned(), |why| why.to_string()));
    }
    for QdiscSummary { interface, kind, stats, .. } in stack.qdiscs() {
        println!("{interface}: {}, {} packets", kind.name(), stats.dequeued);
    }

    drop(near);
    let report: ShutdownReport = stack.shutdown(Duration::from_millis(100));
    println!("cut off: {}, open: {}", report.cut_off, report.open);
    Ok(())
}

/// Prints the state of one connection.
fn connection(stream: &TcpStream) {
    let info: Info = stream.info();
    println!("{:?}, rtt {:?}, cwnd {}", info.state, info.rtt, info.snd_cwnd);
    for (hold, count) in Hold::ALL.iter().zip(info.holds).filter(|(_, count)| *count > 0) {
        println!("held {count} times by {}", hold.name());
    }
    let decisions: Vec<Record> = stream.decisions();
    decisions.iter().for_each(|decision| println!("{decision}"));
}

/// Prints what a UDP socket reports about a datagram, and about itself.
fn datagrams(stack: &Stack) -> std::io::Result<()> {
    let socket = UdpSocket::bind(stack, "127.0.0.1:0")?;
    socket.send_to(b"ahoy", socket.local_addr()?)?;
    let DatagramInfo { from, tos, ttl, .. } = socket.recv_train(&mut [0; 9])?.info;
    println!("from {from}, TOS {tos}, TTL {ttl}");
    let options: UdpOptions = socket.options();
    println!("SO_RCVBUF {}, SO_SNDBUF {}", options.rcvbuf, options.sndbuf);
    for UdpSocketSummary { local, remote, datagrams, .. } in stack.udp_sockets() {
        println!("udp {local} {remote:?}, {datagrams} unread");
    }
    Ok(())
}

/// All sockets, as `ss` shows them.
fn sockets(all: &[SocketSummary]) {
    for socket in all {
        let state = match socket.state {
            None => "LISTEN",
            Some(State::Established) => "ESTAB",
            Some(_) => "other",
        };
        println!("{state} {} {:?}", socket.local, socket.remote);
    }
}

/// All figures at one moment.
fn metrics(metrics: &Metrics) {
    let counts: &ConnectionCounts = &metrics.connections;
    println!("{} established, {} orphans", counts.established, counts.orphans);
    let memory: &MemoryUse = &metrics.memory;
    println!("{} bytes of {}", memory.bytes, memory.thresholds[2]);
    let udp: &UdpMetrics = &metrics.udp;
    let UdpMemoryUse { bytes, limit, .. } = udp.memory;
    println!("{} UDP sockets, {bytes} bytes of {limit}", udp.sockets);
    for CounterValue { name, value, .. } in metrics.group(CounterGroup::Tcp) {
        println!("{name} {value}");
    }
    for ListenerMetrics { local, accept_queue, backlog, .. } in &metrics.listeners {
        println!("{local}: {accept_queue} of {backlog} wait");
    }
    for InterfaceMetrics { name, tx, .. } in &metrics.interfaces {
        println!("{name}: {} packets sent", tx.packets);
    }
}
