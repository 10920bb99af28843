//! The calls of std's and tokio's sockets, on theirs and on ours: each macro is expanded for both,
//! so that what compiles for the one compiles for the other, and both must answer the same. The
//! table is in `docs/tokio-api.md`, and names only what is called here.
use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use plimsoll::Stack;

fn stack() -> Stack {
    Stack::builder().loopback_only().build().unwrap()
}

/// The result of a call as text, without the parts that must differ.
fn said<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

macro_rules! calls_of_std_streams {
    ($near:ident, $far:ident) => {{
        #[allow(unused_imports, reason = "an extension trait of std's streams, not of ours")]
        use std::os::linux::net::TcpStreamExt as _;
        let (mut near, mut far) = ($near, $far);
        let mut answers = Vec::new();
        assert_eq!(near.local_addr().unwrap(), far.peer_addr().unwrap());
        answers.push(said(near.nodelay()));
        near.set_nodelay(true).unwrap();
        answers.push(said(near.nodelay()));
        near.set_quickack(false).unwrap();
        answers.push(said(near.quickack()));
        answers.push(said(near.ttl()));
        near.set_ttl(42).unwrap();
        answers.push(said(near.ttl()));
        answers.push(said(near.set_ttl(256)));
        answers.push(said(near.read_timeout()));
        answers.push(said(near.set_read_timeout(Some(Duration::ZERO))));
        near.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
        answers.push(said(near.read_timeout()));
        answers.push(said(near.read(&mut [0; 8])));
        near.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        answers.push(said(near.write_timeout()));
        answers.push(format!("{:?}", near.take_error().unwrap().is_none()));
        near.set_nonblocking(true).unwrap();
        answers.push(said(near.read(&mut [0; 8])));
        answers.push(said(near.peek(&mut [0; 8])));
        near.set_nonblocking(false).unwrap();
        let mut clone = near.try_clone().unwrap();
        answers.push(said(clone.write(b"ahoy")));
        answers.push(said(near.write_vectored(&[IoSlice::new(b", "), IoSlice::new(b"there")])));
        near.flush().unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        answers.push(said(near.write(b"more")));
        let mut text = String::new();
        answers.push(said(far.peek(&mut [0; 2])));
        let mut parts = [[0; 2], [0; 2]];
        let [one, two] = &mut parts;
        let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
        answers.push(said(far.read_vectored(&mut parts)));
        answers.push(said(far.read_to_string(&mut text)));
        answers.push(text);
        answers
    }};
}

macro_rules! calls_of_std_listeners {
    ($listener:ident, $connect:expr) => {{
        let listener = $listener;
        let mut answers = Vec::new();
        let address: SocketAddr = listener.local_addr().unwrap();
        let clone = listener.try_clone().unwrap();
        clone.set_ttl(9).unwrap();
        answers.push(said(listener.ttl()));
        answers.push(format!("{:?}", listener.take_error().unwrap().is_none()));
        listener.set_nonblocking(true).unwrap();
        answers.push(said(listener.accept().map(|_| ())));
        listener.set_nonblocking(false).unwrap();
        let _streams = [$connect(address), $connect(address)];
        let (accepted, peer) = listener.accept().unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), peer);
        answers.push(said(accepted.ttl()));
        let another = listener.incoming().next().unwrap().unwrap();
        answers.push(said(another.nodelay()));
        answers
    }};
}

