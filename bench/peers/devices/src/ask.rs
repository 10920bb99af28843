//! The client: requests and answers over sockets of the kernel, each flow on a thread that blocks.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::echo::{busy_seconds, report};
use crate::failure::{Failure, Named};
use crate::sys;

/// How long an answer may take before a run has failed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is asked, how often, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) to: SocketAddr,
    /// Bytes of a request, and of its answer.
    pub(crate) size: usize,
    pub(crate) flows: usize,
    pub(crate) limit: Duration,
    /// For how many microseconds a socket polls the device before it sleeps (SO_BUSY_POLL).
    pub(crate) busy_poll: u32,
}

impl Question {
    /// Asks for some time, and prints how often.
    pub(crate) fn ask(&self) -> Result<(), Failure> {
        // A thread that returned before the barrier would leave the others waiting there.
        let barrier = Barrier::new(self.flows + 1);
        let (counts, taken, busy) = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.flows).map(|_| scope.spawn(|| self.flow(&barrier))).collect();
            barrier.wait();
            let (begun, busy) = (Instant::now(), busy_seconds());
            let counts: Result<Vec<u64>, Failure> = threads
                .into_iter()
                .map(|thread| thread.join().expect("a flow does not panic"))
                .collect();
            (counts, begun.elapsed(), busy)
        });
        let count = counts?.iter().sum();
        let busy = busy_seconds().named("/proc/stat")? - busy.named("/proc/stat")?;
        println!("{}", report(count, taken, busy, count));
        Ok(())
    }

    /// One request in flight at a time.
    fn flow(&self, barrier: &Barrier) -> Result<u64, Failure> {
        let ready = self.socket().and_then(|mut socket| {
            socket.exchange()?;
            Ok(socket)
        });
        barrier.wait();
        let (mut socket, begun, mut count) = (ready?, Instant::now(), 0);
        while begun.elapsed() < self.limit {
            socket.exchange()?;
            count += 1;
        }
        Ok(count)
    }

    fn socket(&self) -> Result<Flow, Failure> {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let socket = UdpSocket::bind(any).named("binding a socket")?;
        socket.connect(self.to).named("connecting a socket")?;
        socket.set_read_timeout(Some(PATIENCE)).named("SO_RCVTIMEO")?;
        if self.busy_poll > 0 {
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &self.busy_poll)
                .named("SO_BUSY_POLL")?;
        }
        Ok(Flow { socket, request: vec![0x5a; self.size], answer: vec![0; self.size + 1] })
    }
}

struct Flow {
    socket: UdpSocket,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Flow {
    fn exchange(&mut self) -> Result<(), Failure> {
        self.socket.send(&self.request).named("asking")?;
        let count = self.socket.recv(&mut self.answer).named("waiting for an answer")?;
        if self.answer[..count] != self.request {
            let what = "it is not what was sent";
            return Err(Error::new(ErrorKind::InvalidData, what)).named("an answer");
        }
        Ok(())
    }
}
