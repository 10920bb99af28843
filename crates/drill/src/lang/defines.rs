//! Words that the user gives a value (`-D NAME=value`).

use std::collections::BTreeMap;

use super::token::{Kind, is_keyword};

/// A define that is not of the form `NAME=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a define has the form NAME=value, and `{0}` has not")]
pub struct BadDefine(pub String);

/// Words and their values. A later define of the same name wins.
///
/// What a word becomes depends on its value: `"..."` a string, `` `...` `` shell lines, a number a
/// number, and anything else another word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defines {
    values: BTreeMap<String, String>,
}

impl Defines {
    /// No defines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `NAME=value`.
    ///
    /// # Errors
    /// If the text has no equals sign or nothing before it.
    pub fn define(&mut self, text: &str) -> Result<(), BadDefine> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                self.set(name, value);
                Ok(())
            }
            _ => Err(BadDefine(text.to_owned())),
        }
    }

    /// Gives a name a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Adds those of `later`, which win.
    pub fn extend(&mut self, later: &Self) {
        for (name, value) in &later.values {
            self.set(name, value);
        }
    }

    /// The token that stands in the place of `word`, if the word is defined. Words that the
    /// language reserves cannot be given another meaning.
    pub(super) fn replacement(&self, word: &str) -> Option<(Kind, &str)> {
        if self.values.is_empty() || is_keyword(word) {
            return None;
        }
        let value = self.get(word)?;
        Some(if let Some(inside) = quoted(value, '"') {
            (Kind::String, inside)
        } else if let Some(inside) = quoted(value, '`') {
            (Kind::Shell, inside)
        } else if is_hex(value) {
            (Kind::Hex, value)
        } else if is_integer(value) {
            (Kind::Integer, value)
        } else {
            (Kind::Word, value)
        })
    }
}

/// What is between two quotes.
fn quoted(value: &str, quote: char) -> Option<&str> {
    value.strip_prefix(quote)?.strip_suffix(quote)
}

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(value: &str) -> bool {
    value.strip_prefix("0x").is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}
