//! Pipes, splice, sendfile.

use std::io::Write;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, Errno, Out, ReceiveVia, Reply, SpliceEnd};

fn pipe(w: &mut World, side: Side, flags: i32) -> (i32, i32) {
    match w.full(side, Call::Pipe { flags }) {
        Reply { result: Ok(0), out: Out::Pipe([read, write]) } => (read, write),
        other => panic!("{other:?}"),
    }
}

fn splice(from: i32, to: i32, len: usize) -> Call {
    let [from, to] = [from, to].map(|fd| SpliceEnd { fd, offset: None });
    Call::Splice { from, to, len, flags: 0 }
}

fn read_call(fd: i32, room: usize) -> Call {
    let buffers = vec![crate::posix::Dest::Room(room)];
    Call::Receive { via: ReceiveVia::Read, fd, buffers, flags: 0, control_len: 0 }
}

fn write_call(fd: i32, len: usize) -> Call {
    let buffers = vec![crate::posix::Source::Bytes(vec![7; len])];
    let via = crate::posix::SendVia::Write;
    Call::Send { via, fd, buffers, flags: 0, to: None, control: Vec::new() }
}

#[test]
fn a_pipe_alone() {
    let mut w = World::new();
    let (read, write) = pipe(&mut w, A, O_NONBLOCK);
    assert_eq!(w.call(A, read_call(read, 10)), Err(Errno::EAGAIN));
    assert_eq!(w.call(A, read_call(write, 10)), Err(Errno::EBADF));
    assert_eq!(w.call(A, write_call(read, 10)), Err(Errno::EBADF));
    assert_eq!(w.call(A, write_call(write, 65_000)), Ok(65_000));
    assert_eq!(w.call(A, write_call(write, 4096)), Err(Errno::EAGAIN), "not torn");
    assert_eq!(w.call(A, write_call(write, 5000)), Ok(536));
    assert_eq!(w.call(A, Call::Ioctl { fd: read, request: FIONREAD, arg: Some(0) }), Ok(0));
    assert_eq!(w.call(A, read_call(read, 70_000)), Ok(65_536));
    assert_eq!(w.call(A, send(write, b"x", 0)), Err(Errno::ENOTSOCK));
    assert_eq!(w.call(A, Call::Close { fd: write }), Ok(0));
    assert_eq!(w.call(A, read_call(read, 1)), Ok(0), "nobody writes any more");
    let (read, write) = pipe(&mut w, A, 0);
    assert_eq!(w.call(A, Call::Close { fd: read }), Ok(0));
    assert_eq!(w.call(A, write_call(write, 1)), Err(Errno::EPIPE));
}

#[test]
fn from_a_socket_through_a_pipe_into_a_socket() {
    let mut w = World::new();
    let (client, server) = w.open();
    let (read, write) = pipe(&mut w, B, 0);
    let (waits, _) = w.sleeps(B, splice(server, write, 100));
    assert_eq!(w.write(A, client, &[1; 150]), Ok(150));
    assert_eq!(done(w.resume(B, waits)).result, Ok(100));
    assert_eq!(w.call(B, splice(read, server, 1000)), Ok(100), "no more than there is");
    assert_eq!(w.read(A, client, 1000), Ok(vec![1; 100]));
    let (waits, _) = w.sleeps(B, splice(read, server, 10));
    assert_eq!(w.call(B, splice(server, write, 500)), Ok(50));
    assert_eq!(done(w.resume(B, waits)).result, Ok(10));
    assert_eq!(w.read(A, client, 1000).map(|data| data.len()), Ok(10));
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(w.call(B, splice(server, write, 500)), Ok(0), "the end of the stream");
}

#[test]
fn an_urgent_byte_stops_splice() {
    let mut w = World::new();
    let (client, server) = w.open();
    let (_, write) = pipe(&mut w, B, 0);
    assert_eq!(w.call(A, send(client, &[1; 100], MSG_OOB)), Ok(100));
    assert_eq!(w.call(B, splice(server, write, 99)), Ok(99));
    assert_eq!(w.call(B, splice(server, write, 1)), Ok(0));
}

#[test]
fn arguments_of_splice() {
    let mut w = World::new();
    let (client, _) = w.open();
    let (read, write) = pipe(&mut w, A, 0);
    assert_eq!(w.call(A, splice(client, client, 0)), Ok(0));
    assert_eq!(w.call(A, splice(client, client, 1)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, splice(99, write, 1)), Err(Errno::EBADF));
    assert_eq!(w.call(A, splice(write, read, 1)), Err(Errno::EBADF));
    assert_eq!(w.call(A, splice(read, write, 1)), Err(Errno::EINVAL), "one pipe");
    let at = |fd, offset| SpliceEnd { fd, offset };
    let call = |from, to| Call::Splice { from, to, len: 1, flags: 0 };
    assert_eq!(w.call(A, call(at(read, Some(0)), at(client, None))), Err(Errno::ESPIPE));
    assert_eq!(w.call(A, call(at(client, Some(0)), at(write, None))), Err(Errno::EINVAL));
}

#[test]
fn files_are_sent() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[9; 100_000]).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let mut w = World::new();
    let (client, server) = w.open();
    let missing = Call::Open { path: format!("{path}-no"), flags: O_RDONLY };
    assert_eq!(w.call(A, missing), Err(Errno::ENOENT));
    let in_fd = w.fd(A, Call::Open { path, flags: O_RDONLY });
    let sendfile = |offset, count| Call::Sendfile { out_fd: client, in_fd, offset, count };
    let reply = w.full(A, sendfile(Some(99_990), 100));
    assert_eq!(reply.result, Ok(10));
    assert_eq!(reply.out, Out::Offsets { from: Some(100_000), to: None });
    assert_eq!(w.call(A, sendfile(Some(-1), 1)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, read_call(in_fd, 5)), Ok(5), "the position has not moved");
    let mut total = 10;
    let mut progress = w.start(A, sendfile(None, 200_000));
    let sent = loop {
        total += w.read(B, server, 200_000).map_or(0, |data| data.len());
        w.settle();
        match progress {
            crate::posix::Progress::Done(reply) => break reply.result,
            crate::posix::Progress::Blocked { pending, .. } => progress = w.resume(A, pending),
        }
    };
    assert_eq!(sent, Ok(99_995));
    while total < 10 + 99_995 {
        total += w.read(B, server, 200_000).unwrap().len();
    }
    assert_eq!(w.call(A, sendfile(None, 10)), Ok(0), "the end of the file");
}

/// Descriptors up to 4 only.
struct Two(Vec<i32>);

impl crate::posix::descriptors::Numbers for Two {
    fn take(&mut self) -> Result<i32, Errno> {
        self.0.pop().ok_or(Errno::EMFILE)
    }

    fn give_back(&mut self, fd: i32) {
        self.0.push(fd);
    }
}

#[test]
fn half_a_pipe_is_none() {
    let mut w = World::new();
    let stack = w.side(A).stack.clone();
    *w.side(A) = crate::posix::Process::with_numbers(stack, Box::new(Two(vec![4, 3])));
    let socket = w.socket(A, 2);
    assert_eq!(w.call(A, Call::Pipe { flags: 0 }), Err(Errno::EMFILE));
    assert_eq!(w.call(A, Call::Close { fd: socket }), Ok(0));
    pipe(&mut w, A, 0);
}
