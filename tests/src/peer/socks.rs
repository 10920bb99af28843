//! A SOCKS5 server (RFC 1928) that costs little: CONNECT to addresses, without authentication.
//!
//! Data goes from socket to socket through a pipe and is never copied into this program. Debian's
//! microsocks takes a whole processor where its client reads fast, and so would be what a
//! comparison of fast clients measures.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

use super::options::Options;
use super::workload::say;

/// Bytes that a pipe holds. It bounds what one call moves.
const PIPE: usize = 1 << 20;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
const REFUSED: u8 = 5;

/// Serves until it is ended.
pub(crate) fn server(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    say("ready")?;
    loop {
        let (client, _) = listener.accept().context("accepting")?;
        // What becomes of one client is of no concern to the others.
        thread::spawn(move || serve(client));
    }
}

fn serve(mut client: TcpStream) -> Result<()> {
    let target = request(&mut client)?;
    let connected = TcpStream::connect(target);
    let answer = if connected.is_ok() { SUCCEEDED } else { REFUSED };
    client.write_all(&[VERSION, answer, 0, IPV4, 0, 0, 0, 0, 0, 0]).context("answering")?;
    let server = connected.with_context(|| format!("connecting to {target}"))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
    }
    thread::scope(|scope| {
        let up = scope.spawn(|| carry(&client, &server));
        let down = carry(&server, &client);
        up.join().expect("carrying does not panic").and(down)
    })
}

/// Reads what the client wants: greeting and request.
fn request(client: &mut TcpStream) -> Result<SocketAddr> {
    let [version, methods] = bytes(client)?;
    ensure!(version == VERSION, "this is no SOCKS5");
    let mut offered = vec![0; usize::from(methods)];
    client.read_exact(&mut offered).context("reading methods")?;
    client.write_all(&[VERSION, 0]).context("choosing a method")?;
    let [_, command, _, kind] = bytes(client)?;
    ensure!(command == CONNECT, "command {command} is not known");
    let ip: IpAddr = match kind {
        IPV4 => Ipv4Addr::from(bytes::<4>(client)?).into(),
        IPV6 => Ipv6Addr::from(bytes::<16>(client)?).into(),
        _ => bail!("addresses of type {kind} are not known"),
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(bytes(client)?)))
}

fn bytes<const N: usize>(client: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).context("reading a request")?;
    Ok(bytes)
}

/// Carries what comes from one socket to the other until it ends, and passes the end on.
fn carry(from: &TcpStream, to: &TcpStream) -> Result<()> {
    let moved = pass_all(from, to);
    let _ = to.shutdown(Shutdown::Write);
    if moved.is_err() {
        // A sender must learn that its peer has gone.
        let _ = from.shutdown(Shutdown::Both);
    }
    moved
}

fn pass_all(from: &TcpStream, to: &TcpStream) -> Result<()> {
    let (read, write) = pipe().context("making a pipe")?;
    fcntl_setpipe_size(&write, PIPE).context("F_SETPIPE_SZ")?;
    loop {
        let flags = SpliceFlags::MOVE;
        let mut held = splice(from, None, &write, None, PIPE, flags).context("reading")?;
        if held == 0 {
            return Ok(());
        }
        while held > 0 {
            held -= splice(&read, None, to, None, held, flags).context("writing")?;
        }
    }
}
