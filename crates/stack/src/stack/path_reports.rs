//! Path reports for a connection: ICMP errors that quote one of its packets, and the failure of a
//! device.
//!
//! A poller that has a report for an owned socket stores it here, sets a flag, and continues; the
//! owner processes it before it releases the socket. There is one place for each kind. A later
//! report of the same kind replaces it: a path error is repeated as long as its cause exists.

use std::sync::Arc;

use plimsoll_tcp::{Input, PathEvent, PathMtu, PathMtuDiscovery};

use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::sockets::path_report::PathReport;
use crate::stack::work::Work;
use crate::sync::socket_lock::PATH;

impl Work<'_> {
    /// Passes a report to a connection, or to its owner if it has one.
    pub(crate) fn leave_report(&mut self, endpoint: &Arc<Endpoint>, report: PathReport) {
        endpoint.path_reports().put(report);
        self.leave(endpoint, PATH);
    }

    /// Called by the owner: processes the reports that were left.
    pub(crate) fn run_reports(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        for report in endpoint.path_reports().take().into_iter().flat_map(|left| *left).flatten() {
            self.hear(endpoint, inner, report);
        }
    }

    /// Called by the owner: passes a report to the connection, if it is plausible: the quoted
    /// packet must be in flight (RFC 5927, section 4.1). Returns whether it is.
    pub(crate) fn hear(&self, endpoint: &Endpoint, inner: &mut Inner, report: PathReport) -> bool {
        if let PathReport::Error(quote, _) | PathReport::TooBig(quote, _) = &report
            && (inner.is_gone() || !inner.conn.is_in_flight(quote.seq()))
        {
            self.count(IpCounter::OutOfWindowIcmps);
            return false;
        }
        let options = inner.conn.options();
        let event = match report {
            PathReport::Error(_, error) => PathEvent::SoftError(error),
            PathReport::TooBig(quote, mtu) => {
                let remote = quote.key().remote;
                let told = self.told_mtu(remote, mtu);
                self.stack.learn_mtu(self, remote, told);
                // The connection is notified even if the MTU was known: it may have begun before,
                // or use another path. The route as of its open decides whether the connection
                // follows the MTU, and whether routers may fragment its packets (`Sender`).
                let never = options.path_mtu_discovery == PathMtuDiscovery::Never;
                if never || options.route.mtu_lock {
                    return true;
                }
                match told.locked {
                    true => PathEvent::LockedMtu(told.mtu),
                    false => PathEvent::Mtu(told.mtu),
                }
            }
            PathReport::Link(known) => {
                let learnt = known.learnt.filter(|_| !options.route.mtu_lock);
                PathEvent::Link(PathMtu { learnt, ..known })
            }
            PathReport::Gone(error) => PathEvent::HardError(error),
        };
        let cx = self.context(endpoint, inner);
        inner.conn.handle(&cx, Input::Path(event));
        true
    }
}
