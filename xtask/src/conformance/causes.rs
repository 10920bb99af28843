//! Why scripts fail: `docs/results/conformance-causes.toml`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Deserialize;

/// The file, read.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
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
        let causes: Causes = toml::from_str(text)?;
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
