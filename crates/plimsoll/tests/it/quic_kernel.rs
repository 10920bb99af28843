//! QUIC by quinn over TUN, on our sockets and on those of the host's kernel, in a network namespace
//! of its own.
//!
//! Needs root, `unshare`, `ip` and `/dev/net/tun`. Plain `cargo test` lists the test as ignored;
//! `cargo xtask test` runs it where it can.
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll::device::tun::{self, TunConfig};
use plimsoll::net::Driver;
use plimsoll::{Stack, StackBuilder, UdpSocket, quic};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};

use crate::namespace::{ip, isolated};

const CERTIFICATE: &[u8] = include_bytes!("../data/quic-cert.der");
const KEY: &[u8] = include_bytes!("../data/quic-key.der");

/// The amount sent, in bytes.
const LEN: u32 = 24 << 20;

/// The kernel is 192.0.2.1.
fn builder() -> StackBuilder {
    let device = tun::open(TunConfig::default().name("tun0").up(true)).unwrap();
    ip("address add 192.0.2.1/24 dev tun0");
    Stack::builder().device(device).address("192.0.2.2/24")
}

fn counter(stack: &Stack, name: &str) -> u64 {
    let counters = stack.counters();
    counters.iter().find(|(known, _)| *known == name).map(|&(_, count)| count).unwrap()
}

/// A server on our socket, to which a client on the kernel's sends.
async fn carries_a_stream(stack: &Stack, port: u16) {
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec());
    let certificates = vec![CertificateDer::from(CERTIFICATE)];
    let config = ServerConfig::with_single_cert(certificates, key.into()).unwrap();
    let address = SocketAddr::from(([192, 0, 2, 2], port));
    let socket = UdpSocket::bind(stack, address).unwrap();
    let socket = quic::socket_on_tokio(socket).unwrap();
    let (endpoint, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    let server =
        Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
    let mut client = Endpoint::client("192.0.2.1:0".parse().unwrap()).unwrap();
    client
        .set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots)).unwrap());
    let data: Vec<u8> = (0..LEN).map(|at| (at ^ at >> 9) as u8).collect();
    let sending = {
        let data = data.clone();
        tokio::spawn(async move {
            let connection = client.connect(address, "localhost").unwrap().await.unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(&data).await.unwrap();
            stream.finish().unwrap();
            stream.stopped().await.unwrap();
            connection.close(0_u32.into(), b"done");
            client.wait_idle().await;
        })
    };
    let connection = server.accept().await.unwrap().await.unwrap();
    let mut stream = connection.accept_uni().await.unwrap();
    let received = stream.read_to_end(LEN as usize).await.unwrap();
    assert!(received == data, "what arrived differs");
    sending.await.unwrap();
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn streams_arrive_at_endpoints_that_the_devices_wake() {
    isolated("quic_kernel::streams_arrive_at_endpoints_that_the_devices_wake", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let stack = builder().build().unwrap();
        // Only a fast stream is watched for, and other programs may slow one down.
        let watched = (0..20).any(|_| {
            // The runtime watches the devices for one of them at a time.
            runtime.block_on(async {
                tokio::join!(carries_a_stream(&stack, 443), carries_a_stream(&stack, 444))
            });
            counter(&stack, "plimsoll.WatcherPolls") > 0
        });
        assert!(watched, "neither endpoint has looked into the devices by itself");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_stream_arrives_at_an_endpoint_beside_a_driver() {
    isolated("quic_kernel::a_stream_arrives_at_an_endpoint_beside_a_driver", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stack = builder().build_without_thread().unwrap();
        runtime.block_on(async {
            let driver = tokio::spawn(Driver::new(&stack).unwrap());
            carries_a_stream(&stack, 443).await;
            driver.abort();
        });
    });
}
