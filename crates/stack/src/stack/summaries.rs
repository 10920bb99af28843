//! Summaries of a stack's connections.

use std::mem::size_of;
use std::sync::Arc;

use plimsoll_tcp::{Config, Connection, Info, Instant};

use crate::packet::Packet;
use crate::sockets::endpoint::{Endpoint, Inner, Stage};
use crate::sockets::summary::SocketSummary;
use crate::stack::Stack;
use crate::stack::socket::TcpSocket;

impl Stack {
    /// Names of the types of a connection and its packets, and their sizes in bytes. They differ
    /// between versions and between targets.
    pub fn type_sizes(&self) -> Vec<(&'static str, usize)> {
        let own = [
            ("TcpSocket", size_of::<TcpSocket>()),
            ("Endpoint", size_of::<Endpoint>()),
            ("Packet", size_of::<Packet>()),
        ];
        own.iter().chain(plimsoll_tcp::type_sizes()).copied().collect()
    }

    /// An application has taken it from the accept queue.
    pub(crate) fn adopt(&self, endpoint: &Arc<Endpoint>) {
        self.inspect(endpoint, |inner| {
            if inner.stage == Stage::Queued {
                inner.stage = Stage::Owned;
                inner.conn.adopt();
            }
        });
    }

    /// Bytes of memory that a connection takes, without the tables.
    pub(crate) fn bytes_of(&self, endpoint: &Arc<Endpoint>) -> usize {
        // With the two reference counts.
        let own = size_of::<Endpoint>() + 2 * size_of::<usize>();
        own - size_of::<Connection>() + self.inspect(endpoint, |inner| inner.conn.memory_bytes())
    }

    /// The figures of a connection that `ss` shows.
    pub(crate) fn summary(&self, endpoint: &Arc<Endpoint>, config: &Config) -> SocketSummary {
        let now = self.pollers.latest_time();
        self.inspect(endpoint, |inner| self.summary_of(endpoint, inner, config, now))
    }

    /// Adds the stack's figures to those of a connection.
    pub(crate) fn add_to_info(&self, endpoint: &Endpoint, info: &mut Info) {
        (info.below, _) = endpoint.below().get();
        info.completions = self.interfaces.get(endpoint.interface()).completions();
    }

    fn summary_of(
        &self,
        endpoint: &Endpoint,
        inner: &Inner,
        config: &Config,
        now: Instant,
    ) -> SocketSummary {
        let mut info = Box::new(inner.conn.info_at(config, now.max(inner.last())));
        self.add_to_info(endpoint, &mut info);
        SocketSummary {
            state: Some(inner.conn.state()),
            local: endpoint.key.local_addr(),
            remote: Some(endpoint.key.remote_addr()),
            recv_queue: inner.conn.readable(),
            send_queue: inner.conn.send_queue_len(),
            orphan: inner.stage == Stage::Orphan,
            info: Some(info),
            decisions: inner.conn.decisions(),
        }
    }
}
