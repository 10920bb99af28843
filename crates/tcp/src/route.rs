//! What a connection is told of its way to the peer: the attributes of the route, how long packets
//! may be, and whether it follows what routers tell of that.

use crate::algorithm::CongestionAlgorithm;
use crate::time::{Duration, Instant};

/// Attributes of a route, as `ip route` has them. They hold for connections that open from then on;
/// `mtu` holds for open ones as well, and datagrams follow `mtu` and `mtu_lock`. `None` and `false`
/// are "not said".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteMetrics {
    /// `mtu`: bytes of an IP packet, headers included, from 68 (IPv6: 1280) on. It is no more than
    /// what the interface carries. The engine does not look at it, since its caller tells it the
    /// MTU of the path.
    pub mtu: Option<u16>,
    /// `mtu lock`: routers are not believed about the MTU, and over IPv4 packets may be fragmented,
    /// unless the socket says otherwise ([`PathMtuDiscovery`]). The engine does not look at it.
    pub mtu_lock: bool,
    /// `advmss`: the MSS that our SYN announces, in bytes, whatever the MTU is. 1 to 65495.
    pub advmss: Option<u16>,
    /// `initcwnd`: the initial congestion window, in segments, in place of the setting. 1 to 1024.
    pub initcwnd: Option<u32>,
    /// `initrwnd`: the window that our SYN offers at most, in segments of the MSS that it
    /// announces. Each full segment that arrives raises that bound by two. 1 to 1024.
    pub initrwnd: Option<u32>,
    /// `rto_min`: the least retransmission timeout, 1 us to 120 s. As on Linux it goes before
    /// TCP_RTO_MIN_US.
    pub rto_min: Option<Duration>,
    /// `quickack`: everything is acknowledged at once for as long as the connection lives.
    pub quickack: bool,
    /// `congctl`: the congestion control. As on Linux it goes before what the socket has chosen
    /// when the connection opens. The engine does not look at it, since its caller makes it the
    /// socket's.
    pub congestion: Option<CongestionAlgorithm>,
    /// `features ecn`: ECN (RFC 3168) is asked for and agreed to, even if the setting says never.
    pub ecn: bool,
    /// `fastopen_no_cookie`: Fast Open without cookies. The engine does not look at it.
    pub fastopen_no_cookie: bool,
}

crate::setters!(RouteMetrics {
    mtu: Option<u16>,
    mtu_lock: bool,
    advmss: Option<u16>,
    initcwnd: Option<u32>,
    initrwnd: Option<u32>,
    rto_min: Option<Duration>,
    quickack: bool,
    congestion: Option<CongestionAlgorithm>,
    ecn: bool,
    fastopen_no_cookie: bool,
});

/// How long packets may be on a path, as far as the stack below knows. All of it is bytes of IP
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// What the link below carries.
    pub link: u16,
    /// What was learnt from a router, if that is still believed. Once it is not, segments grow up
    /// to what the link carries.
    pub learnt: Option<LearntMtu>,
}

/// A path MTU that was learnt from a router's message (RFC 1191, RFC 8201).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntMtu {
    /// Bytes of an IP packet.
    pub mtu: u16,
    /// Until when it is believed (RFC 1191, section 6.3; RFC 8201, section 4).
    pub until: Instant,
    /// The router named less than we go down to, or nothing (IPv4). So `mtu` may be more than the
    /// path carries: routers may fragment packets, and are not believed any more, as with
    /// [`RouteMetrics::mtu_lock`].
    pub locked: bool,
}

impl PathMtu {
    /// The longest packet that the path carries now.
    #[must_use]
    pub fn current(self) -> u16 {
        self.learnt.map_or(self.link, |learnt| learnt.mtu.min(self.link))
    }

    /// Whether what was learnt lets routers fragment packets ([`LearntMtu::locked`]).
    #[must_use]
    pub fn is_locked(self) -> bool {
        self.learnt.is_some_and(|learnt| learnt.locked)
    }
}

impl From<u16> for PathMtu {
    /// The path carries what the link does.
    fn from(link: u16) -> PathMtu {
        PathMtu { link, learnt: None }
    }
}

/// Whether packets may be fragmented, and whether what is known of the path is heeded
/// (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathMtuDiscovery {
    /// What fits the path is sent with "don't fragment"; a datagram that is longer leaves in
    /// fragments. A connection sends nothing longer, and follows what routers tell. The default of
    /// Linux (IP_PMTUDISC_WANT).
    #[default]
    Fragment,
    /// "Don't fragment" is always set, and a datagram that is longer than the path is known to
    /// carry fails with EMSGSIZE (IP_PMTUDISC_DO). What QUIC and DTLS want. To a connection it is
    /// as [`Fragment`](Self::Fragment), but that it holds over a route with `mtu lock` as well.
    DontFragment,
    /// As [`DontFragment`](Self::DontFragment), but only the MTU of the interface and of the route
    /// counts, so that datagrams can probe the path (IP_PMTUDISC_PROBE, RFC 8899).
    Probe,
    /// "Don't fragment" is never set, and a datagram that is longer than the MTU of the interface
    /// or of the route leaves in fragments (IP_PMTUDISC_DONT). A connection pays no heed to what
    /// routers tell; they may cut its packets. Over IPv6 only the sender fragments: there a
    /// datagram is treated as with [`Fragment`](Self::Fragment).
    Never,
}
