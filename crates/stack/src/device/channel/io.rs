//! Traits of other crates for the caller's end of a channel: `Stream` and `Sink` of packets, and
//! readers and writers whose every read and write is one packet.
//!
//! A packet as bytes has no metadata about segmentation and checksums. So a reader always gets
//! segmented and complete packets, even if the channel has offloads.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::task::{Context, Poll};

use plimsoll_buf::{MAX_CHUNK, Slice};

use super::ends::{ChannelReceiver, ChannelSender, SendError};
use crate::offload::{checksum, gso};
use crate::packet::Packet;

impl ChannelReceiver {
    /// Copies the next packet into `buf` and returns its length; 0 is the end. If it does not fit,
    /// it stays for the next call, and the error names its length. Super-segments are returned one
    /// wire segment at a time, and checksums are complete.
    ///
    /// # Errors
    /// `InvalidInput` if `buf` is shorter than the packet.
    pub fn poll_read_packet(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize>> {
        loop {
            if let Some(packet) = self.segments.front() {
                let len = packet.len();
                if len > buf.len() {
                    let offered = buf.len();
                    let reason = format!(
                        "the buffer of {offered} bytes is shorter than the packet of {len}; offer \
                         at least the MTU"
                    );
                    return Poll::Ready(Err(Error::new(ErrorKind::InvalidInput, reason)));
                }
                packet.copy_to(buf);
                self.segments.pop_front();
                return Poll::Ready(Ok(len));
            }
            let Poll::Ready(next) = self.poll_recv(cx) else { return Poll::Pending };
            let Some(packet) = next else { return Poll::Ready(Ok(0)) };
            // The stack's own packets are valid; others are dropped.
            let complete = |mut segment: Packet| checksum::fill(&mut segment).then_some(segment);
            self.segments.extend(gso::split(packet).filter_map(complete));
        }
    }
}

impl ChannelSender {
    /// Sends the bytes of `parts`, together, as one packet and returns their number. Without any
    /// byte it does nothing.
    ///
    /// # Errors
    /// `BrokenPipe` if the device no longer exists, `InvalidInput` if there are more than 65535
    /// bytes.
    pub fn poll_write_packet(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        // Nothing is copied before there is room.
        match self.poll_ready(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(closed)) => return Poll::Ready(Err(closed.into())),
            Poll::Pending => return Poll::Pending,
        }
        if len > MAX_CHUNK {
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidInput, SendError::Length(len))));
        }
        let mut chunk = self.pool().chunk(len);
        let mut at = 0;
        let spare = chunk.spare_mut();
        for part in parts {
            spare[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let packet: Slice = chunk.freeze(len);
        Poll::Ready(match self.try_send(packet) {
            Ok(()) => Ok(len),
            Err(SendError::Closed(_)) => Err(super::ChannelClosed.into()),
            Err(error) => Err(Error::new(ErrorKind::InvalidInput, error)),
        })
    }
}

#[cfg(feature = "futures")]
mod packets {
    //! `Stream` and `Sink`.

    use std::pin::Pin;

    use futures_core::{FusedStream, Stream};
    use futures_sink::Sink;

    use super::*;
    use crate::device::channel::{Channel, ChannelClosed};

    impl Stream for ChannelReceiver {
        type Item = Packet;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
            self.poll_recv(cx)
        }
    }

    impl Stream for Channel {
        type Item = Packet;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
            self.poll_recv(cx)
        }
    }

    impl FusedStream for ChannelReceiver {
        fn is_terminated(&self) -> bool {
            self.has_ended()
        }
    }

    /// `Sink` for types with a sending half.
    macro_rules! sink {
        ($type:ty, |$this:ident| $sender:expr) => {
            impl Sink<Packet> for $type {
                type Error = SendError;

                fn poll_ready(
                    mut self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                ) -> Poll<std::result::Result<(), SendError>> {
                    let $this = &mut *self;
                    let closed = |ChannelClosed| SendError::Closed(Box::default());
                    ChannelSender::poll_ready($sender, cx).map_err(closed)
                }

                fn start_send(
                    mut self: Pin<&mut Self>,
                    packet: Packet,
                ) -> std::result::Result<(), SendError> {
                    let $this = &mut *self;
                    $sender.try_send(packet)
                }

                fn poll_flush(
                    self: Pin<&mut Self>,
                    _cx: &mut Context<'_>,
                ) -> Poll<std::result::Result<(), SendError>> {
                    Poll::Ready(Ok(()))
                }

                /// Ends nothing: dropping the value does.
                fn poll_close(
                    self: Pin<&mut Self>,
                    _cx: &mut Context<'_>,
                ) -> Poll<std::result::Result<(), SendError>> {
                    Poll::Ready(Ok(()))
                }
            }
        };
    }

    sink!(ChannelSender, |this| this);
    sink!(Channel, |this| this.sender());
}

/// Readers and writers are alike in both families of traits, except the buffer of a read and the
/// name of the end.
#[cfg(any(feature = "tokio", feature = "futures-io"))]
macro_rules! writer {
    ($family:path, $close:ident, $type:ty, |$this:ident| $sender:expr) => {
        impl $family for $type {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<Result<usize>> {
                let $this = &mut *self;
                $sender.poll_write_packet(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<Result<usize>> {
                let $this = &mut *self;
                $sender.poll_write_packet(cx, bufs)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _cx: &mut Context<'_>,
            ) -> Poll<Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Takes the interface down, once the stack has processed the packets sent.
            fn $close(
                mut self: std::pin::Pin<&mut Self>,
                _cx: &mut Context<'_>,
            ) -> Poll<Result<()>> {
                let $this = &mut *self;
                $sender.end();
                Poll::Ready(Ok(()))
            }
        }
    };
}

#[cfg(feature = "tokio")]
mod tokio_io {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;
    use crate::device::channel::Channel;

    writer!(AsyncWrite, poll_shutdown, ChannelSender, |this| this);
    writer!(AsyncWrite, poll_shutdown, Channel, |this| this.sender());

    impl AsyncRead for ChannelReceiver {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            let read = self.poll_read_packet(cx, buf.initialize_unfilled());
            read.map_ok(|len| buf.advance(len))
        }
    }

    impl AsyncRead for Channel {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<Result<()>> {
            std::pin::Pin::new(self.receiver()).poll_read(cx, buf)
        }
    }
}

#[cfg(feature = "futures-io")]
mod futures_io_traits {
    use futures_io::{AsyncRead, AsyncWrite};

    use super::*;
    use crate::device::channel::Channel;

    writer!(AsyncWrite, poll_close, ChannelSender, |this| this);
    writer!(AsyncWrite, poll_close, Channel, |this| this.sender());

    impl AsyncRead for ChannelReceiver {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut [u8],
        ) -> Poll<Result<usize>> {
            self.poll_read_packet(cx, buf)
        }
    }

    impl AsyncRead for Channel {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut [u8],
        ) -> Poll<Result<usize>> {
            self.receiver().poll_read_packet(cx, buf)
        }
    }
}
