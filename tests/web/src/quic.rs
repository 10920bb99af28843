//! A stream of QUIC, by quinn on the kernel's sockets or on ours, each in a runtime of one thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll::net::Driver;
use plimsoll::{UdpSocket, quic};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use serde_json::json;

use crate::{Sockets, say, server};

/// For `localhost`, and for tests alone: everybody knows the key.
const CERTIFICATE: &[u8] = include_bytes!("../../../crates/plimsoll/tests/data/quic-cert.der");
const KEY: &[u8] = include_bytes!("../../../crates/plimsoll/tests/data/quic-key.der");

/// An endpoint at `address`.
fn endpoint(
    sockets: Sockets,
    device: String,
    address: SocketAddr,
    config: Option<ServerConfig>,
) -> Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    let stack = match sockets {
        Sockets::Kernel => {
            let socket = std::net::UdpSocket::bind(address).context("binding a UDP socket")?;
            let endpoint = Endpoint::new(EndpointConfig::default(), config, socket, runtime);
            return endpoint.context("making an endpoint");
        }
        Sockets::Thread => server::on_tun(device)?.build()?,
        Sockets::Driver => {
            let stack = server::on_tun(device)?.build_without_thread()?;
            tokio::spawn(Driver::new(&stack)?);
            stack
        }
    };
    let socket = UdpSocket::bind(&stack, address).context("binding a UDP socket of ours")?;
    let endpoint = EndpointConfig::default();
    // A driver polls the devices in any case.
    let socket = quic::socket_on_tokio(socket)?;
    Endpoint::new_with_abstract_socket(endpoint, config, socket, runtime)
        .context("making an endpoint of ours")
}

/// Takes one stream in, and reports what it brought.
pub(super) fn receive(address: SocketAddr, sockets: Sockets, device: String) -> Result<()> {
    server::runtime(1)?.block_on(async {
        let key = PrivatePkcs8KeyDer::from(KEY.to_vec());
        let config =
            ServerConfig::with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key.into())?;
        let endpoint = endpoint(sockets, device, address, Some(config))?;
        say("ready")?;
        let connection = endpoint.accept().await.context("nobody connects")?.await?;
        let mut stream = connection.accept_uni().await?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let mut bytes = 0;
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            bytes += chunk.bytes.len();
        }
        report(bytes, start.elapsed(), cpu_seconds() - cpu)?;
        // The peer closes once it has heard that all has arrived.
        connection.closed().await;
        Ok(())
    })
}

/// Sends one stream for some time, and reports what arrived.
pub(super) fn send(
    address: SocketAddr,
    sockets: Sockets,
    device: String,
    seconds: f64,
) -> Result<()> {
    server::runtime(1)?.block_on(async {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(CERTIFICATE))?;
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let mut endpoint = endpoint(sockets, device, any, None)?;
        endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
        let connection = endpoint.connect(address, "localhost")?.await?;
        let mut stream = connection.open_uni().await?;
        let block = vec![0x5a; 1 << 16];
        let limit = Duration::try_from_secs_f64(seconds)?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let mut bytes = 0;
        while start.elapsed() < limit {
            stream.write_all(&block).await?;
            bytes += block.len();
        }
        stream.finish()?;
        stream.stopped().await?;
        report(bytes, start.elapsed(), cpu_seconds() - cpu)?;
        connection.close(0_u32.into(), b"done");
        endpoint.wait_idle().await;
        Ok(())
    })
}

fn report(bytes: usize, took: Duration, cpu: f64) -> Result<()> {
    let seconds = took.as_secs_f64();
    say(&json!({ "bytes": bytes, "seconds": seconds, "cpu_seconds": cpu }).to_string())
}

/// Processor time of this process so far, user and system.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
