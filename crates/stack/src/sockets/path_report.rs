//! Path reports that were left for the owner of a socket.
//!
//! The code that leaves and processes them is in `stack/path_reports.rs`.

use std::sync::Mutex;

use plimsoll_tcp::{ConnectionError, PathMtu};

use crate::sockets::quote::Quote;
use crate::sync::lock;

/// A report about the path of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathReport {
    /// An ICMP error.
    Error(Quote, ConnectionError),
    /// The next hop's MTU; zero if the router does not report it.
    TooBig(Quote, u32),
    /// The link carries longer or shorter packets than before: the known path now.
    Link(PathMtu),
    /// There is no way any more, for this reason.
    Gone(ConnectionError),
}

/// How many kinds of reports there are.
const KINDS: usize = 4;

/// The reports that wait for an owner: the latest of each kind.
#[derive(Debug, Default)]
pub(crate) struct PendingReports(Mutex<Option<Box<[Option<PathReport>; KINDS]>>>);

impl PendingReports {
    pub(crate) fn put(&self, report: PathReport) {
        let kind = match report {
            PathReport::TooBig(..) => 0,
            PathReport::Error(..) => 1,
            PathReport::Link(_) => 2,
            PathReport::Gone(_) => 3,
        };
        lock(&self.0).get_or_insert_default()[kind] = Some(report);
    }

    pub(crate) fn take(&self) -> Option<Box<[Option<PathReport>; KINDS]>> {
        lock(&self.0).take()
    }
}
