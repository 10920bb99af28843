//! What is wrong in a scenario, and where.

use core::fmt;
use std::path::{Path as FilePath, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::path::{Path, Step};

/// A scenario that is none, or that contradicts itself.
///
/// It is shown as `FILE:LINE: KEY: what is wrong; what to write`. What is not known is left out: a
/// scenario that was not read from a file has no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    file: Option<PathBuf>,
    line: Option<usize>,
    key: String,
    reason: String,
}

impl ScenarioError {
    /// `reason` is wrong with the value of `key`.
    pub(crate) fn new(key: impl Into<String>, reason: impl Into<String>) -> ScenarioError {
        ScenarioError { file: None, line: None, key: key.into(), reason: reason.into() }
    }

    /// Of a text that TOML or serde did not take.
    pub(crate) fn of_toml(error: &toml::de::Error, text: &str) -> ScenarioError {
        let at = error.span().map(|span| span.start);
        let key = at.map(|at| key_at(text, at).to_string()).unwrap_or_default();
        let mut shown = ScenarioError::new(key, error.message().trim().replace('\n', "; "));
        shown.line = at.map(|at| line_of(text, at));
        shown
    }

    /// The same, with the line of the key in `text`. If it is not there, as with a value that has
    /// its default, the line is that of the table in which it would stand.
    #[must_use]
    pub(crate) fn located(mut self, text: &str) -> ScenarioError {
        let place = self.key.parse::<Path>().ok().and_then(|path| place_of(text, &path));
        self.line = self.line.or(place.map(|at| line_of(text, at)));
        self
    }

    /// The same, with the name of the file that the scenario was read from.
    #[must_use]
    pub fn in_file(mut self, file: &FilePath) -> ScenarioError {
        self.file = Some(file.to_owned());
        self
    }

    /// The file, if [it was given](Self::in_file).
    pub fn file(&self) -> Option<&FilePath> {
        self.file.as_deref()
    }

    /// The line of the key, from 1. `None` if the scenario was not read from a text.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The key whose value is wrong, such as `flow[0].to`. Empty if the text is no TOML.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong with it, and what to write.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl std::error::Error for ScenarioError {}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Where the value of `path` begins in `text`, or the last table on the way to it.
fn place_of(text: &str, path: &Path) -> Option<usize> {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut place = None;
    let Some((Step::Key(first), rest)) = path.0.split_first() else { return None };
    let entry = table.get_ref().iter().find(|(key, _)| key.get_ref() == first);
    let mut value = entry.map(|(key, value)| {
        place = Some(key.span().start);
        value
    })?;
    for step in rest {
        let next = match (step, value.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                let entry = table.iter().find(|(key, _)| key.get_ref() == name);
                entry.map(|(key, value)| (key.span().start, value))
            }
            (&Step::Index(index), DeValue::Array(array)) => {
                array.get(index).map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some((at, inner)) = next else { break };
        (place, value) = (Some(at), inner);
    }
    place
}

/// The key of the innermost value that `at` is in.
fn key_at(text: &str, at: usize) -> Path {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut found = Path::default();
    look_in_table(table.get_ref(), at, &mut Vec::new(), &mut found);
    found
}

fn look_in_table(table: &DeTable<'_>, at: usize, way: &mut Vec<Step>, found: &mut Path) {
    for (key, value) in table {
        way.push(Step::Key(key.get_ref().to_string()));
        if key.span().contains(&at) {
            *found = Path(way.clone());
        }
        look_in_value(value, at, way, found);
        way.pop();
    }
}

fn look_in_value(value: &Spanned<DeValue<'_>>, at: usize, way: &mut Vec<Step>, found: &mut Path) {
    if value.span().contains(&at) && way.len() > found.0.len() {
        *found = Path(way.clone());
    }
    match value.get_ref() {
        DeValue::Table(table) => look_in_table(table, at, way, found),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                way.push(Step::Index(index));
                look_in_value(value, at, way, found);
                way.pop();
            }
        }
        _ => {}
    }
}
