//! News of the path of a connection: ICMP errors that quote one of its packets, and a device that
//! has gone.
//!
//! A poller that has news for a socket with an owner leaves them here, with a mark, and goes on;
//! the owner hears them before it lets go. There is one place for each kind. What is in it when the
//! next of its kind comes is forgotten: an error of the path is repeated as long as its cause is
//! there.

use std::sync::Arc;

use plimsoll_tcp::{Input, PathEvent};

use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::sockets::path_news::PathNews;
use crate::stack::work::Work;
use crate::sync::socket_lock::PATH;

impl Work<'_> {
    /// Tells a connection news. If it has an owner, that one does.
    pub(crate) fn leave_news(&mut self, endpoint: &Arc<Endpoint>, news: PathNews) {
        endpoint.news().put(news);
        self.leave(endpoint, PATH);
    }

    /// For the owner: hears the news that were left.
    pub(crate) fn run_news(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        for news in endpoint.news().take().into_iter().flat_map(|news| *news).flatten() {
            self.hear(endpoint, inner, news);
        }
    }

    /// For the owner: tells the connection news, if they are to be believed: the quoted packet must
    /// be in flight (RFC 5927, section 4.1). Returns whether they are.
    pub(crate) fn hear(&self, endpoint: &Endpoint, inner: &mut Inner, news: PathNews) -> bool {
        if let PathNews::Error(quote, _) | PathNews::TooBig(quote, _) = &news
            && (inner.is_gone() || !inner.conn.is_in_flight(quote.seq()))
        {
            self.count(IpCounter::OutOfWindowIcmps);
            return false;
        }
        let event = match news {
            PathNews::Error(_, error) => PathEvent::SoftError(error),
            PathNews::TooBig(quote, mtu) => {
                let packet = (quote.key().remote, quote.total_len());
                PathEvent::Mtu(self.stack.learn_mtu(self, packet, mtu))
            }
            PathNews::Link(mtu) => PathEvent::Link(mtu),
            PathNews::Gone(error) => PathEvent::HardError(error),
        };
        let cx = self.context(endpoint, inner);
        inner.conn.handle(&cx, Input::Path(event));
        true
    }
}
