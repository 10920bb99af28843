//! What happens below a connection, as one call.

use super::{Connection, Context};
use crate::mtu::PathEvent;
use crate::recv::{Batch, Reader};
use crate::segment::Segment;
use crate::why::Decision;

/// What has happened, see [`Connection::handle`].
#[derive(Debug)]
pub enum Input<'a> {
    /// A segment for the connection has arrived. Its data is taken out of it, and its header may
    /// be changed.
    Segment(&'a mut Segment, Arrival),
    /// A deadline of [`Connection::poll_timeout`] has passed. Too early is harmless.
    Timeout,
    /// The path has changed, or an error has come back from it.
    Path(PathEvent),
    /// The device is done with something that was below the connection;
    /// [`Below`](crate::Below) says what is left. Told if [`Connection::awaits_completion`].
    Completion,
    /// There may be memory for a writer or a window that waits for some. Told if
    /// [`Connection::awaits_memory`].
    Memory,
    /// A waiter for reading or writing was woken: for the log of decisions.
    Woken {
        /// Readers were.
        readers: bool,
        /// Writers were.
        writers: bool,
    },
}

/// How a segment arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The batch that it is part of, at whose end the caller asks for output in any case: its ACK
    /// may wait for that. `None`: output is asked for next.
    pub batch: Option<Batch>,
    /// Whether a thread or task waits for its data.
    pub reader: Reader,
}

/// When the caller is to ask for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputDue {
    /// Now.
    Now,
    /// At the end of the batch that the segment was part of. Now does no harm, but one ACK may then
    /// become several.
    EndOfBatch,
}

impl Connection {
    /// Takes what has happened. The caller then calls [`poll_transmit`](Self::poll_transmit) until
    /// it returns `None`, at once or at the end of the batch.
    #[inline]
    pub fn handle(&mut self, cx: &Context, input: Input) -> OutputDue {
        match input {
            Input::Segment(segment, arrival) => {
                self.rcv.set_reader(arrival.reader);
                self.handle_segment(cx, segment);
                if arrival.batch.is_some_and(|batch| self.may_defer_ack(cx, batch)) {
                    return OutputDue::EndOfBatch;
                }
            }
            Input::Timeout => self.handle_timeout(cx),
            Input::Path(event) => self.handle_path_event(cx, event),
            Input::Completion => self.handle_completion(cx),
            Input::Memory => self.handle_memory(cx),
            Input::Woken { readers, writers } => {
                self.explain.log(cx.now, Decision::Woke { readers, writers });
            }
        }
        OutputDue::Now
    }
}
