//! The kernel's figures of a connection of the host's side (TCP_INFO, tcp(7)).

use std::net::TcpStream;
use std::time::Duration;

use nix::getsockopt_impl;
use nix::sys::socket::GetSockOpt as _;

/// The first kernel whose structure has all of [`Figures`].
const FIRST_KERNEL: (u32, u32) = (5, 4);

/// The beginning of `struct tcp_info`, up to the fields that are read. Later kernels have more.
#[repr(C)]
#[derive(Clone, Copy)]
struct Figures {
    before_rtt: [u32; 17],
    rtt_micros: u32,
    before_total_retrans: [u32; 7],
    total_retrans: u32,
    before_notsent: [u32; 10],
    notsent_bytes: u32,
    min_rtt_micros: u32,
    before_busy: [u32; 4],
    busy_micros: u64,
    rwnd_limited_micros: u64,
    before_ooo: [u32; 10],
    rcv_ooopack: u32,
    snd_wnd: u32,
}

#[derive(Clone, Copy)]
struct TcpInfo;

getsockopt_impl!(
    TcpInfo,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    Figures,
    nix::sys::socket::sockopt::GetStruct<Figures>
);

/// The figures of a connection at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// The shortest round trip so far; zero if none was measured.
    pub(super) rtt: Duration,
    /// Segments that were retransmitted, SYNs among them.
    pub(super) retransmissions: u32,
    /// Segments that have arrived out of order.
    pub(super) out_of_order: u32,
    /// Time with unacknowledged data.
    pub(super) busy: Duration,
    /// Time in which the server's window held data back.
    pub(super) window_limited: Duration,
    /// Bytes that were written and not sent.
    pub(super) not_sent: u32,
}

impl Sample {
    /// Whether the running kernel has these figures.
    pub(super) fn is_available() -> bool {
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_KERNEL)
    }

    /// Reads the figures of a connection. Only for kernels for which they are available.
    pub(super) fn read(host: &TcpStream) -> Option<Sample> {
        let figures = TcpInfo.get(host).ok()?;
        let micros = |micros: u32| Duration::from_micros(micros.into());
        let has_least = !matches!(figures.min_rtt_micros, 0 | u32::MAX);
        Some(Sample {
            rtt: micros(if has_least { figures.min_rtt_micros } else { figures.rtt_micros }),
            retransmissions: figures.total_retrans,
            out_of_order: figures.rcv_ooopack,
            busy: Duration::from_micros(figures.busy_micros),
            window_limited: Duration::from_micros(figures.rwnd_limited_micros),
            not_sent: figures.notsent_bytes,
        })
    }

    /// The increase of the counts and times since `before`; the rest as it was then.
    pub(super) fn since(&self, before: &Sample) -> Sample {
        Sample {
            rtt: self.rtt,
            retransmissions: self.retransmissions.saturating_sub(before.retransmissions),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
            busy: self.busy.saturating_sub(before.busy),
            window_limited: self.window_limited.saturating_sub(before.window_limited),
            not_sent: before.not_sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::mem::offset_of;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn fields_are_where_linux_has_them() {
        assert_eq!(offset_of!(Figures, rtt_micros), offset_of!(libc::tcp_info, tcpi_rtt));
        let total = offset_of!(libc::tcp_info, tcpi_total_retrans);
        assert_eq!(offset_of!(Figures, total_retrans), total);
        // linux/tcp.h
        assert_eq!(offset_of!(Figures, notsent_bytes), 144);
        assert_eq!(offset_of!(Figures, min_rtt_micros), 148);
        assert_eq!(offset_of!(Figures, busy_micros), 168);
        assert_eq!(offset_of!(Figures, rwnd_limited_micros), 176);
        assert_eq!(offset_of!(Figures, rcv_ooopack), 224);
        assert_eq!(size_of::<Figures>(), 232);
    }

    #[test]
    fn a_connection_has_figures() {
        assert!(Sample::is_available());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"ahoy").unwrap();
        near.read_exact(&mut [0; 4]).unwrap();
        let sample = Sample::read(&near).unwrap();
        assert!(!sample.rtt.is_zero() && sample.rtt < Duration::from_secs(1), "{sample:?}");
        assert_eq!((sample.retransmissions, sample.out_of_order, sample.not_sent), (0, 0, 0));
    }
}
