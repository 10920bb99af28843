//! Why scripts fail: `docs/results/conformance-causes.toml`.
//!
//! Of TOML only tables and `key = "value"` are used.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// The file, read.
#[derive(Default)]
pub(super) struct Causes {
    /// Causes by their short names: a sentence, as the page has it.
    causes: BTreeMap<String, String>,
    /// The short name of a script's cause.
    scripts: BTreeMap<String, String>,
    /// Why runner and original tool disagree on a script.
    disagreements: BTreeMap<String, String>,
}

impl Causes {
    pub(super) fn parse(text: &str) -> Result<Causes> {
        let mut causes = Causes::default();
        let mut table = String::new();
        for (n, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                table = name.to_string();
                continue;
            }
            let (key, value) = line.split_once('=').with_context(|| format!("line {n}: no `=`"))?;
            let (key, value) = (unquoted(key), unquoted(value));
            let entries = match table.as_str() {
                "causes" => &mut causes.causes,
                "scripts" => &mut causes.scripts,
                "disagreements" => &mut causes.disagreements,
                _ => bail!("line {n}: there is no table [{table}]"),
            };
            if entries.insert(key.clone(), value).is_some() {
                bail!("line {n}: {key} stands there twice");
            }
        }
        for (script, cause) in &causes.scripts {
            if !causes.causes.contains_key(cause) {
                bail!("{script} has the cause {cause}, which is not in [causes]");
            }
        }
        Ok(causes)
    }

    /// The short name of a script's cause and the sentence.
    pub(super) fn of(&self, script: &str) -> Option<(&str, &str)> {
        let name = self.scripts.get(script)?;
        Some((name, self.causes.get(name)?))
    }

    /// Why the two disagree on a script.
    pub(super) fn disagreement(&self, script: &str) -> Option<&str> {
        self.disagreements.get(script).map(String::as_str)
    }

    /// Scripts that have a cause.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &str> {
        self.scripts.keys().map(String::as_str)
    }

    /// Causes with their sentences.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.causes.iter().map(|(name, sentence)| (name.as_str(), sentence.as_str()))
    }
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_string()
}

#[cfg(test)]
mod tests {
    use super::Causes;

    #[test]
    fn tables_are_read_and_checked() {
        let text =
            "# why\n[causes]\npacing = \"It needs pacing.\"\n[scripts]\n\"a/b.pkt\" = \"pacing\"\n";
        let causes = Causes::parse(text).unwrap();
        assert_eq!(causes.of("a/b.pkt"), Some(("pacing", "It needs pacing.")));
        assert_eq!(causes.of("a/c.pkt"), None);
        assert!(Causes::parse("[scripts]\n\"a\" = \"b\"\n").is_err());
        assert!(Causes::parse("[other]\na = \"b\"\n").is_err());
    }
}
