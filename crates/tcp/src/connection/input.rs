//! The inputs of a connection from below, as one call.

use super::{Connection, Context};
use crate::mtu::PathEvent;
use crate::recv::{Batch, Reader};
use crate::segment::Segment;
use crate::why::Decision;

/// An input of [`Connection::handle`].
#[derive(Debug)]
pub enum Input<'a> {
    /// A segment for the connection has arrived. Its data is taken out of it, and its header may
    /// be changed.
    Segment(&'a mut Segment, Arrival),
    /// A deadline of [`Connection::poll_timeout`] has passed. Too early is harmless.
    Timeout,
    /// The path has changed, or an error has come back from it.
    Path(PathEvent),
    /// The device has finished with a packet that was below the connection; [`Below`](crate::Below)
    /// has the rest. Pass it if [`Connection::awaits_completion`].
    Completion,
    /// There may be memory for a writer or a window that waits for some. Pass it if
    /// [`Connection::awaits_memory`].
    Memory,
    /// A waiter for reading or writing was woken: for the log of decisions.
    Woken {
        /// Readers were woken.
        readers: bool,
        /// Writers were woken.
        writers: bool,
    },
}

/// The circumstances in which a segment arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The batch of the segment, at whose end the caller polls for output in any case: the
    /// segment's ACK may wait for that. `None`: the caller polls next.
    pub batch: Option<Batch>,
    /// Whether a thread or task waits for its data.
    pub reader: Reader,
}

/// The time at which the caller must poll for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputDue {
    /// Now.
    Now,
    /// At the end of the segment's batch. Polling now does no harm, but one ACK may then become
    /// several.
    EndOfBatch,
}

impl Connection {
    /// Processes an input. The caller then calls [`poll_transmit`](Self::poll_transmit) until it
    /// returns `None`, at once or at the end of the batch.
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
