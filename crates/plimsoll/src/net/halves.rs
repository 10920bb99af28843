//! The halves of a stream: borrowed ([`ReadHalf`], [`WriteHalf`]) and owned ([`OwnedReadHalf`],
//! [`OwnedWriteHalf`]).

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::stream::TcpStream;

/// The half that reads, of [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// The half that writes, of [`TcpStream::split`]. Its `shutdown` ends the direction of writing;
/// dropping it does not.
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

/// The half that reads, of [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The half that writes, of [`TcpStream::into_split`]. Dropping it ends the direction of writing,
/// unless it was [forgotten](Self::forget).
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    shuts_down: bool,
}

/// Two halves that are not of one stream. They are handed back.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

pub(super) fn split(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn split_owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, shuts_down: true })
}

/// The methods of both halves.
macro_rules! either_half {
    ($half:ty) => {
        impl $half {
            /// As [`TcpStream::ready`].
            ///
            /// # Errors
            /// As there.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.as_ref().ready(interest).await
            }

            /// As [`TcpStream::peer_addr`].
            ///
            /// # Errors
            /// As there.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().peer_addr()
            }

            /// As [`TcpStream::local_addr`].
            ///
            /// # Errors
            /// As there.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().local_addr()
            }
        }
    };
}

/// The methods of both halves that read.
macro_rules! reading_half {
    ($half:ty) => {
        either_half!($half);

        impl $half {
            /// As [`TcpStream::poll_peek`].
            ///
            /// # Errors
            /// As there.
            pub fn poll_peek(
                &mut self,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<usize>> {
                self.as_ref().poll_peek(cx, buf)
            }

            /// As [`TcpStream::peek`].
            ///
            /// # Errors
            /// As there.
            pub async fn peek(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.as_ref().peek(buf).await
            }

            /// As [`TcpStream::readable`].
            ///
            /// # Errors
            /// As there.
            pub async fn readable(&self) -> io::Result<()> {
                self.as_ref().readable().await
            }

            /// As [`TcpStream::try_read`].
            ///
            /// # Errors
            /// As there.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.as_ref().try_read(buf)
            }

            /// As [`TcpStream::try_read_vectored`].
            ///
            /// # Errors
            /// As there.
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.as_ref().try_read_vectored(bufs)
            }

            /// As [`TcpStream::try_read_buf`].
            ///
            /// # Errors
            /// As there.
            pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
                self.as_ref().try_read_buf(buf)
            }
        }

        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                (*self).as_ref().poll_read_by_ref(cx, buf)
            }
        }
    };
}

/// The methods of both halves that write. The trait is not included, since their `shutdown`s
/// differ.
macro_rules! writing_half {
    ($half:ty) => {
        either_half!($half);

        impl $half {
            /// As [`TcpStream::writable`].
            ///
            /// # Errors
            /// As there.
            pub async fn writable(&self) -> io::Result<()> {
                self.as_ref().writable().await
            }

            /// As [`TcpStream::try_write`].
            ///
            /// # Errors
            /// As there.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.as_ref().try_write(buf)
            }

            /// As [`TcpStream::try_write_vectored`].
            ///
            /// # Errors
            /// As there.
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.as_ref().try_write_vectored(bufs)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_by_ref(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                (*self).as_ref().poll_write_vectored_by_ref(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                (*self).as_ref().get_ref().poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                let polled = (*self).as_ref().get_ref().poll_shutdown(cx);
                if let Poll::Ready(Ok(())) = polled {
                    self.was_shut_down();
                }
                polled
            }
        }
    };
}

reading_half!(ReadHalf<'_>);
reading_half!(OwnedReadHalf);
writing_half!(WriteHalf<'_>);
writing_half!(OwnedWriteHalf);

impl WriteHalf<'_> {
    /// The stream remembers it.
    fn was_shut_down(&mut self) {}
}

impl OwnedReadHalf {
    /// The stream that the two halves were.
    ///
    /// # Errors
    /// If they are of two streams.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        reunite(self, other)
    }
}

impl OwnedWriteHalf {
    /// As [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    /// As there.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        reunite(other, self)
    }

    /// Drops the half without ending the direction of writing.
    pub fn forget(mut self) {
        self.shuts_down = false;
    }

    /// Dropping it need not do it again.
    fn was_shut_down(&mut self) {
        self.shuts_down = false;
    }
}

fn reunite(read: OwnedReadHalf, write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
    if !Arc::ptr_eq(&read.0, &write.stream) {
        return Err(ReuniteError(read, write));
    }
    write.forget();
    Ok(Arc::into_inner(read.0).expect("a stream has two halves, and one is gone"))
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts_down {
            // A connection that has ended has nothing left to be shut down.
            let _ = self.stream.get_ref().shutdown(Shutdown::Write);
        }
    }
}

impl AsRef<TcpStream> for ReadHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for WriteHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are not of one stream")
    }
}

impl Error for ReuniteError {}
