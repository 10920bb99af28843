//! QUIC by quinn on our sockets.
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Stack, UdpSocket, quic};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};

/// A certificate for `localhost`, and its key. They are made for this test alone.
const CERTIFICATE: &[u8] = include_bytes!("../data/quic-cert.der");
const KEY: &[u8] = include_bytes!("../data/quic-key.der");

/// Two stacks that are joined by a link.
fn pair(link: LinkConfig) -> (Stack, Stack) {
    let (here, there) = memory_link::pair(link);
    let build =
        |device, address: &str| Stack::builder().device(device).address(address).build().unwrap();
    (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"))
}

fn socket(stack: &Stack, address: &str) -> Arc<dyn AsyncUdpSocket> {
    quic::socket(UdpSocket::bind(stack, address).unwrap()).unwrap()
}

fn endpoint(stack: &Stack, address: &str, server: Option<ServerConfig>) -> Endpoint {
    let (socket, runtime) = (socket(stack, address), Arc::new(TokioRuntime));
    let config = EndpointConfig::default();
    Endpoint::new_with_abstract_socket(config, server, socket, runtime).unwrap()
}

fn server_config() -> ServerConfig {
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec());
    ServerConfig::with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key.into()).unwrap()
}

fn client_config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).unwrap();
    ClientConfig::with_root_certificates(Arc::new(roots)).unwrap()
}

#[tokio::test]
async fn a_socket_has_what_quinn_wants() {
    let (here, there) = pair(LinkConfig::default());
    let server = socket(&there, "192.0.2.2:443");
    let client = socket(&here, "0.0.0.0:0");
    assert!(!client.may_fragment());
    assert_eq!((client.max_transmit_segments(), server.max_receive_segments()), (64, 64));
    let contents: Vec<u8> = (0..2500_u32).map(|byte| byte as u8).collect();
    let transmit = Transmit {
        destination: "192.0.2.2:443".parse().unwrap(),
        ecn: Some(EcnCodepoint::Ect0),
        contents: &contents,
        segment_size: Some(1000),
        src_ip: Some("192.0.2.1".parse().unwrap()),
    };
    client.try_send(&transmit).unwrap();
    // A probe that is too long is lost, and no error.
    client.try_send(&Transmit { segment_size: None, ..transmit.clone() }).unwrap();
    let (mut first, mut second) = (vec![0; 65_535], vec![0; 65_535]);
    let mut meta = [RecvMeta::default(); 2];
    let count = poll_fn(|cx| {
        let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        server.poll_recv(cx, &mut bufs, &mut meta)
    });
    assert_eq!(count.await.unwrap(), 1);
    let from: SocketAddr = client.local_addr().unwrap();
    let got = &meta[0];
    assert_eq!((got.len, got.stride, got.ecn), (2500, 1000, Some(EcnCodepoint::Ect0)));
    assert_eq!((got.addr.port(), got.dst_ip), (from.port(), Some(IpAddr::from([192, 0, 2, 2]))));
    assert_eq!(first[..2500], contents);
    let mut poller = client.create_io_poller();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(poller.as_mut().poll_writable(&mut cx), Poll::Ready(Ok(()))));
}

