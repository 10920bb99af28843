//! Writes with flags, shared buffers, files, and data in the SYN.
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{
    Connector, ErrorReport, SetOption, Slice, Stack, TcpListener, TcpStream, WriteFlags,
};

fn builders() -> [plimsoll::StackBuilder; 2] {
    let (here, there) = memory_link::pair(LinkConfig::default());
    [(here, 1), (there, 2)].map(|(device, number)| {
        Stack::builder()
            .device(device)
            .address(format!("192.0.2.{number}/24"))
            .sysctl("net.ipv4.tcp_fastopen", "3")
    })
}

/// A connection between two stacks with threads.
fn connected() -> (TcpStream, TcpStream) {
    let [client, server] = builders().map(|builder| builder.build().unwrap());
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let near = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// A connection between two stacks without threads, whose far end does nothing any more.
fn connected_to_nobody() -> (TcpStream, Stack) {
    let [client, server] = builders().map(|builder| builder.build_without_thread().unwrap());
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let near = Connector::new(&client).start(listener.local_addr().unwrap()).unwrap();
    while client.poll().worked | server.poll().worked {}
    (near, server)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 % 251) as u8).collect()
}

fn file_of(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

fn read_all(mut stream: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn a_file_arrives_whole_and_a_part_as_asked() {
    let content = bytes(1_000_003);
    let file = file_of(&content);
    let (near, far) = connected();
    let reader = read_all(far);
    assert_eq!(near.send_file(&file, 0, content.len() as u64).unwrap(), 1_000_003);
    assert_eq!(near.send_file(&file, 999_000, u64::MAX).unwrap(), 1003);
    assert_eq!(near.send_file(&file, 5, 7).unwrap(), 7);
    assert_eq!(near.send_file(&file, 2_000_000, 7).unwrap(), 0);
    assert_eq!(near.send_file(&file, 0, 0).unwrap(), 0);
    near.shutdown(Shutdown::Write).unwrap();
    let expected = [&content[..], &content[999_000..], &content[5..12]].concat();
    assert!(reader.join().unwrap() == expected);
}

/// A hint that more follows, and then nothing follows: the tail would wait for an ACK or a timer.
#[test]
fn the_last_piece_of_a_file_leaves_at_once_also_where_the_file_ends_early() {
    for (len, asked) in [(10_000, 10_000), (10_000, 1 << 20), (1, 2), (5793, u64::MAX)] {
        let (near, _server) = connected_to_nobody();
        near.set_nonblocking(true).unwrap();
        let sent = near.send_file(&file_of(&bytes(len)), 0, asked).unwrap();
        assert_eq!(sent, len as u64);
        let info = near.info();
        assert_eq!(info.notsent_bytes, 0, "{len} bytes, {asked} asked for: {:?}", info.hold);
    }
}

#[test]
fn more_holds_a_tail_and_what_follows_takes_it_along() {
    let (near, _server) = connected_to_nobody();
    let more = WriteFlags { more: true, ..WriteFlags::default() };
    near.write_with(&[IoSlice::new(b"head "), IoSlice::new(b"of it ")], more).unwrap();
    assert_eq!(near.info().notsent_bytes, 11);
    near.write_with(&[IoSlice::new(b"body")], WriteFlags::default()).unwrap();
    let info = near.info();
    assert_eq!((info.notsent_bytes, info.data_segs_out), (0, 1));
}

#[test]
fn a_cork_holds_a_tail_until_it_is_taken_out() {
    let (near, _server) = connected_to_nobody();
    near.set_cork(true).unwrap();
    assert!(near.cork().unwrap());
    (&near).write_all(b"corked").unwrap();
    assert_eq!(near.info().notsent_bytes, 6);
    near.set_cork(false).unwrap();
    assert_eq!(near.info().notsent_bytes, 0);
}

#[test]
fn many_parts_are_written_whole() {
    let content = bytes(300 * 1000);
    let parts: Vec<IoSlice<'_>> = content.chunks(1000).map(IoSlice::new).collect();
    let slices: Vec<Slice> =
        content.chunks(1000).map(|part| Slice::from_owner(part.to_vec())).collect();
    let (near, far) = connected();
    near.set_send_buffer_size(20_000).unwrap();
    let reader = read_all(far);
    assert_eq!(near.write_with(&parts, WriteFlags::default()).unwrap(), content.len());
    assert_eq!(near.write_shared(&slices, WriteFlags::default()).unwrap(), content.len());
    near.shutdown(Shutdown::Write).unwrap();
    assert!(reader.join().unwrap() == [&content[..], &content[..]].concat());
}

struct Buffer {
    bytes: Vec<u8>,
    free: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.free.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_shared_buffer_is_reported_and_then_free() {
    let (near, mut far) = connected();
    near.set_option(SetOption::ZeroCopy(true)).unwrap();
    let free = Arc::new(AtomicBool::new(false));
    let buffer = Slice::from_owner(Buffer { bytes: bytes(50_000), free: free.clone() });
    let flags = WriteFlags { zerocopy: true, ..WriteFlags::default() };
    assert_eq!(near.write_shared(&[buffer], flags).unwrap(), 50_000);
    let mut read = vec![0; 50_000];
    far.read_exact(&mut read).unwrap();
    assert!(read == bytes(50_000));
    // The peer has it all; its last ACK may still be on its way.
    far.write_all(b"x").unwrap();
    far.flush().unwrap();
    (&near).read_exact(&mut [0]).unwrap();
    let reports: Vec<ErrorReport> = std::iter::from_fn(|| near.take_report()).collect();
    assert!(!reports.is_empty());
    assert!(
        reports.iter().all(|report| matches!(report, ErrorReport::ZeroCopy { copied: false, .. }))
    );
    let _stacks = (near.stack().clone(), far.stack().clone());
    drop((near, far));
    // The last packets are dropped by a thread that polls.
    while !free.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

#[test]
fn a_request_travels_in_the_syn_once_a_cookie_is_known() {
    let [client, server] = builders().map(|builder| builder.build().unwrap());
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    listener.set_fast_open_queue(16);
    assert_eq!(listener.fast_open_queue(), 16);
    let address: SocketAddr = "192.0.2.2:7".parse().unwrap();
    let content = bytes(3000);
    for round in 0..2 {
        let near = Connector::new(&client).connect_with_data(address, &content).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut read = vec![0; content.len()];
        far.read_exact(&mut read).unwrap();
        assert!(read == content, "round {round}");
        drop(near);
    }
    assert_eq!(client.core().counter("TcpExtTCPFastOpenActive"), Some(1));
    assert_eq!(server.core().counter("TcpExtTCPFastOpenPassive"), Some(1));
}

#[test]
fn a_rate_of_zero_is_refused() {
    let (near, _far) = connected();
    assert!(near.set_max_pacing_rate(Some(0)).is_err());
    near.set_max_pacing_rate(Some(1 << 20)).unwrap();
    near.set_max_pacing_rate(None).unwrap();
    near.set_notsent_lowat(Some(4096)).unwrap();
    assert_eq!(near.options().notsent_lowat, Some(4096));
    near.set_autocork(Some(false)).unwrap();
    near.set_tso_tail(Some(plimsoll::TsoTail::Trim)).unwrap();
    assert_eq!(near.options().tso_tail, Some(plimsoll::TsoTail::Trim));
}
