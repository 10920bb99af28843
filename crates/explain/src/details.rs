//! What a finding of a connection, or of the size of its segments, says in a sentence.

use crate::fits::TooLarge;
use crate::flow::Flow;
use crate::kinds::Kind;
use crate::report::{SIDES, millis};
use crate::tally::Tally;
use crate::text::plural;

/// Nanoseconds without a packet that are told of a reset.
const LONG_IDLE: u64 = 10_000_000_000;

/// A time in words.
fn span(nanos: u64) -> String {
    match nanos {
        1_000_000_000.. => format!("{:.1} s", nanos as f64 / 1e9),
        10_000_000.. => format!("{:.0} ms", millis(nanos)),
        _ => format!("{:.1} ms", millis(nanos)),
    }
}

/// A connection that opened late or not at all, or that a reset ended.
pub(crate) fn of_connection(flow: &Flow, from: usize, kind: Kind, tally: &Tally) -> String {
    let Tally { count, packets, nanos, .. } = *tally;
    let packets = packets as u64;
    let whole = flow.failed_until.max(flow.last).saturating_sub(flow.first);
    let among = if count > 1 { format!(", the last {} later", span(whole)) } else { String::new() };
    let to = [flow.ends.0, flow.ends.1][flow.client.map_or(0, |client| 1 - client)];
    let connects = plural(count, "connection");
    match kind {
        Kind::Refused => {
            format!("{connects} to {to} refused{among}; {} until the refusal in all", span(nanos))
        }
        Kind::NoAnswer => format!(
            "{connects} to {to} without an answer to {} in {}{among}",
            plural(packets, "SYN"),
            span(nanos)
        ),
        Kind::RepeatedSyn => format!(
            "{} until one was answered in time, {} later",
            plural(packets, "SYN"),
            span(nanos)
        ),
        Kind::LateHandshake => {
            format!("{} sent again within {}", plural(packets, "segment"), span(nanos))
        }
        _ => of_reset(flow, from, &among, count),
    }
}

fn of_reset(flow: &Flow, from: usize, among: &str, count: u64) -> String {
    let Some(reset) = flow.reset else { return plural(count, "time") };
    let who = SIDES[usize::from(flow.client.unwrap_or(0) != from)].name();
    let mut words = match count {
        1 => format!("by the {who} after {}", span(reset.mark.time.saturating_sub(flow.first))),
        _ => format!("{} by the {who}{among}; the first", plural(count, "connection")),
    };
    let mut add = |part: String| words += &part;
    add(match reset.unacked {
        0 => ", with nothing unacknowledged".into(),
        bytes => format!(
            ", with {} unacknowledged, which had waited {}",
            plural(bytes.into(), "byte"),
            span(reset.waited)
        ),
    });
    if reset.idle >= LONG_IDLE {
        add(format!("; nothing had passed for {} before", span(reset.idle)));
    }
    if reset.is_by_device() {
        let (its, others) = reset.ttl;
        add(format!("; its TTL is {its}, that of the {who}'s other packets {others}"));
    }
    words
}

/// Which sizes arrived and which did not, as payloads and as the packets of these.
pub(crate) fn of_sizes(flow: &Flow, from: usize, tally: &Tally) -> String {
    let of = |payload: u32| {
        let packet = flow.packet_len(from, payload);
        format!("{} (packets of {packet})", plural(payload.into(), "byte"))
    };
    let mut words = match flow.too_large(from) {
        Some(TooLarge { delivered, lost, times, .. }) => {
            let lost =
                format!("segments of {} were sent {} in vain", of(lost), plural(times, "time"));
            match delivered {
                0 => format!("{lost}, and no data arrived"),
                size => format!("{lost}; the largest that arrived had {}", of(size)),
            }
        }
        None => format!(
            "segments of up to {} are allowed; the largest that came here had {}",
            of(flow.full(from).said.unwrap_or(0)),
            of(flow.sides[from].largest.max(flow.sides[from].losses.fits.delivered()))
        ),
    };
    if let Some(told) = flow.sides[from].too_big {
        let mtu = match told.mtu {
            0 => "not how many bytes fit".into(),
            mtu => format!("that packets of {mtu} bytes fit"),
        };
        words += &format!("; {} reported {mtu}", told.router);
    }
    words + &format!("; the receiver waited {} in all", span(tally.nanos))
}
