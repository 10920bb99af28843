//! SYN cookies: opening without storing the SYN, as on Linux.
//!
//! The initial sequence number of the SYN-ACK is a cookie, which the caller, who has the secret,
//! makes and checks. It encodes the peer's MSS, rounded down to one of four, and whether the
//! SYN-ACK has timestamps. All other options of the SYN go into the low bits of TSval, and come
//! back in the TSecr of the ACK. A peer without timestamps is offered only the MSS.
//!
//! The window of the SYN-ACK is counted in segments, which are shorter with timestamps. A peer may
//! omit the timestamps in its ACK although it offered them. The advertised right edge must not move
//! left because of that (RFC 9293, section 3.8.6), so the cookie encodes how the window was
//! counted.
//!
//! The SYN-ACK is not retransmitted; a peer that misses it retransmits its SYN.

use plimsoll_buf::Slices;
use plimsoll_wire::tcp::{SynOptions, SynOrSack, TcpFlags, TcpOptions, TcpRepr, Timestamps};

use super::TimestampState;
use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::ecn::accurate::first_option;
use crate::ecn::negotiation::{Mode, Policy, ace, ace_flags, handshake_ace, syn_flags};
use crate::mtu::Path;
use crate::open_params::OpenParams;
use crate::recv::window::{
    choose_shift, first_cap, initial_buffer, initial_window, mss_with_timestamps, whole_segments,
};
use crate::segment::{Ecn, Segment};
use crate::signature::room_for_digest;
use crate::time::Instant;

/// The MSS values that a cookie can encode, over IPv4 and over IPv6.
const MSS_V4: [u16; 4] = [536, 1300, 1440, 1460];
const MSS_V6: [u16; 4] = [1220, 1420, 1440, 8940];

/// Of TSval: the window shift, or that there is none; SACK; ECN as in RFC 3168. Accurate ECN shows
/// in the flags of the ACK.
const SHIFT_MASK: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;
/// All of these.
const BITS: u32 = 0x3f;

/// A bit of the datum: the SYN-ACK has timestamps, for which its window was counted.
const STAMPED: u8 = 4;

fn table(ip_header_len: u16) -> [u16; 4] {
    if ip_header_len >= 40 { MSS_V6 } else { MSS_V4 }
}

/// The datum to encode in the cookie that answers `syn`. `params` are those of
/// [`cookie_syn_ack`](cookie_syn_ack()), whose cookie need not be known yet.
pub fn cookie_datum(cx: &Context, params: &OpenParams, syn: &Segment) -> u8 {
    let stamped = Offered::of_syn(syn, cx.config, params).stamps.is_some();
    let index = mss_index(params.ip_header_len, syn.repr.options.syn().mss);
    if stamped { index | STAMPED } else { index }
}

/// The index of the MSS to encode for a peer that announced `mss` after an IP header of
/// `ip_header_len` bytes.
fn mss_index(ip_header_len: u16, mss: Option<u16>) -> u8 {
    let table = table(ip_header_len);
    let fits = table.iter().rposition(|&known| mss.is_some_and(|mss| known <= mss));
    fits.unwrap_or(0) as u8
}

/// The SYN-ACK that answers `syn`. `params` are those of a connection, with the cookie as initial
/// sequence number.
pub fn cookie_syn_ack(cx: &Context, params: &OpenParams, syn: &Segment) -> TcpRepr {
    let offered = Offered::of_syn(syn, cx.config, params);
    let ts = TimestampState::new(params.ts_offset);
    let ecn = match offered.ecn {
        Mode::Off => TcpFlags::default(),
        Mode::Classic => TcpFlags::ECE,
        Mode::Accurate => ace_flags(handshake_ace(syn.ecn)),
    };
    let advmss = Path::new(params).advmss();
    let mss = if offered.stamps.is_some() { mss_with_timestamps(advmss) } else { advmss };
    let buffer = initial_buffer(cx.config, &params.options);
    let cap = first_cap(&params.options, mss) as usize;
    TcpRepr {
        src_port: params.local_port,
        dst_port: params.remote_port,
        seq: params.iss,
        ack: syn.repr.seq + 1,
        flags: TcpFlags::SYN | TcpFlags::ACK | ecn,
        window: initial_window(whole_segments(buffer.min(cap), mss)),
        urgent: 0,
        options: TcpOptions {
            timestamps: offered.stamps.map(|stamps| Timestamps {
                val: val_with(&ts, cx.now, offered.bits()),
                ecr: stamps.val,
            }),
            md5: room_for_digest(params.options.md5_key.as_ref()),
            syn_or_sack: SynOrSack::Syn(SynOptions {
                mss: Some(advmss),
                window_scale: offered.shift.map(|_| choose_shift(cx.config, &params.options)),
                sack_permitted: offered.sack,
                ..SynOptions::default()
            }),
            acc_ecn: (offered.ecn == Mode::Accurate && cx.config.tcp_ecn_option > 0)
                .then(first_option),
        },
    }
}

