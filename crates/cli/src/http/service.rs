//! The http service of `serve`: how many clients it has at once, and how long each may take.
//!
//! A client holds memory as long as its connection is open, so an idle client may not stay for
//! ever. Each state of a client has its own time limit (see [`Limits`]). The time for a request
//! counts from its beginning, so a client that sends a byte now and then gains nothing. The time
//! for a response starts again only after the client has acknowledged a minimum of bytes. Beyond
//! the limit of connections a client gets a 503, and beyond a further limit it is reset.
//!
//! Refused and ended connections are counted, and reported on standard error at most once in
//! [`SAY_EVERY`] for each kind.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll::{Instant, TcpStream};

use super::files::{Files, MOST_OPEN};
use super::server::{Connection, Progress, Stage, Stream};
use crate::output;
use plimsoll_lab::event_loop::{Around, Task, Turn};
use plimsoll_lab::tasks::{Tally, add};

/// The shortest time between two reports of the same kind of trouble.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The time after which a failed request for a descriptor is repeated.
const RETRY: Duration = Duration::from_millis(50);

/// The limits of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Connections that are served at once.
    pub connections: usize,
    /// Connections that are refused at once.
    pub refusals: usize,
    /// Files that a loop has open at once.
    pub files: usize,
    /// Time for a whole request, from the opening of the connection or from its first byte.
    pub request: Duration,
    /// Time between a response and the next request.
    pub idle: Duration,
    /// Time in which a client must take at least `send_bytes` of a response.
    pub send: Duration,
    /// See `send`.
    pub send_bytes: u64,
    /// Time for bytes that a client still sends after an error response.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 8192,
            refusals: 256,
            files: MOST_OPEN,
            request: Duration::from_secs(20),
            idle: Duration::from_secs(60),
            send: Duration::from_secs(30),
            send_bytes: 4096,
            linger: Duration::from_secs(5),
        }
    }
}

/// A kind of trouble, counted.
pub(crate) struct Trouble {
    what: &'static str,
    count: Cell<u64>,
    said: Cell<u64>,
    next: Cell<Instant>,
}

impl Trouble {
    fn new(what: &'static str) -> Trouble {
        let (count, said) = (Cell::new(0), Cell::new(0));
        Trouble { what, count, said, next: Cell::new(Instant::ZERO) }
    }

    /// How often it was met.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    fn met(&self, times: u64, now: Instant) {
        add(&self.count, times);
        if times == 0 || now < self.next.get() {
            return;
        }
        self.next.set(now + SAY_EVERY);
        let fresh = self.count.get() - self.said.replace(self.count.get());
        output::warn(&format!("http: {} ({fresh} since last said)", self.what));
    }
}

/// The connections of all loops to http services. Those that are refused do not count against
/// those that are served: otherwise clients that come again and again could keep a server that has
/// become idle from serving anybody.
#[derive(Default)]
pub(crate) struct Places {
    served: AtomicUsize,
    refused: AtomicUsize,
}

