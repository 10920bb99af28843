//! The replacement of a connection that a panic has left half changed.

use plimsoll_wire::SeqNum;

use crate::connection::{Connection, PendingRst};
use crate::context::Context;
use crate::event::{ConnectionError, Events};
use crate::open_params::OpenParams;
use crate::state::State;

impl Connection {
    /// A connection that has ended with [`ConnectionError::Panicked`] and has no earlier state. The
    /// caller replaces a connection with it that must not be called any more. If `rst` is given, a
    /// reset with that sequence number leaves with the next `poll_transmit`.
    pub fn panicked(cx: &Context, params: OpenParams, rst: Option<SeqNum>) -> Connection {
        let mut conn = Connection::new(cx, params, State::Closed);
        conn.error = Some(ConnectionError::Panicked);
        conn.pending.rst = rst.map(|seq| PendingRst { seq, ack: None });
        for event in [Events::CLOSED, Events::ERROR, Events::READABLE, Events::WRITABLE] {
            conn.events.insert(event);
        }
        conn
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_buf::Pool;
    use plimsoll_wire::tcp::TcpFlags;

    use super::*;
    use crate::config::{Config, Options};
    use crate::counters::Counters;
    use crate::event::{ReadError, WriteError};
    use crate::segment::Below;
    use crate::time::Instant;

    #[test]
    fn it_resets_the_peer_and_fails_every_call() {
        let (config, counters) = (Config::default(), Counters::new());
        let cx = Context {
            now: Instant::from_millis(5),
            below: Below::default(),
            config: &config,
            counters: &counters,
        };
        let params = OpenParams {
            local_port: 80,
            remote_port: 4000,
            iss: SeqNum(0),
            ts_offset: 0,
            seed: 0,
            mtu: 1500.into(),
            ip_header_len: 20,
            max_super_segment: 0,
            options: Options::default().into(),
            pool: Pool::new(),
        };
        let mut conn = Connection::panicked(&cx, params, Some(SeqNum(77)));
        let out = conn.poll_transmit(&cx).expect("a reset");
        assert_eq!((out.repr.flags, out.repr.seq), (TcpFlags::RST, SeqNum(77)));
        assert_eq!((out.repr.src_port, out.repr.dst_port), (80, 4000));
        assert!(conn.poll_transmit(&cx).is_none());
        assert!(conn.poll_event().contains(Events::ERROR));
        assert_eq!(conn.poll_timeout(), None);
        let error = ConnectionError::Panicked;
        assert_eq!(conn.read(&cx, &mut [0; 8]), Err(ReadError::Failed(error)));
        assert_eq!(conn.write(&cx, b"x"), Err(WriteError::Failed(error)));
        conn.shutdown(&cx);
        conn.abort(&cx);
        conn.close(&cx);
        assert!(conn.poll_transmit(&cx).is_none());
        assert_eq!(conn.memory_held(), 0);
    }
}
