//! QUIC by quinn: a server that sends back what it gets, and a client that asks it once, each on a
//! stack of its own, over a link in memory.
//!
//! `cargo run -p plimsoll --features quinn --example quic_echo`

use std::error::Error;
use std::sync::Arc;

use plimsoll::{Stack, UdpSocket, device, quic};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};

/// For `localhost`, and for this example alone: the key is public.
const CERTIFICATE: &[u8] = include_bytes!("../tests/data/quic-cert.der");
const KEY: &[u8] = include_bytes!("../tests/data/quic-key.der");

type Failure = Box<dyn Error + Send + Sync>;

fn endpoint(
    stack: &Stack,
    address: &str,
    server: Option<ServerConfig>,
) -> Result<Endpoint, Failure> {
    let socket = quic::socket_on_tokio(UdpSocket::bind(stack, address)?)?;
    let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
    Ok(Endpoint::new_with_abstract_socket(config, server, socket, runtime)?)
}

/// Sends back what comes on each stream, until the client closes.
async fn serve(endpoint: Endpoint) -> Result<(), Failure> {
    let Some(incoming) = endpoint.accept().await else { return Ok(()) };
    let connection = incoming.await?;
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        send.write_all(&receive.read_to_end(64 * 1024).await?).await?;
        send.finish()?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let (here, there) = device::memory_link::pair(Default::default());
    let here = Stack::builder().device(here).address("192.0.2.1/24").build()?;
    let there = Stack::builder().device(there).address("192.0.2.2/24").build()?;

    let certificate = CertificateDer::from(CERTIFICATE);
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let server = tokio::spawn(serve(endpoint(&there, "192.0.2.2:443", Some(config))?));

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = endpoint(&here, "0.0.0.0:0", None)?;
    client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = client.connect("192.0.2.2:443".parse()?, "localhost")?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"ahoy").await?;
    send.finish()?;
    let answer = receive.read_to_end(64 * 1024).await?;
    println!("{}", String::from_utf8_lossy(&answer));
    connection.close(0_u32.into(), b"");
    server.await?
}
