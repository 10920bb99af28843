//! The properties of the route to the peer: its attributes, its MTU, and whether the connection
//! follows routers' MTU reports.

use crate::algorithm::CongestionAlgorithm;
use crate::time::{Duration, Instant};

/// Attributes of a route, as in `ip route`. They apply to later connections; `mtu` applies to open
/// ones as well, and datagrams follow `mtu` and `mtu_lock`. `None` and `false` mean "not set".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteMetrics {
    /// `mtu`: bytes of an IP packet, including headers, from 68 (IPv6: 1280) on. The interface's
    /// MTU is the limit. The engine ignores it, since its caller passes the MTU of the path.
    pub mtu: Option<u16>,
    /// `mtu lock`: routers' MTU reports are ignored, and over IPv4 packets may be fragmented,
    /// unless the socket overrides it ([`PathMtuDiscovery`]). The engine ignores it.
    pub mtu_lock: bool,
    /// `advmss`: the MSS that our SYN announces, in bytes, independently of the MTU. 1 to 65495.
    pub advmss: Option<u16>,
    /// `initcwnd`: the initial congestion window, in segments, in place of the setting. 1 to 1024.
    pub initcwnd: Option<u32>,
    /// `initrwnd`: the largest window that our SYN offers, in segments of the MSS that it
    /// announces. Each full segment that arrives raises that limit by two. 1 to 1024.
    pub initrwnd: Option<u32>,
    /// `rto_min`: the least retransmission timeout, 1 us to 120 s. As on Linux it takes precedence
    /// over TCP_RTO_MIN_US.
    pub rto_min: Option<Duration>,
    /// `quickack`: all data is acknowledged at once for the life of the connection.
    pub quickack: bool,
    /// `congctl`: the congestion control. As on Linux it takes precedence over the socket's choice
    /// when the connection opens. The engine ignores it, since its caller sets it as the socket's.
    pub congestion: Option<CongestionAlgorithm>,
    /// `features ecn`: ECN (RFC 3168) is requested and accepted, even if the setting is "never".
    pub ecn: bool,
    /// `fastopen_no_cookie`: Fast Open without cookies. The engine ignores it.
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

/// The MTU of a path, as far as the stack knows. All values are bytes of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The MTU of the link below.
    pub link: u16,
    /// The MTU learnt from a router, while it is valid. After that, segments grow up to the link's
    /// MTU.
    pub learnt: Option<LearntMtu>,
}

/// A path MTU that was learnt from a router's message (RFC 1191, RFC 8201).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntMtu {
    /// Bytes of an IP packet.
    pub mtu: u16,
    /// The end of its validity (RFC 1191, section 6.3; RFC 8201, section 4).
    pub until: Instant,
    /// The router reported less than the stack's minimum, or no MTU (IPv4). So `mtu` may be more
    /// than the path carries: routers may fragment packets, and their reports are ignored, as with
    /// [`RouteMetrics::mtu_lock`].
    pub locked: bool,
}

impl PathMtu {
    /// The longest packet that the path carries now.
    #[must_use]
    pub fn current(self) -> u16 {
        self.learnt.map_or(self.link, |learnt| learnt.mtu.min(self.link))
    }

    /// Whether the learnt MTU lets routers fragment packets ([`LearntMtu::locked`]).
    #[must_use]
    pub fn is_locked(self) -> bool {
        self.learnt.is_some_and(|learnt| learnt.locked)
    }
}

impl From<u16> for PathMtu {
    /// A path with the MTU of the link.
    fn from(link: u16) -> PathMtu {
        PathMtu { link, learnt: None }
    }
}

/// Whether packets may be fragmented, and whether the path MTU is respected (IP_MTU_DISCOVER,
/// IPV6_MTU_DISCOVER).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathMtuDiscovery {
    /// Packets that fit the path are sent with "don't fragment"; a longer datagram leaves in
    /// fragments. A connection sends nothing longer, and follows routers' reports. The default of
    /// Linux (IP_PMTUDISC_WANT).
    #[default]
    Fragment,
    /// "Don't fragment" is always set, and a datagram that is longer than the known path MTU fails
    /// with EMSGSIZE (IP_PMTUDISC_DO). QUIC and DTLS need this. For a connection it is the same as
    /// [`Fragment`](Self::Fragment), except that it also applies over a route with `mtu lock`.
    DontFragment,
    /// As [`DontFragment`](Self::DontFragment), but only the MTU of the interface and of the route
    /// counts, so that datagrams can probe the path (IP_PMTUDISC_PROBE, RFC 8899).
    Probe,
    /// "Don't fragment" is never set, and a datagram that is longer than the MTU of the interface
    /// or of the route leaves in fragments (IP_PMTUDISC_DONT). A connection ignores routers'
    /// reports; routers may fragment its packets. Over IPv6 only the sender fragments: there a
    /// datagram is treated as with [`Fragment`](Self::Fragment).
    Never,
}
