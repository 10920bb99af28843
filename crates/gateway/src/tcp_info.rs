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
    state: u8,
    ca_state: u8,
    before_unacked: [u8; 22],
    unacked: u32,
    before_last_data_sent: [u32; 4],
    last_data_sent_millis: u32,
    before_last_data_recv: u32,
    last_data_recv_millis: u32,
    before_rtt: [u32; 3],
    rtt_micros: u32,
    before_snd_cwnd: [u32; 2],
    snd_cwnd: u32,
    before_total_retrans: [u32; 4],
    total_retrans: u32,
    before_bytes_received: [u32; 6],
    bytes_received: u64,
    before_notsent: [u32; 2],
    notsent_bytes: u32,
    min_rtt_micros: u32,
    before_busy: [u32; 4],
    busy_micros: u64,
    rwnd_limited_micros: u64,
    sndbuf_limited_micros: u64,
    before_bytes_sent: u64,
    bytes_sent: u64,
    bytes_retrans: u64,
    before_ooo: [u32; 2],
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
pub struct Sample {
    /// The shortest round trip so far; zero if none was measured.
    pub rtt: Duration,
    /// The smoothed round trip; zero if none was measured.
    pub smoothed_rtt: Duration,
    /// Segments that were retransmitted, SYNs among them.
    pub retransmissions: u32,
    /// Segments that have arrived out of order.
    pub out_of_order: u32,
    /// Time with unacknowledged data.
    pub busy: Duration,
    /// Time in which the server's window held data back.
    pub window_limited: Duration,
    /// Time in which a larger send buffer would have had data to send.
    pub buffer_limited: Duration,
    /// Bytes that were written and not sent.
    pub not_sent: u32,
    /// Bytes that were sent, each counted once.
    pub sent: u64,
    /// Bytes that have arrived.
    pub received: u64,
    /// Segments that the congestion window allows in flight.
    pub cwnd: u32,
    /// Segments in flight.
    pub in_flight: u32,
    /// The state of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub recovery: u8,
    /// Time since data was last sent, or since the connection opened.
    pub since_sent: Duration,
    /// Time since data has last arrived, or since the connection opened.
    pub since_received: Duration,
}

impl Sample {
    /// Whether the running kernel has these figures.
    pub(crate) fn is_available() -> bool {
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version >= FIRST_KERNEL)
    }

    /// Reads the figures of a connection. Only for kernels for which they are available.
    pub(crate) fn read(host: &TcpStream) -> Option<Sample> {
        let figures = TcpInfo.get(host).ok()?;
        let micros = |micros: u32| Duration::from_micros(micros.into());
        let has_least = !matches!(figures.min_rtt_micros, 0 | u32::MAX);
        Some(Sample {
            smoothed_rtt: micros(figures.rtt_micros),
            rtt: micros(if has_least { figures.min_rtt_micros } else { figures.rtt_micros }),
            retransmissions: figures.total_retrans,
            out_of_order: figures.rcv_ooopack,
            busy: Duration::from_micros(figures.busy_micros),
            window_limited: Duration::from_micros(figures.rwnd_limited_micros),
            buffer_limited: Duration::from_micros(figures.sndbuf_limited_micros),
            not_sent: figures.notsent_bytes,
            sent: figures.bytes_sent.saturating_sub(figures.bytes_retrans),
            received: figures.bytes_received,
            cwnd: figures.snd_cwnd,
            in_flight: figures.unacked,
            recovery: figures.ca_state,
            since_sent: Duration::from_millis(figures.last_data_sent_millis.into()),
            since_received: Duration::from_millis(figures.last_data_recv_millis.into()),
        })
    }

    /// The increase since `before` of retransmissions, segments out of order, and the times of
    /// being busy and limited by the window; the RTT now, and the rest as it was then.
    pub(crate) fn since(&self, before: &Sample) -> Sample {
        Sample {
            rtt: self.rtt,
            retransmissions: self.retransmissions.saturating_sub(before.retransmissions),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
            busy: self.busy.saturating_sub(before.busy),
            window_limited: self.window_limited.saturating_sub(before.window_limited),
            ..*before
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
        for (at, place) in [
            (offset_of!(Figures, ca_state), offset_of!(libc::tcp_info, tcpi_ca_state)),
            (offset_of!(Figures, unacked), offset_of!(libc::tcp_info, tcpi_unacked)),
            (
                offset_of!(Figures, last_data_sent_millis),
                offset_of!(libc::tcp_info, tcpi_last_data_sent),
            ),
            (
                offset_of!(Figures, last_data_recv_millis),
                offset_of!(libc::tcp_info, tcpi_last_data_recv),
            ),
            (offset_of!(Figures, snd_cwnd), offset_of!(libc::tcp_info, tcpi_snd_cwnd)),
        ] {
            assert_eq!(at, place);
        }
        // linux/tcp.h
        assert_eq!(offset_of!(Figures, bytes_received), 128);
        assert_eq!(offset_of!(Figures, sndbuf_limited_micros), 184);
        assert_eq!(offset_of!(Figures, bytes_sent), 200);
        assert_eq!(offset_of!(Figures, bytes_retrans), 208);
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
        assert_eq!((sample.sent, sample.received), (0, 4));
        assert!(sample.cwnd > 0 && !sample.smoothed_rtt.is_zero(), "{sample:?}");
    }
}
