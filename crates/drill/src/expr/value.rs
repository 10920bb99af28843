//! Values of the little language, and what operators do with them.

use std::cmp::Ordering;
use std::fmt;

use super::CodeError;

/// The longest text that a block can make.
const MAX_TEXT: usize = 64 * 1024;

/// A value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Tuple(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e16 => {
                write!(f, "{value:.1}")
            }
            Value::Float(value) => write!(f, "{value}"),
            Value::Str(text) => f.write_str(text),
            Value::Tuple(list) => {
                let parts: Vec<String> = list.iter().map(Value::to_string).collect();
                write!(f, "({})", parts.join(", "))
            }
        }
    }
}

impl Value {
    /// Whether it counts as true.
    pub(super) fn truth(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Str(text) => !text.is_empty(),
            Value::Tuple(list) => !list.is_empty(),
        }
    }

    /// As a whole number, if it is one; truth values are 0 and 1.
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Value::Bool(value) => Some(i64::from(*value)),
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// As a number.
    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            other => other.int().map(|value| value as f64),
        }
    }

    /// How it compares, if it does.
    pub(super) fn compare(&self, other: &Value) -> Option<Ordering> {
        if let (Some(a), Some(b)) = (self.int(), other.int()) {
            return Some(a.cmp(&b));
        }
        match (self, other) {
            (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
            (a, b) => a.float()?.partial_cmp(&b.float()?),
        }
    }

    /// Whether it equals another; what cannot be compared is not equal.
    pub(super) fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::None, Value::None) => true,
            (Value::Tuple(a), Value::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            (a, b) => a.compare(b) == Some(Ordering::Equal),
        }
    }
}

/// `a operator b`.
pub(super) fn binary(a: &Value, operator: &str, b: &Value) -> Result<Value, CodeError> {
    if let (Value::Str(format), "%") = (a, operator) {
        return format_text(format, b);
    }
    if let (Value::Str(a), "+", Value::Str(b)) = (a, operator, b) {
        return bounded(format!("{a}{b}"));
    }
    if let (Some(a), Some(b), false) = (a.int(), b.int(), operator == "/") {
        return whole(a, operator, b);
    }
    let (Some(x), Some(y)) = (a.float(), b.float()) else {
        return Err(CodeError::wrong(format!("`{operator}` cannot be applied to {a} and {b}")));
    };
    let divides = matches!(operator, "/" | "//" | "%");
    if divides && y == 0.0 {
        return Err(CodeError::wrong("division by zero"));
    }
    Ok(Value::Float(match operator {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" => x / y,
        "//" => (x / y).floor(),
        "%" => x - y * (x / y).floor(),
        _ => return Err(CodeError::wrong(format!("`{operator}` needs whole numbers"))),
    }))
}

fn whole(a: i64, operator: &str, b: i64) -> Result<Value, CodeError> {
    let shift = || u32::try_from(b).ok().filter(|bits| *bits < 64);
    let result = match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "//" | "%" if b == 0 => return Err(CodeError::wrong("division by zero")),
        // Rounded down, not towards zero.
        "//" => a.checked_div(b).map(|q| q - i64::from(a % b != 0 && (a < 0) != (b < 0))),
        "%" => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        "&" => Some(a & b),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "<<" => shift().and_then(|bits| a.checked_mul(1_i64.checked_shl(bits)?)),
        ">>" => shift().map(|bits| a >> bits),
        _ => return Err(CodeError::wrong(format!("`{operator}` is not understood"))),
    };
    result.map(Value::Int).ok_or_else(|| CodeError::wrong(format!("{a} {operator} {b} overflows")))
}

fn bounded(text: String) -> Result<Value, CodeError> {
    if text.len() > MAX_TEXT {
        return Err(CodeError::wrong("a text grows too long"));
    }
    Ok(Value::Str(text))
}

/// `'%d of %d' % (a, b)`.
fn format_text(format: &str, values: &Value) -> Result<Value, CodeError> {
    let list = match values {
        Value::Tuple(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut values = list.iter();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| c.is_ascii_alphabetic() || c == '%');
        let Some(end) = end else { return Err(CodeError::wrong("a format ends after `%`")) };
        let (flags, kind) = (&rest[..end], rest.as_bytes()[end]);
        rest = &rest[end + 1..];
        if kind == b'%' {
            text.push('%');
            continue;
        }
        let value = values.next();
        let value = value.ok_or_else(|| CodeError::wrong("a format has more `%` than values"))?;
        text.push_str(&format_one(flags, kind, value)?);
    }
    if values.next().is_some() {
        return Err(CodeError::wrong("a format has fewer `%` than values"));
    }
    text.push_str(rest);
    bounded(text)
}

fn format_one(flags: &str, kind: u8, value: &Value) -> Result<String, CodeError> {
    let wrong = || CodeError::wrong(format!("%{flags}{} does not fit {value}", kind as char));
    let number = || value.int().or_else(|| value.float().map(|value| value as i64));
    let places = flags.split_once('.').map_or(Some(6), |(_, digits)| digits.parse().ok());
    let text = match kind {
        b'd' | b'i' | b'u' => number().ok_or_else(wrong)?.to_string(),
        b'x' => format!("{:x}", number().ok_or_else(wrong)?),
        b'X' => format!("{:X}", number().ok_or_else(wrong)?),
        b's' | b'r' => value.to_string(),
        b'f' => {
            let places = places.filter(|places: &usize| *places <= 30).ok_or_else(wrong)?;
            format!("{:.places$}", value.float().ok_or_else(wrong)?)
        }
        _ => return Err(wrong()),
    };
    let width = flags.trim_start_matches(['-', '+', ' ', '#', '0']);
    let width: usize = width.split('.').next().unwrap_or("").parse().unwrap_or(0);
    let width = width.min(200);
    Ok(match flags.bytes().next() {
        Some(b'-') => format!("{text:<width$}"),
        Some(b'0') => format!("{text:0>width$}"),
        _ => format!("{text:>width$}"),
    })
}
