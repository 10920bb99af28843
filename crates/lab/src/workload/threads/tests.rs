//! Runs whose sockets or threads fail.

use std::io::{Empty, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::figures::Counters;
use crate::workload::{RequestResponse, Sides};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// The client panics when it connects.
    Panics,
    /// The server cannot accept.
    Accept,
    /// The server cannot send without a copy.
    Shared,
    /// Nothing, but a stream has nothing in it.
    Ends,
}

struct Fake {
    wrong: Wrong,
    ended: Arc<AtomicBool>,
}

/// A stream with nothing in it. A read tells so at once, or when all streams are ended.
struct Stream {
    wrong: Wrong,
    waits: bool,
    ended: Arc<AtomicBool>,
}

struct Io<'a>(&'a Stream, Empty);

impl Read for Io<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.0.waits && !self.0.ended.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        self.1.read(buffer)
    }
}

impl Write for Io<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Stream {
    fn io(&self) -> impl Read + Write + '_ {
        Io(self, io::empty())
    }

    fn buffered(&self, _: usize) -> io::Result<impl Write + '_> {
        Ok(self.io())
    }

    fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        Ok(())
    }

    fn bound(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn send_shared(&self, _: usize, _: u64, mut stop: impl FnMut() -> bool) -> io::Result<u64> {
        if self.wrong == Wrong::Shared {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "no shared memory"));
        }
        while !stop() && !self.ended.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(0)
    }
}

impl Fake {
    fn stream(&self, waits: bool) -> Stream {
        Stream { wrong: self.wrong, waits, ended: self.ended.clone() }
    }
}

impl Network for Fake {
    type Stream = Stream;

    fn remote(&self) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, 2), 1).into()
    }

    fn connect(&self) -> io::Result<Stream> {
        assert!(self.wrong != Wrong::Panics, "as it should");
        Ok(self.stream(self.wrong != Wrong::Ends))
    }

    fn serves(&self) -> bool {
        true
    }

    fn accept(&self) -> io::Result<Stream> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        match self.wrong {
            Wrong::Accept => Err(io::Error::new(ErrorKind::PermissionDenied, "no descriptor")),
            _ => Ok(self.stream(false)),
        }
    }

    fn arrived(&self) -> Option<u64> {
        None
    }

    fn finish(&self) {}

    fn counters(&self) -> Sides {
        Sides { client: Counters::new(), server: None }
    }

    fn end(&self) -> bool {
        self.ended.store(true, Ordering::Relaxed);
        true
    }
}

/// The error of a run of this kind, without and with an end.
fn error(wrong: Wrong, kind: Kind, windowed: bool) -> String {
    let terms = Terms {
        kind,
        flows: 2,
        read_bytes: 1,
        read_buffers: 1,
        shared: true,
        write_buffer: None,
        length: Duration::ZERO,
        // So long that only a failure can be its end.
        warm_up: windowed.then_some(Duration::from_secs(1000)),
        bounded: true,
        cpus: None,
        gives_way: false,
    };
    let network = Fake { wrong, ended: Arc::default() };
    let Err(error) = run(terms, network) else { panic!("{wrong:?} is no failure") };
    format!("{error:#}")
}

#[test]
fn a_failure_of_either_side_is_that_of_the_run() {
    let endless = Kind::Receive { message: 1, bytes: u64::MAX };
    for (wrong, words) in [
        (Wrong::Panics, "panicked"),
        (Wrong::Accept, "cannot accept: no descriptor"),
        (Wrong::Shared, "of the server failed: no shared memory"),
        (Wrong::Ends, "ended before its time"),
    ] {
        let error = error(wrong, endless, true);
        assert!(error.contains(words), "{wrong:?}: {error}");
    }
}

#[test]
fn runs_with_an_end_fail_as_well() {
    let kind = Kind::Receive { message: 1, bytes: 1 };
    let shared = error(Wrong::Shared, kind, false);
    assert!(shared.contains("no shared memory"), "{shared}");
    let sizes = RequestResponse { request: 1, response: 1 };
    let kind = Kind::Rr { sizes, transactions: 1, reconnect: true };
    let panicked = error(Wrong::Panics, kind, false);
    assert!(panicked.contains("panicked"), "{panicked}");
}
