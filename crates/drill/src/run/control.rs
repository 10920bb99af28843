//! Ancillary messages: what a script expects, and comparing it with what came.

use crate::posix::ControlMessage;

use super::arguments::{integer, integer32};
use crate::failure::Failure;
use crate::lang::ast::{Expr, Spanned};
use crate::packet::show::seconds;
use crate::symbols;

const SOL_SOCKET: i32 = 1;
const SOL_IP: i32 = 0;
/// Bytes of `struct scm_timestamping`: three times of 16 bytes.
const TIMESTAMPING_LEN: usize = 48;
/// Bytes of the header of an ancillary message.
const HEADER_LEN: usize = 16;

/// One message that a script expects.
#[derive(Debug)]
pub(super) struct Expected {
    level: i32,
    kind: i32,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Int(i32),
    /// Microseconds since the start; 0 is "do not look".
    Timestamp(i64),
    /// `ee_errno` and so on: the first 16 bytes of the structure.
    Error([u8; 16]),
    /// Statistics: type, length, value; `None` is `...`.
    Stats(Vec<(u16, usize, Option<i64>)>),
}

impl Expected {
    /// Bytes that a program reserves for the message.
    pub(super) fn room(&self) -> usize {
        HEADER_LEN + self.len().next_multiple_of(8)
    }

    /// Bytes of its data.
    fn len(&self) -> usize {
        match &self.data {
            Data::Int(_) => 4,
            Data::Timestamp(_) => TIMESTAMPING_LEN,
            // The address of the peer follows.
            Data::Error(_) => 16 + if self.level == SOL_IP { 16 } else { 28 },
            Data::Stats(list) => list.iter().map(|(_, len, _)| 4 + len.next_multiple_of(4)).sum(),
        }
    }

    /// Compares it with what came. `epoch` is what the clock of timestamps showed when the script
    /// began, `tolerance` how far one may be off; all in microseconds.
    pub(super) fn compare(
        &self,
        came: &ControlMessage,
        epoch: i64,
        tolerance: i64,
    ) -> Result<(), String> {
        if (self.level, self.kind) != (came.level, came.kind) {
            let want = format!("level {} type {}", self.level, self.kind);
            return Err(format!("level {} type {} instead of {want}", came.level, came.kind));
        }
        if self.len() != came.data.len() {
            return Err(format!("{} bytes instead of {}", came.data.len(), self.len()));
        }
        match &self.data {
            Data::Int(want) => match int(&came.data, 0) {
                have if have == *want => Ok(()),
                have => Err(format!("the value {have} instead of {want}")),
            },
            Data::Timestamp(0) => Ok(()),
            Data::Timestamp(want) => {
                let have = long(&came.data, 0)
                    .saturating_mul(1_000_000)
                    .saturating_add(long(&came.data, 8) / 1000)
                    .saturating_sub(epoch);
                if have.abs_diff(*want) <= tolerance.unsigned_abs() {
                    return Ok(());
                }
                Err(format!("the timestamp {} instead of {}", seconds(have), seconds(*want)))
            }
            Data::Error(want) => compare_errors(want, &came.data),
            Data::Stats(list) => compare_stats(list, &came.data, tolerance),
        }
    }
}

fn int(data: &[u8], at: usize) -> i32 {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_le_bytes)
}

fn long(data: &[u8], at: usize) -> i64 {
    let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i64::from_le_bytes)
}

fn compare_errors(want: &[u8; 16], have: &[u8]) -> Result<(), String> {
    const FIELDS: [(&str, usize, usize); 6] = [
        ("ee_errno", 0, 4),
        ("ee_origin", 4, 1),
        ("ee_type", 5, 1),
        ("ee_code", 6, 1),
        ("ee_info", 8, 4),
        ("ee_data", 12, 4),
    ];
    for (name, at, len) in FIELDS {
        let read = |data: &[u8]| {
            let bytes = data.get(at..at + len).unwrap_or_default();
            bytes.iter().rev().fold(0_u32, |value, &byte| value << 8 | u32::from(byte))
        };
        let (want, have) = (read(want), read(have));
        if want != have {
            return Err(format!("{name} is {have} instead of {want}"));
        }
    }
    Ok(())
}