#[tokio::test]
async fn a_train_of_jumbo_frames_arrives_whole_and_what_is_lost_is_counted() {
    let (here, there) = pair(LinkConfig::default().mtu(9000));
    let server = socket(&there, "192.0.2.2:443");
    let client = socket(&here, "192.0.2.1:0");
    let contents: Vec<u8> = (0..10 * 8952_u32).map(|at| (at / 8952) as u8).collect();
    let transmit = Transmit {
        destination: "192.0.2.2:443".parse().unwrap(),
        ecn: None,
        contents: &contents,
        segment_size: Some(8952),
        src_ip: None,
    };
    client.try_send(&transmit).unwrap();
    let (mut buf, mut got) = (vec![0; 65_535], Vec::new());
    while got.len() < contents.len() {
        let mut meta = [RecvMeta::default()];
        let read = poll_fn(|cx| server.poll_recv(cx, &mut [IoSliceMut::new(&mut buf)], &mut meta));
        assert_eq!(read.await.unwrap(), 1);
        assert_eq!(meta[0].stride, 8952);
        got.extend_from_slice(&buf[..meta[0].len]);
    }
    assert!(got == contents);
    let lost = || {
        let counters = here.counters();
        counters.iter().find(|(name, _)| *name == "plimsoll.UdpSendsLost").unwrap().1
    };
    assert_eq!(lost(), 0);
    client.try_send(&Transmit { segment_size: Some(8973), ..transmit }).unwrap();
    assert_eq!(lost(), 10, "no datagram fits the link");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_arrives_whole_also_through_a_narrow_link() {
    let narrow = LinkConfig::default().rate(Some(200_000_000));
    for (link, megabytes) in [(LinkConfig::default(), 16), (narrow, 2)] {
        let (here, there) = pair(link);
        let server = endpoint(&there, "192.0.2.2:443", Some(server_config()));
        let mut client = endpoint(&here, "0.0.0.0:0", None);
        client.set_default_client_config(client_config());
        let serving = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut stream = connection.accept_uni().await.unwrap();
            let data = stream.read_to_end(64 << 20).await.unwrap();
            let mut answer = connection.open_uni().await.unwrap();
            answer.write_all(&sum(&data).to_be_bytes()).await.unwrap();
            answer.finish().unwrap();
            connection.closed().await;
            data.len()
        });
        let connecting = client.connect("192.0.2.2:443".parse().unwrap(), "localhost");
        let connection = connecting.unwrap().await.unwrap();
        let data: Vec<u8> = (0..megabytes << 20_u32).map(|n: u32| (n ^ n >> 9) as u8).collect();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&data).await.unwrap();
        stream.finish().unwrap();
        let answer = connection.accept_uni().await.unwrap().read_to_end(8).await.unwrap();
        assert_eq!(answer, sum(&data).to_be_bytes());
        connection.close(0_u32.into(), b"done");
        assert_eq!(serving.await.unwrap(), data.len());
        client.wait_idle().await;
    }
}

#[test]
fn an_endpoint_on_tokio_needs_a_runtime_when_it_is_made() {
    let (here, _there) = pair(LinkConfig::default());
    let made = || quic::socket_on_tokio(UdpSocket::bind(&here, "192.0.2.1:0").unwrap());
    let error = made().unwrap_err().to_string();
    assert!(error.starts_with("quic::socket_on_tokio has to be called on tokio: "), "{error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async { made().map(drop) }).unwrap();
}

#[cfg(unix)]
#[test]
#[should_panic(expected = "IO is disabled")]
fn an_endpoint_on_tokio_needs_the_io_driver_when_it_is_made() {
    let (here, _there) = pair(LinkConfig::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let socket = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    drop(runtime.block_on(async { quic::socket_on_tokio(socket) }));
}

#[tokio::test]
async fn a_socket_for_both_versions_knows_its_ipv4_peers_again() {
    let (here, there) = pair(LinkConfig::default());
    let server = endpoint(&there, "192.0.2.2:443", Some(server_config()));
    let mut client = endpoint(&here, "[::]:0", None);
    client.set_default_client_config(client_config());
    let connecting = client.connect("192.0.2.2:443".parse().unwrap(), "localhost").unwrap();
    let (near, far) = tokio::join!(connecting, async { server.accept().await.unwrap().await });
    let (near, far) = (near.unwrap(), far.unwrap());
    assert_eq!(near.remote_address(), "[::ffff:192.0.2.2]:443".parse().unwrap());
    assert_eq!(far.remote_address().ip(), IpAddr::from([192, 0, 2, 1]));
}

/// A checksum that notices when bytes change places (FNV-1a).
fn sum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
