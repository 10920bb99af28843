//! Comparing a packet that has left with what the script says.

use crate::config::Config;
use crate::lang::ast::{IpInfo, Tcp, Tos};
use crate::packet::flag;
use crate::packet::live::{Live, Segment};
use crate::packet::options::{self, RawOption};
use crate::packet::show;

/// What differs, in words.
type Outcome = Result<(), String>;

/// A segment of the script, options as bytes.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) tcp: &'a Tcp,
    /// The flag bits, those of a counter digit included.
    pub(super) flags: u16,
    /// `None` is `<...>`.
    pub(super) options: Option<Vec<RawOption>>,
}

impl<'a> Wanted<'a> {
    /// # Errors
    /// If the options cannot be.
    pub(super) fn new(tcp: &'a Tcp) -> Result<Wanted<'a>, String> {
        let options = tcp.options.as_deref().map(options::encode).transpose()?;
        Ok(Wanted { tcp, flags: flag_bits(tcp), options })
    }

    /// The timestamp that it carries.
    pub(super) fn stamp(&self) -> Option<u32> {
        let list = self.options.as_deref().unwrap_or_default();
        list.iter().rev().find_map(|option| option.timestamps()).map(|(val, _)| val)
    }

    /// As a script writes it.
    pub(super) fn show(&self) -> String {
        let tcp = self.tcp;
        let mut text = show::flags(self.flags);
        if let Some(ace) = tcp.flags.ace {
            text = show::flags(self.flags & !(flag::ECE | flag::CWR | flag::AE));
            text.push_str(&ace.to_string());
        }
        text.push_str(&format!(" {}:{}({})", tcp.seq, tcp.seq_end, tcp.len));
        if let Some(ack) = tcp.ack {
            text.push_str(&format!(" ack {ack}"));
        }
        if let Some(window) = tcp.window {
            text.push_str(&format!(" win {window}"));
        }
        if let Some(urgent) = tcp.urgent {
            text.push_str(&format!(" urg {urgent}"));
        }
        match &self.options {
            None => text.push_str(" <...>"),
            Some(list) if list.is_empty() => {}
            Some(list) => text.push_str(&format!(" <{}>", options::show_all(list))),
        }
        text
    }
}

/// The flags of a script's segment as bits.
pub(super) fn flag_bits(tcp: &Tcp) -> u16 {
    let Some(ace) = tcp.flags.ace else { return tcp.flags.bits };
    let mut bits = tcp.flags.bits & !(flag::ECE | flag::CWR | flag::AE);
    for (bit, of) in [(flag::ECE, 1), (flag::CWR, 2), (flag::AE, 4)] {
        if ace & of != 0 {
            bits |= bit;
        }
    }
    bits
}

fn field<T: PartialEq + std::fmt::Display>(name: &str, wanted: T, came: T) -> Outcome {
    if wanted == came {
        return Ok(());
    }
    Err(format!("{name} is {came} instead of {wanted}"))
}

/// Compares the IP header.
pub(super) fn ip(wanted: &IpInfo, live: &Live) -> Outcome {
    let ecn = live.tos & 3;
    match wanted.tos {
        None => {}
        Some(Tos::Ecn(bits)) => field("the ECN mark", bits & 3, ecn)?,
        Some(Tos::EitherEct) if ecn == 1 || ecn == 2 => {}
        Some(Tos::EitherEct) => {
            return Err(format!("the ECN mark is {ecn} instead of 1 or 2"));
        }
        Some(Tos::Byte(byte)) => field("the TOS", byte, live.tos)?,
    }
    match wanted.ttl {
        Some(ttl) => field("the TTL", ttl, live.ttl),
        None => Ok(()),
    }
}

/// Compares the TCP header with the numbers of the script.
pub(super) fn header(wanted: &Wanted<'_>, came: &Segment) -> Outcome {
    let tcp = wanted.tcp;
    if wanted.flags != came.flags {
        let (want, have) = (show::flags(wanted.flags), show::flags(came.flags));
        return Err(format!("the flags are {have} instead of {want}"));
    }
    field("the sequence number", tcp.seq, came.seq)?;
    if came.has(flag::ACK) {
        field("the acknowledgement number", tcp.ack.unwrap_or(0), came.ack)?;
    }
    if let Some(window) = tcp.window {
        field("the window", window, came.window)?;
    }
    field("the urgent pointer", tcp.urgent.unwrap_or(0), came.urgent)
}

/// Compares the options. Timestamps, already in the script's terms, only if their tick is known;
/// `tolerance` is in microseconds.
pub(super) fn options(
    config: &Config,
    tolerance: i64,
    wanted: &Wanted<'_>,
    came: &Segment,
) -> Outcome {
    let Some(list) = &wanted.options else { return Ok(()) };
    let kinds = |list: &[RawOption]| list.iter().map(|option| option.kind).collect::<Vec<_>>();
    if kinds(list) != kinds(&came.options) {
        let shown = |list: &[RawOption]| match options::show_all(list) {
            text if text.is_empty() => "none".to_owned(),
            text => format!("<{text}>"),
        };
        return Err(format!("the options are {} instead of {}", shown(&came.options), shown(list)));
    }
    for (want, have) in list.iter().zip(&came.options) {
        match (want.timestamps(), have.timestamps()) {
            (Some((want, _)), Some((have, _))) => {
                let off = i64::from(have.wrapping_sub(want).cast_signed()).abs();
                let tick = i64::from(config.tcp_ts_tick_usecs);
                if off * tick > tolerance {
                    return Err(format!("the timestamp is {have} instead of {want}"));
                }
            }
            _ if want == have => {}
            _ => {
                let (want, have) = (options::show(want), options::show(have));
                return Err(format!("the option is `{have}` instead of `{want}`"));
            }
        }
    }
    Ok(())
}

/// Whether `next` may be the continuation of `before` in one super-segment of the script: all but
/// PSH, FIN and CWR is the same, and the numbers follow on.
pub(super) fn continues(before: &Segment, next: &Segment) -> Outcome {
    const MAY_DIFFER: u16 = flag::PSH | flag::FIN | flag::CWR;
    let flags = |segment: &Segment| show::flags(segment.flags & !MAY_DIFFER);
    field("the flags", flags(before), flags(next))?;
    let len = |segment: &Segment| -> usize {
        segment.options.iter().map(|option| option.bytes.len()).sum()
    };
    field("the length of the options", len(before), len(next))?;
    field("the sequence number", before.seq.wrapping_add(before.len), next.seq)?;
    field("the acknowledgement number", before.ack, next.ack)?;
    field("the window", before.window, next.window)?;
    field("the urgent pointer", before.urgent, next.urgent)
}

/// One segment out of several: the header of the last, sequence number and CWR of the first.
pub(super) fn merge(pieces: &[Segment]) -> Option<Segment> {
    let (first, last) = (pieces.first()?, pieces.last()?);
    let mut whole = last.clone();
    whole.seq = first.seq;
    whole.flags = last.flags & !flag::CWR | first.flags & flag::CWR;
    whole.len = pieces.iter().map(|piece| piece.len).sum();
    whole.zeroes = pieces.iter().all(|piece| piece.zeroes);
    Some(whole)
}