fn compare_stats(
    list: &[(u16, usize, Option<i64>)],
    data: &[u8],
    tolerance: i64,
) -> Result<(), String> {
    let mut at = 0;
    for &(kind, len, want) in list {
        let have_len = usize::from(int(data, at) as u16);
        let have_kind = (int(data, at) >> 16) as u16;
        if (have_kind, have_len) != (kind, len + 4) {
            return Err(format!("statistic {have_kind} instead of {kind}"));
        }
        let have = match len {
            1 => i64::from(data.get(at + 4).copied().unwrap_or(0)),
            4 => i64::from(int(data, at + 4).cast_unsigned()),
            _ => long(data, at + 4),
        };
        at += 4 + len.next_multiple_of(4);
        let Some(want) = want else { continue };
        // The first three are times.
        let close = (1..=3).contains(&kind) && want != 0 && have.abs_diff(want) <= tolerance as u64;
        if have != want && !close {
            return Err(format!("statistic {kind} is {have} instead of {want}"));
        }
    }
    Ok(())
}

/// What a script expects of one message.
pub(super) fn expected(expr: &Spanned<Expr>) -> Result<Expected, Failure> {
    let Expr::ControlMessage { level, kind, data } = &expr.node else {
        return Err(Failure::script(&expr.span, "a {cmsg_level=.., ...} belongs here"));
    };
    let (level, kind) = (integer32(level)?, integer32(kind)?);
    let data = match &data.node {
        Expr::ScmTimestamping { sec, nsec } => {
            Data::Timestamp(sec.saturating_mul(1_000_000).saturating_add(nsec / 1000))
        }
        Expr::ExtendedError(parts) => Data::Error(extended_error(parts)?),
        Expr::List(list) => Data::Stats(stats(list)?),
        _ => Data::Int(integer32(data)?),
    };
    Ok(Expected { level, kind, data })
}

fn extended_error(parts: &[Spanned<Expr>; 6]) -> Result<[u8; 16], Failure> {
    let [errno, origin, kind, code, info, data] = parts;
    let mut bytes = [0; 16];
    for (expr, at) in [(errno, 0), (info, 8), (data, 12)] {
        bytes[at..at + 4].copy_from_slice(&integer32(expr)?.to_le_bytes());
    }
    for (expr, at) in [(origin, 4), (kind, 5), (code, 6)] {
        let value = integer(expr)?;
        bytes[at] = u8::try_from(value)
            .or_else(|_| i8::try_from(value).map(i8::cast_unsigned))
            .map_err(|_| Failure::script(&expr.span, format!("{value} does not fit a byte")))?;
    }
    Ok(bytes)
}

fn stats(list: &[Spanned<Expr>]) -> Result<Vec<(u16, usize, Option<i64>)>, Failure> {
    let one = |expr: &Spanned<Expr>| {
        let Expr::Assign(name, value) = &expr.node else {
            return Err(Failure::script(&expr.span, "a NAME=value belongs here"));
        };
        let number = symbols::value(name).filter(|_| name.starts_with("TCP_NLA_"));
        let number = number
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| Failure::script(&expr.span, format!("there is no statistic {name}")))?;
        let len = match number {
            11 | 12 | 14 => 1,
            8 | 9 | 10 | 13 | 15 | 16 | 17 | 20 | 21 | 22 => 4,
            _ => 8,
        };
        let value = match &value.node {
            Expr::Ellipsis => None,
            _ => Some(integer(value)?),
        };
        Ok((number, len, value))
    };
    list.iter().map(one).collect()
}

/// A message that a script sends along.
pub(super) fn to_send(expr: &Spanned<Expr>) -> Result<ControlMessage, Failure> {
    let message = expected(expr)?;
    match message.data {
        Data::Int(value) => Ok(ControlMessage {
            level: message.level,
            kind: message.kind,
            data: value.to_le_bytes().to_vec(),
        }),
        _ => Err(Failure::script(&expr.span, "such a message cannot be sent")),
    }
}

/// Messages in words.
pub(super) fn show(list: &[ControlMessage]) -> String {
    let one = |message: &ControlMessage| {
        let level = match message.level {
            SOL_SOCKET => "SOL_SOCKET".to_owned(),
            SOL_IP => "SOL_IP".to_owned(),
            6 => "SOL_TCP".to_owned(),
            other => other.to_string(),
        };
        let bytes: String = message.data.iter().take(48).map(|b| format!("{b:02x}")).collect();
        format!("{{level {level}, type {}, data {bytes}}}", message.kind)
    };
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}
