//! News of the path that were left for the owner of a socket.
//!
//! Who leaves and hears them is in `stack/path_news.rs`.

use std::sync::Mutex;

use plimsoll_tcp::ConnectionError;

use crate::sockets::quote::Quote;
use crate::sync::lock;

/// What somebody says about the path of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathNews {
    /// An ICMP error.
    Error(Quote, ConnectionError),
    /// The next hop's MTU; zero if the router does not tell.
    TooBig(Quote, u32),
    /// The link carries IP packets of at most so many bytes from now on.
    Link(u16),
    /// There is no way any more, for this reason.
    Gone(ConnectionError),
}

/// How many kinds of news there are.
const KINDS: usize = 4;

/// The news that wait for an owner: the latest of each kind.
#[derive(Debug, Default)]
pub(crate) struct LeftNews(Mutex<Option<Box<[Option<PathNews>; KINDS]>>>);

impl LeftNews {
    pub(crate) fn put(&self, news: PathNews) {
        let kind = match news {
            PathNews::TooBig(..) => 0,
            PathNews::Error(..) => 1,
            PathNews::Link(_) => 2,
            PathNews::Gone(_) => 3,
        };
        lock(&self.0).get_or_insert_default()[kind] = Some(news);
    }

    pub(crate) fn take(&self) -> Option<Box<[Option<PathNews>; KINDS]>> {
        lock(&self.0).take()
    }
}
