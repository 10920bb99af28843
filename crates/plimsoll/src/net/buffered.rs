//! Write buffers for the streams and halves of this module.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{OwnedWriteHalf, TcpStream, WriteHalf};
use crate::buffered::{AsStream, BufferedStream, Buffers, or_pending, or_would_block};

macro_rules! buffers {
    ($stream:ty) => {
        impl AsStream for $stream {
            fn as_stream(&self) -> &crate::TcpStream {
                AsRef::<TcpStream>::as_ref(self).get_ref()
            }
        }

        impl $stream {
            /// With a buffer of `bytes` for small writes, as
            /// [`TcpStream::with_write_buffer`](crate::TcpStream::with_write_buffer). The task
            /// must flush. A read that is pending flushes only if it goes through this same
            /// [`BufferedStream`]; a read on the other half does not.
            pub fn with_write_buffer(self, bytes: usize) -> BufferedStream<Self> {
                BufferedStream::new(self, bytes)
            }
        }
    };
}

buffers!(TcpStream);
buffers!(OwnedWriteHalf);
buffers!(WriteHalf<'_>);

impl<S: Buffers + AsyncRead + Unpin> AsyncRead for BufferedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(BufferedStream::get_mut(&mut self)).poll_read(cx, buf);
        self.hand_over_if(polled.is_pending())?;
        polled
    }
}

impl<S: Buffers + AsyncWrite + Unpin> AsyncWrite for BufferedStream<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        or_pending(
            Pin::into_inner(self).write_by(data, |stream, data| {
                or_would_block(Pin::new(stream).poll_write(cx, data))
            }),
        )
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        or_pending(Pin::into_inner(self).write_parts_by(bufs, |stream, data| {
            or_would_block(Pin::new(stream).poll_write(cx, data))
        }))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hand_over()?;
        Pin::new(BufferedStream::get_mut(&mut self)).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hand_over()?;
        Pin::new(BufferedStream::get_mut(&mut self)).poll_shutdown(cx)
    }
}