impl Places {
    fn take(&self, limits: &Limits) -> Place {
        let take = |count: &AtomicUsize, most: usize| {
            let more = |taken| (taken < most).then_some(taken + 1);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if take(&self.served, limits.connections) {
            Place::Served
        } else if take(&self.refused, limits.refusals) {
            Place::Refused
        } else {
            Place::None
        }
    }

    fn give_back(&self, place: Place) {
        let count = match place {
            Place::Served => &self.served,
            Place::Refused => &self.refused,
            Place::None => return,
        };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limit that a connection counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Served,
    /// It gets a 503.
    Refused,
    /// Even refusing it would exceed the limit.
    None,
}

/// The state that a loop's connections to http services share.
pub(crate) struct Site {
    limits: Limits,
    files: RefCell<Files>,
    places: Arc<Places>,
    /// Connections that were refused.
    pub(crate) refused: Trouble,
    /// Requests that took too long.
    pub(crate) slow_requests: Trouble,
    /// Responses that were not taken.
    pub(crate) slow_responses: Trouble,
    /// Files that could not be opened for want of descriptors.
    pub(crate) no_descriptor: Trouble,
}

impl Site {
    /// A site whose connections take `places`.
    pub(crate) fn new(limits: Limits, places: Arc<Places>) -> Site {
        Site {
            limits,
            files: RefCell::new(Files::new(limits.files)),
            places,
            refused: Trouble::new(
                "too many connections; new ones get 503 (--http-connections sets how many \
                 there may be)",
            ),
            slow_requests: Trouble::new("a client took too long for its request"),
            slow_responses: Trouble::new("a client did not take its response"),
            no_descriptor: Trouble::new(
                "a file could not be opened, as no descriptor was left (ulimit -n sets how many \
                 there are)",
            ),
        }
    }

    /// Connections that are served.
    #[cfg(test)]
    pub(crate) fn served(&self) -> usize {
        self.places.served.load(Ordering::Relaxed)
    }
}

impl Stream for TcpStream {
    fn end(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// One connection.
pub(crate) struct Web {
    connection: Connection<TcpStream>,
    root: Rc<PathBuf>,
    site: Rc<Site>,
    tally: Rc<Tally>,
    timer: Timer,
    place: Place,
    /// The server has no descriptor for the file; meanwhile the client's time limit does not run.
    waits_for_file: bool,
}

/// When the client must have finished its present stage.
struct Timer {
    stage: Stage,
    /// Requests that were answered when it began.
    requests: u64,
    /// Bytes that the client had acknowledged then.
    acked: u64,
    at: Instant,
}

impl Web {
    /// Serves files below `root`, which is canonical, over `stream`.
    pub(crate) fn new(
        stream: TcpStream,
        root: Rc<PathBuf>,
        site: Rc<Site>,
        tally: Rc<Tally>,
    ) -> Web {
        let (limits, now) = (site.limits, plimsoll::now());
        let place = site.places.take(&limits);
        let full = place != Place::Served;
        site.refused.met(u64::from(full), now);
        let reset_at_once = place == Place::None;
        if reset_at_once {
            // With a reset; the connection keeps nothing.
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
        let connection = if full { Connection::refused(stream) } else { Connection::new(stream) };
        let (stage, at) = (connection.stage(), now + limits.request);
        let timer = Timer { stage, requests: 0, acked: 0, at };
        Web { connection, root, site, tally, timer, place, waits_for_file: false }
    }

    /// Gives the client time for its stage, if that is new.
    fn set_timer(&mut self, now: Instant) {
        let (stage, requests) = (self.connection.stage(), self.connection.requests);
        let same = self.timer.stage == stage && self.timer.requests == requests;
        if same {
            return;
        }
        let limits = &self.site.limits;
        let time = match stage {
            Stage::Idle => limits.idle,
            Stage::Request => limits.request,
            Stage::Response => limits.send,
            Stage::Lingering => limits.linger,
        };
        let acked = match stage {
            Stage::Response => self.connection.stream().info().bytes_acked,
            _ => 0,
        };
        self.timer = Timer { stage, requests, acked, at: now + time };
    }

    /// The client's time is over. Whether the connection goes on.
    fn late(&mut self, now: Instant) -> bool {
        match self.timer.stage {
            Stage::Idle | Stage::Lingering => false,
            Stage::Request => {
                self.site.slow_requests.met(1, now);
                // A client that sent nothing expects no answer.
                let begun = self.connection.has_begun();
                if begun {
                    self.connection.refuse("408 Request Timeout", "");
                }
                begun
            }
            Stage::Response => {
                let stream = self.connection.stream();
                let acked = stream.info().bytes_acked;
                if acked.saturating_sub(self.timer.acked) >= self.site.limits.send_bytes {
                    (self.timer.acked, self.timer.at) = (acked, now + self.site.limits.send);
                    return true;
                }
                self.site.slow_responses.met(1, now);
                // Discard the queued data now, and not when the client's connection times out.
                let _ = stream.set_linger(Some(Duration::ZERO));
                false
            }
        }
    }

    /// Runs the connection until it would block.
    fn advance(&mut self, around: &mut Around<'_>, now: Instant) -> Turn {
        let site = self.site.clone();
        let mut files = site.files.borrow_mut();
        loop {
            let (before, short) = (self.connection.requests, files.short);
            let progress = self.connection.run(&self.root, &mut files, around.scratch);
            add(&self.tally.requests, self.connection.requests - before);
            site.no_descriptor.met(files.short - short, now);
            let stream = self.connection.stream();
            match progress {
                Ok(Progress::WantsRead) if stream.poll_readable(around.waker) => {}
                Ok(Progress::WantsWrite) if stream.poll_writable(around.waker) => {}
                Ok(Progress::WantsRead | Progress::WantsWrite) => {
                    self.set_timer(now);
                    *around.deadline = Some(self.timer.at);
                    return Turn::Sleep;
                }
                Ok(Progress::WantsFile) => {
                    self.set_timer(now);
                    self.waits_for_file = true;
                    *around.deadline = Some(now + RETRY);
                    return Turn::Sleep;
                }
                Ok(Progress::Yield) => {
                    self.set_timer(now);
                    return Turn::Again;
                }
                // A client that goes away is its own loss.
                Ok(Progress::Done) | Err(_) => return Turn::Done,
            }
        }
    }
}

impl Task for Web {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let now = plimsoll::now();
        if std::mem::take(&mut self.waits_for_file) {
            self.timer.at = now + self.site.limits.send;
        }
        let reset_at_once = self.place == Place::None;
        if reset_at_once || (now >= self.timer.at && !self.late(now)) {
            return Turn::Done;
        }
        self.advance(around, now)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.site.places.give_back(self.place);
        self.connection.release(&mut self.site.files.borrow_mut());
    }
}

#[cfg(test)]
mod tests;
