//! Path MTU: the longest packets of the path below, and their effect on the MSS.
//!
//! The MSS that we announce is the route's (`advmss`) or else follows from the MTU of the path (RFC
//! 9293, section 3.7.1). The MSS with which we send is the smallest of three: the MSS that the peer
//! announced, the one that the path carries now, and `TCP_MAXSEG`. The options of every segment are
//! subtracted: timestamps, a signature (RFC 6691).
//!
//! The path's MTU is learnt from routers ([`events`]), whose reports are valid for `mtu_expires`,
//! or by probes ([`search`], [`probing`]). A router that reports less than the stack's minimum
//! locks the MTU for that time: segments are not shortened any further, and routers may fragment
//! them ([`Path::is_locked`]).

mod events;
mod probing;
pub(crate) mod search;

use alloc::boxed::Box;

use plimsoll_wire::tcp::HEADER_LEN;

use crate::event::ConnectionError;
use crate::open_params::OpenParams;
use crate::route::PathMtu;
use crate::time::Instant;
use search::MtuSearch;

/// Bytes that the timestamp option takes from every segment, padding included.
pub(crate) const TIMESTAMP_OPTION_LEN: u16 = 12;

/// The lowest MTU that an ICMP message can set: IPv4 (RFC 791) and IPv6 (RFC 8200).
const MIN_MTU_V4: u16 = 68;
const MIN_MTU_V6: u16 = 1280;

/// The MSS of a peer that announced none (RFC 9293, section 3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;

/// An event of the path (from ICMP or from a device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// Packet too big (RFC 1191, RFC 8201): the path carries at most this IP packet, in bytes.
    Mtu(u16),
    /// Packet too big, but the message has no MTU, or one below the stack's minimum (IPv4). From
    /// now on IP packets are at most this long, in bytes, and routers may fragment them
    /// ([`LearntMtu::locked`](crate::LearntMtu::locked)).
    LockedMtu(u16),
    /// The link below carries longer or shorter packets than before. This is the known state of the
    /// path from now on.
    Link(PathMtu),
    /// An ICMP error that RFC 5461 calls soft: stored, and reported only if the connection times
    /// out. In SYN-SENT and SYN-RECEIVED it ends the attempt, as on Linux.
    SoftError(ConnectionError),
    /// An error that ends the connection (port or protocol unreachable during the handshake, device
    /// gone).
    HardError(ConnectionError),
}

/// The known properties of the path.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// The largest IP packet that the path carries, in bytes, as far as reported.
    pub(crate) mtu: u16,
    pub(crate) ip_header_len: u16,
    /// TCP_MAXSEG.
    maxseg: Option<u16>,
    /// The MSS that we announce.
    advmss: u16,
    /// The MSS that the peer announced.
    pub(crate) peer_mss: u16,
    /// Most payload bytes of one packet that is passed down.
    max_super_segment: u32,
    /// State that is needed only once the path differs from the open.
    learnt: Option<Box<Learnt>>,
}

/// Properties of the path learnt since the open.
#[derive(Clone, Debug)]
struct Learnt {
    /// The MTU of the link below.
    link_mtu: u16,
    /// When the path's MTU is that of the link again.
    lowered_until: Instant,
    /// Until then routers may fragment packets.
    locked: bool,
    /// The results of probes, if there are any.
    search: Option<MtuSearch>,
}

impl Path {
    pub(crate) fn new(params: &OpenParams) -> Path {
        let maxseg = params.options.maxseg;
        let mtu = params.mtu.current();
        let most = mtu.saturating_sub(params.ip_header_len + HEADER_LEN as u16).max(1);
        let announced = params.options.route.advmss.unwrap_or(most).max(1);
        let v6 = params.ip_header_len >= 40;
        let mut path = Path {
            mtu,
            ip_header_len: params.ip_header_len,
            maxseg,
            advmss: maxseg.map_or(announced, |limit| announced.min(limit.max(1))),
            peer_mss: if v6 { DEFAULT_MSS_V6 } else { DEFAULT_MSS_V4 },
            // Each wire segment has its own digest.
            max_super_segment: if params.options.md5_key.is_some() {
                0
            } else {
                u32::try_from(params.max_super_segment).unwrap_or(u32::MAX)
            },
            learnt: None,
        };
        path.set_known(params.mtu);
        path
    }

