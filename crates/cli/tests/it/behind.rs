//! A test of a program behind a bad network, as users may write it: the server is in the test, and
//! the client runs behind a gateway.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Output;
use std::thread::{self, JoinHandle};

use plimsoll_gateway::Gateway;

/// The client: it sends what it reads to a server, and writes the answer.
const CLIENT: &str = "exec 3<>/dev/tcp/host.plimsoll/$0; cat >&3; echo >&3; cat <&3";
const ANSWER: usize = 300_000;

fn gateway() -> Gateway {
    Gateway::new().program(env!("CARGO_BIN_EXE_plimsoll")).host_loopback()
}

/// A server that answers one request of a line.
fn server() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {}
        stream.write_all(&[b'x'; ANSWER]).unwrap();
    };
    (address, thread::spawn(serve))
}

fn client(gateway: &Gateway, port: u16) -> Output {
    let mut command = gateway.command("bash");
    command.args(["-c", CLIENT, &port.to_string()]).stdin(std::process::Stdio::null());
    command.output().unwrap()
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn an_answer_arrives_over_a_bad_network() {
    let (address, server) = server();
    let bad = gateway().link("lte,loss=5%,seed=3").unwrap().link_up("delay=1ms").unwrap();
    let output = client(&bad.explain(), address.port());
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{report}");
    assert!(output.stdout == [b'x'; ANSWER], "{} bytes have arrived", output.stdout.len());
    assert!(report.contains(&format!(":{}: 1 connection, ", address.port())), "{report}");
    server.join().unwrap();
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_refusal_names_its_rule() {
    let (address, _server) = server();
    let output = client(&gateway().deny("host.plimsoll").unwrap(), address.port());
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{report}");
    assert!(report.contains("refused tcp 10.0.2.2:"), "{report}");
}

#[test]
fn wrong_values_are_named_before_anything_starts() {
    let error = |result: anyhow::Result<Gateway>| format!("{:#}", result.unwrap_err());
    assert!(error(gateway().allow("*.com")).starts_with("allow '*.com': "));
    assert!(error(gateway().link("5g")).contains("nor one of 3g, lte"));
    assert!(error(gateway().publish("80")).starts_with("publish '80': "));
}
