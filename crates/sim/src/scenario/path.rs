//! Keys of a TOML file, by their way from its top: `flow[0].client.write`.
//!
//! Errors name the key that is wrong with such a path, the line of an error is found by it, and a
//! batch says by it which values its grid sets.

use core::fmt;
use std::str::FromStr;

/// One step from a table or an array to what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A key of a table.
    Key(String),
    /// An element of an array, from 0.
    Index(usize),
    /// Every element of an array: `[*]`.
    All,
}

/// A way from the top of a file to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Step>);

/// What a key may stand in.
const QUOTES: [char; 2] = ['"', '\''];

impl FromStr for Path {
    type Err = String;

    /// Reads `host[*].sysctl."net.ipv4.tcp_sack"`. A key with a dot or a bracket stands in quotes.
    fn from_str(text: &str) -> Result<Path, String> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        let none = || format!("'{text}' is not a key of a scenario; try flow[0].up");
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (index, behind) = inside.split_once(']').ok_or_else(none)?;
                steps.push(match index {
                    "*" => Step::All,
                    _ => Step::Index(index.parse().map_err(|_| none())?),
                });
                rest = behind;
                continue;
            }
            if !steps.is_empty() {
                rest = rest.strip_prefix('.').ok_or_else(none)?;
            }
            let (key, behind) = match rest.chars().next().filter(|c| QUOTES.contains(c)) {
                Some(quote) => rest[1..].split_once(quote).ok_or_else(none)?,
                None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
            };
            if key.is_empty() {
                return Err(none());
            }
            steps.push(Step::Key(key.to_owned()));
            rest = behind;
        }
        match steps.first() {
            Some(Step::Key(_)) => Ok(Path(steps)),
            _ => Err(none()),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) => {
                    let dot = if place > 0 { "." } else { "" };
                    if !key.contains(['.', '[', ' ']) {
                        write!(f, "{dot}{key}")?;
                    } else {
                        let quote = QUOTES[usize::from(key.contains(QUOTES[0]))];
                        write!(f, "{dot}{quote}{key}{quote}")?;
                    }
                }
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::All => write!(f, "[*]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_shown() {
        for text in [
            "limit",
            "flow[0].up",
            "host[*].sysctl.\"net.ipv4.tcp_sack\"",
            "a.b[3][*].\"c d\"",
            "grid.'x.\"y\"'",
        ] {
            assert_eq!(text.parse::<Path>().unwrap().to_string(), text);
        }
        for text in ["", "[0]", ".a", "a.", "a[", "a[x]", "a..b", "a[0]b", "a.\"b"] {
            let error = text.parse::<Path>().unwrap_err();
            assert!(error.contains("flow[0].up"), "{text}: {error}");
        }
    }
}