    /// The MSS option of our SYN.
    pub(crate) const fn advmss(&self) -> u16 {
        self.advmss
    }

    /// Whether the learnt MTU lets routers fragment packets.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.learnt.as_ref().is_some_and(|learnt| learnt.locked)
    }

    /// Most payload bytes of one packet that is passed down.
    pub(crate) const fn max_super_segment(&self) -> usize {
        self.max_super_segment as usize
    }

    /// The learnt properties, to be changed.
    fn learnt(&mut self) -> &mut Learnt {
        let link_mtu = self.mtu;
        self.learnt.get_or_insert_with(|| {
            Box::new(Learnt {
                link_mtu,
                lowered_until: Instant::FAR_FUTURE,
                locked: false,
                search: None,
            })
        })
    }

    fn search(&self) -> Option<&MtuSearch> {
        self.learnt.as_ref()?.search.as_ref()
    }

    fn search_mut(&mut self) -> Option<&mut MtuSearch> {
        self.learnt.as_mut()?.search.as_mut()
    }

    /// Bytes of the IP and TCP headers without options.
    fn headers(&self) -> u16 {
        self.ip_header_len + HEADER_LEN as u16
    }

    /// Payload bytes of a full segment, before the timestamp option.
    fn send_mss(&self, min_snd_mss: u16) -> u16 {
        let found = self.search().map_or(u16::MAX, MtuSearch::low);
        let fitting = self.mtu.min(found).saturating_sub(self.headers());
        fitting.min(self.most()).max(min_snd_mss)
    }

    /// The same, limited only by the peer and `TCP_MAXSEG`.
    fn most(&self) -> u16 {
        self.peer_mss.min(self.maxseg.unwrap_or(u16::MAX))
    }

    /// The next SYN announces the MSS of the path.
    fn lower_advmss(&mut self) {
        let most = self.mtu.saturating_sub(self.headers()).max(1);
        self.advmss = self.advmss.min(most);
    }

    /// Lowers the MTU; returns whether it changed.
    fn lower_mtu(&mut self, mtu: u16) -> bool {
        let floor = if self.ip_header_len >= 40 { MIN_MTU_V6 } else { MIN_MTU_V4 };
        let mtu = mtu.max(floor);
        let lower = mtu < self.mtu;
        if lower {
            self.learnt();
            self.mtu = mtu;
            if let Some(search) = self.search_mut() {
                search.on_bound(mtu);
            }
        }
        lower
    }

    /// Sets the known state of the path, whose MTU is set already.
    fn set_known(&mut self, known: PathMtu) {
        let lowered = known.learnt.filter(|learnt| learnt.mtu < known.link || learnt.locked);
        if lowered.is_none() && self.learnt.is_none() {
            return;
        }
        let learnt = self.learnt();
        learnt.link_mtu = known.link;
        learnt.lowered_until = lowered.map_or(Instant::FAR_FUTURE, |lowered| lowered.until);
        learnt.locked = lowered.is_some_and(|lowered| lowered.locked);
    }

    /// The MTU of the link, once the learnt lower MTU has expired. Returns it once.
    fn outdated(&mut self, now: Instant) -> Option<u16> {
        let learnt = self.learnt.as_mut().filter(|learnt| learnt.lowered_until <= now)?;
        learnt.lowered_until = Instant::FAR_FUTURE;
        learnt.locked = false;
        Some(learnt.link_mtu)
    }
}

#[cfg(test)]
mod tests;
