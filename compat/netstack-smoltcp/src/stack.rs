//! [`Stack`]: packets in and out.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_sink::Sink;
use plimsoll::device::channel::{Channel, ChannelReceiver};
use plimsoll_compat::{Inlet, flattened, header};

use crate::filter::IpFilters;
use crate::shared::Shared;

pub use crate::builder::StackBuilder;

/// A sink of packets for the stack, and a stream of packets from it.
///
/// The sink takes one IP packet at a time. An empty one is passed over; what is no IP packet is an
/// error (`InvalidInput`), after which the next may be sent. When the stack does not keep up, the
/// sink is not ready. Closing it ends the stack when it has worked on what was sent; after the end,
/// sending fails with `BrokenPipe`, and the stream ends.
pub struct Stack {
    inlet: Inlet,
    outlet: ChannelReceiver,
    filters: IpFilters<'static>,
    _shared: Arc<Shared>,
}

impl Stack {
    pub(crate) fn new(channel: Channel, filters: IpFilters<'static>, shared: Arc<Shared>) -> Stack {
        let (sender, outlet) = channel.split();
        Stack { inlet: Inlet::new(sender), outlet, filters, _shared: shared }
    }
}

impl Stream for Stack {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let packet = self.outlet.poll_recv(cx);
        packet.map(|packet| packet.map(|packet| Ok(flattened(&packet))))
    }
}

impl Sink<Vec<u8>> for Stack {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inlet.poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, packet: Vec<u8>) -> io::Result<()> {
        if packet.is_empty() {
            return Ok(());
        }
        let header = header(&packet)?;
        if !self.filters.is_empty() && !self.filters.is_allowed(&header.source, &header.destination)
        {
            return Ok(());
        }
        self.inlet.send(packet)
    }

    /// There is nothing to do: the stack has what was sent.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inlet.close();
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Stack");
        out.field("filters", &self.filters).finish_non_exhaustive()
    }
}