#[test]
fn blocking_sockets_answer_as_those_of_std() {
    let theirs = {
        use std::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let mut answers = calls_of_std_streams!(near, far);
        let connect =
            |address| TcpStream::connect_timeout(&address, Duration::from_secs(9)).unwrap();
        answers.extend(calls_of_std_listeners!(listener, connect));
        answers
    };
    let ours = {
        use plimsoll::{TcpListener, TcpStream};
        let stack = stack();
        let listener = TcpListener::bind(&stack, "127.0.0.1:0").unwrap();
        let near = TcpStream::connect(&stack, listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let mut answers = calls_of_std_streams!(near, far);
        let connect =
            |address| TcpStream::connect_timeout(&stack, &address, Duration::from_secs(9)).unwrap();
        answers.extend(calls_of_std_listeners!(listener, connect));
        answers
    };
    assert_eq!(ours, theirs);
}

/// Options without a stable name in std, options that only socket2 has, and deliberate differences.
#[test]
fn options_beside_those_of_std() {
    let stack = stack();
    let listener = plimsoll::TcpListener::bind(&stack, "127.0.0.1:0").unwrap();
    let near = plimsoll::TcpStream::connect(&stack, listener.local_addr().unwrap()).unwrap();
    near.set_tos(0x48).unwrap();
    assert_eq!(near.tos().unwrap(), 0x48);
    near.set_keepalive(Some(plimsoll::Keepalive::default().count(3))).unwrap();
    assert!(near.keepalive().unwrap());
    near.set_send_buffer_size(50_000).unwrap();
    assert_eq!(near.send_buffer_size().unwrap(), 100_000, "as Linux counts");
    near.set_recv_buffer_size(50_000).unwrap();
    assert_eq!(near.recv_buffer_size().unwrap(), 50_000, "bytes of data");
    assert_eq!(near.linger().unwrap(), None);
    near.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(near.linger().unwrap(), Some(Duration::ZERO));
    let refused = near.set_linger(Some(Duration::from_secs(1))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "a drop never blocks");
    assert!(!listener.only_v6().unwrap());
}

#[cfg(feature = "tokio")]
mod of_tokio {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

    use super::*;

    macro_rules! calls_of_tokio {
        ($($net:ident)::+) => {{
            #[allow(deprecated, reason = "tokio's are, and are there all the same")]
            #[allow(clippy::too_many_lines, reason = "one list of calls")]
            async fn calls() -> io::Result<Vec<String>> {
                use $($net)::+ as net;
                let mut answers = Vec::new();
                let socket = net::TcpSocket::new_v4()?;
                socket.set_reuseaddr(true)?;
                answers.push(said(socket.reuseaddr()));
                socket.set_reuseport(true)?;
                answers.push(said(socket.reuseport()));
                answers.push(format!("{:?}", socket.take_error()?.is_none()));
                answers.push(said(socket.local_addr()));
                socket.bind("127.0.0.1:0".parse().unwrap())?;
                let listener: net::TcpListener = socket.listen(16)?;
                listener.set_ttl(77)?;
                answers.push(said(listener.ttl()));
                let address = listener.local_addr()?;

                let socket = net::TcpSocket::new_v4()?;
                socket.set_keepalive(true)?;
                answers.push(said(socket.keepalive()));
                socket.set_send_buffer_size(60_000)?;
                answers.push(said(socket.send_buffer_size()));
                socket.set_recv_buffer_size(60_000)?;
                answers.push(said(socket.recv_buffer_size()));
                socket.set_nodelay(true)?;
                answers.push(said(socket.nodelay()));
                socket.set_tos_v4(0x48)?;
                answers.push(said(socket.tos_v4()));
                socket.set_tos(0x28)?;
                answers.push(said(socket.tos()));
                socket.set_linger(Some(Duration::from_secs(3)))?;
                answers.push(said(socket.linger()));
                socket.set_zero_linger()?;
                answers.push(said(socket.linger()));
                socket.set_linger(None)?;
                let v6 = net::TcpSocket::new_v6()?;
                v6.set_tclass_v6(0x48)?;
                answers.push(said(v6.tclass_v6()));
                let near = socket.connect(address).await?;
                let (mut far, peer) = listener.accept().await?;
                assert_eq!((near.local_addr()?, near.peer_addr()?), (peer, address));
                answers.push(said(near.nodelay()));
                near.set_nodelay(false)?;
                near.set_quickack(false)?;
                answers.push(said(near.quickack()));
                near.set_ttl(11)?;
                answers.push(said(near.ttl()));
                answers.push(said(far.ttl()));
                near.set_linger(None)?;
                answers.push(said(near.linger()));
                answers.push(format!("{:?}", near.take_error()?.is_none()));

                near.writable().await?;
                answers.push(said(near.try_write(b"ahoy")));
                answers.push(said(near.try_write_vectored(&[IoSlice::new(b", there")])));
                answers.push(format!("{}", near.ready(Interest::WRITABLE).await?.is_writable()));
                poll_fn(|cx| near.poll_write_ready(cx)).await?;
                far.readable().await?;
                poll_fn(|cx| far.poll_read_ready(cx)).await?;
                // The second write may arrive later: Nagle holds it until the first is
                // acknowledged.
                let both = async {
                    while far.peek(&mut [0; 16]).await? < b"ahoy, there".len() {
                        tokio::task::yield_now().await;
                    }
                    io::Result::Ok(())
                };
                tokio::time::timeout(Duration::from_secs(60), both).await??;
                answers.push(said(far.peek(&mut [0; 4]).await));
                let mut room = [0; 3];
                let mut room = tokio::io::ReadBuf::new(&mut room);
                answers.push(said(poll_fn(|cx| far.poll_peek(cx, &mut room)).await));
                answers.push(said(far.try_read(&mut [0; 2])));
                answers.push(said(far.try_read_vectored(&mut [IoSliceMut::new(&mut [0; 2])])));
                let mut rest = Vec::with_capacity(64);
                answers.push(said(far.try_read_buf(&mut rest)));
                answers.push(said(far.try_read(&mut [0; 2])));
                answers.push(said(far.try_io(Interest::READABLE, || Ok(()))));
                answers.push(said(near.async_io(Interest::WRITABLE, || Ok(7)).await));

                let (read, mut write) = near.into_split();
                write.write_all(b"halves").await?;
                write.shutdown().await?;
                let mut near = read.reunite(write).unwrap();
                {
                    let (mut read, mut write) = far.split();
                    let mut text = String::new();
                    answers.push(said(read.read_to_string(&mut text).await));
                    write.write_all(b"answer").await?;
                    write.shutdown().await?;
                }
                let mut text = String::new();
                near.read_to_string(&mut text).await?;
                answers.push(text);
                let near = net::TcpStream::from_std(near.into_std()?)?;
                drop(near);
                let listener = net::TcpListener::from_std(listener.into_std()?)?;
                let client = net::TcpStream::connect(address);
                let (client, accepted) =
                    tokio::join!(client, poll_fn(|cx| listener.poll_accept(cx)));
                let (_, write) = client?.into_split();
                write.forget();
                drop(accepted?);
                let bound = net::TcpListener::bind(("127.0.0.1", 0)).await?;
                let found = net::lookup_host(("127.0.0.1", bound.local_addr()?.port())).await?;
                answers.push(found.count().to_string());
                Ok(answers)
            }
            calls()
        }};
    }

    #[test]
    fn sockets_answer_as_those_of_tokio() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let theirs = runtime.block_on(calls_of_tokio!(tokio::net)).unwrap();
        let stack = stack();
        let ours = runtime.block_on(plimsoll::net::scope(&stack, calls_of_tokio!(plimsoll::net)));
        assert_eq!(ours.unwrap(), theirs);
    }
}

#[cfg(feature = "futures-io")]
#[test]
fn streams_have_the_traits_of_futures_io() {
    fn is<T: futures_io::AsyncRead + futures_io::AsyncWrite>() {}
    is::<plimsoll::TcpStream>();
}

/// The first column of the table names calls; each that is said to be there is called above.
#[test]
fn the_table_names_what_is_called_here() {
    let (table, calls) = (include_str!("../../../../docs/tokio-api.md"), include_str!("parity.rs"));
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (names, ours) = (cells.next().unwrap(), cells.next().unwrap());
        for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
            let called = [".", "::"].iter().any(|dot| calls.contains(&format!("{dot}{name}(")));
            assert_eq!(called, !ours.starts_with("not there"), "{name}: {ours}");
            named += 1;
        }
    }
    assert!(named > 50, "{named} calls in the table");
}