/// TSval at `now`, or a little before, with the low bits `bits`.
fn val_with(ts: &TimestampState, now: Instant, bits: u32) -> u32 {
    let clock = ts.val(now).wrapping_sub(ts.offset);
    let val = clock & !BITS | bits;
    let early = if val > clock { val.wrapping_sub(BITS + 1) } else { val };
    early.wrapping_add(ts.offset)
}

/// The accepted options of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offered {
    stamps: Option<Timestamps>,
    shift: Option<u8>,
    sack: bool,
    ecn: Mode,
}

impl Offered {
    fn of_syn(syn: &Segment, config: &Config, params: &OpenParams) -> Offered {
        let options = &syn.repr.options;
        let ecn = Policy::of(config, &params.options).answer(syn.repr.flags, syn.ecn);
        let stamps = options.timestamps.filter(|_| config.tcp_timestamps);
        let Some(stamps) = stamps.filter(|_| params.options.md5_key.is_none()) else {
            let ecn = if ecn == Mode::Accurate { ecn } else { Mode::Off };
            return Offered { ecn, ..Offered::default() };
        };
        Offered {
            stamps: Some(stamps),
            shift: options.syn().window_scale.filter(|_| config.tcp_window_scaling),
            sack: options.syn().sack_permitted && config.tcp_sack,
            ecn,
        }
    }

    fn bits(self) -> u32 {
        let shift = self.shift.map_or(SHIFT_MASK, |shift| u32::from(shift).min(SHIFT_MASK - 1));
        shift | if self.sack { SACK } else { 0 } | if self.ecn == Mode::Classic { ECN } else { 0 }
    }

    /// The options that `ack` brings back. `None` if they are impossible, since the settings do not
    /// allow them.
    fn of_ack(ack: &Segment, config: &Config, params: &OpenParams) -> Option<Offered> {
        let policy = Policy::of(config, &params.options);
        let counts = policy.agree == Mode::Accurate && is_counting(ack);
        let accurate = if counts { Mode::Accurate } else { Mode::Off };
        let Some(stamps) = ack.repr.options.timestamps else {
            return Some(Offered { ecn: accurate, ..Offered::default() });
        };
        let offset = params.ts_offset;
        let bits = stamps.ecr.wrapping_sub(offset);
        let shift = (bits & SHIFT_MASK) as u8;
        let offered = Offered {
            stamps: Some(stamps),
            shift: Some(shift).filter(|&shift| u32::from(shift) != SHIFT_MASK),
            sack: bits & SACK != 0,
            ecn: if bits & ECN != 0 { Mode::Classic } else { accurate },
        };
        let allowed = config.tcp_timestamps
            && (config.tcp_sack || !offered.sack)
            && (config.tcp_window_scaling || offered.shift.is_none());
        allowed.then_some(offered)
    }
}

/// Whether the peer's first packet without SYN counts marks: with RFC 3168 there is nothing to
/// report yet, and a later report has another form (RFC 9768, section 5.1).
fn is_counting(ack: &Segment) -> bool {
    let ace = ace(ack.repr.flags);
    matches!(ace, 0b010 | 0b011 | 0b100 | 0b110) || (ace == 0b101 && !ack.payload.is_empty())
}

impl Connection {
    /// The connection that `ack` completes, in SYN-RECEIVED; the caller must still pass `ack` to
    /// it. The cookie, which is the initial sequence number of `params`, is valid and encodes
    /// `datum` ([`cookie_datum`]). `None` if the options in `ack` are impossible.
    pub fn accept_cookie(
        cx: &Context,
        params: OpenParams,
        ack: &Segment,
        datum: u8,
    ) -> Option<Connection> {
        let mss = *table(params.ip_header_len).get(usize::from(datum & !STAMPED))?;
        let offered = Offered::of_ack(ack, cx.config, &params)?;
        let asked = syn_flags(offered.ecn);
        let repr = TcpRepr {
            seq: ack.repr.seq - 1,
            flags: TcpFlags::SYN | asked,
            options: TcpOptions {
                timestamps: offered.stamps,
                syn_or_sack: SynOrSack::Syn(SynOptions {
                    mss: Some(mss),
                    window_scale: offered.shift,
                    sack_permitted: offered.sack,
                    ..SynOptions::default()
                }),
                ..TcpOptions::default()
            },
            ..ack.repr.clone()
        };
        let syn = Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct };
        let mut conn = Connection::accept(cx, params, &syn);
        if datum & STAMPED != 0 && !conn.ts.enabled {
            conn.rcv.count_timestamps(&conn.options);
        }
        conn.pending.syn = false;
        conn.snd.on_syn_sent();
        conn.debug_invariants();
        Some(conn)
    }
}

#[cfg(test)]
mod tests;
