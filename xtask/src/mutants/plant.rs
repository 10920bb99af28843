//! The table of mutants, and the copy of the sources that has all of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Where the table is.
pub(super) const TABLE: &str = "tests/mutants.toml";

/// A defect.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) file: String,
    from: String,
    to: String,
    /// No packet of one connection shows it, for the reason given here.
    #[serde(default)]
    pub(super) no_script: Option<String>,
    /// The script that shows it, if that is not the one of its name in `tests/drill/swarm`.
    #[serde(default)]
    script: Option<String>,
    /// The experiment of the lab whose verdict it must change. The swarm need not find it.
    #[serde(default)]
    pub(super) experiment: Option<String>,
}

#[derive(Deserialize)]
struct Table {
    mutant: Vec<Mutant>,
}

impl Mutant {
    /// The packetdrill script that must fail on it.
    pub(super) fn script(&self) -> Option<String> {
        let own = || format!("tests/drill/swarm/{}.pkt", self.name);
        let shown = self.no_script.is_none() && self.experiment.is_none();
        shown.then(|| self.script.clone().unwrap_or_else(own))
    }

    /// The file with the change, in which a switch asks for mutant `number`.
    fn apply(&self, text: &str, number: usize) -> Result<String> {
        let count = text.matches(&self.from).count();
        if count != 1 {
            bail!(
                "{}: {} has the text that it changes {count} times, not once; correct it in {TABLE}",
                self.name,
                self.file,
            );
        }
        let krate = if self.file.starts_with("crates/tcp/") { "crate" } else { "plimsoll_tcp" };
        let to = self.to.replace("MUTANT", &format!("{krate}::mutants::is({number})"));
        Ok(text.replacen(&self.from, &to, 1))
    }
}

/// Reads the table.
pub(super) fn read_table(root: &Path) -> Result<Vec<Mutant>> {
    let path = root.join(TABLE);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let table: Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(table.mutant)
}

/// Makes the changes of all mutants, and adds the switch that chooses among them.
pub(super) fn plant(files: &mut BTreeMap<String, Vec<u8>>, mutants: &[Mutant]) -> Result<()> {
    for (number, mutant) in (1..).zip(mutants) {
        let bytes = files.get_mut(&mutant.file);
        let bytes = bytes.with_context(|| format!("{}: no file {}", mutant.name, mutant.file))?;
        *bytes = mutant.apply(core::str::from_utf8(bytes)?, number)?.into_bytes();
    }
    let lib = files.get_mut("crates/tcp/src/lib.rs").context("crates/tcp/src/lib.rs")?;
    lib.extend_from_slice(b"\n#[allow(missing_docs, unreachable_pub)]\npub mod mutants;\n");
    let switch = include_bytes!("switch.rs").to_vec();
    files.insert("crates/tcp/src/mutants.rs".to_owned(), switch);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    fn sources(mutants: &[Mutant]) -> BTreeMap<String, Vec<u8>> {
        let named = mutants.iter().map(|mutant| mutant.file.as_str());
        let names = named.chain(["crates/tcp/src/lib.rs"]);
        names.map(|name| (name.to_owned(), fs::read(root().join(name)).unwrap())).collect()
    }

    /// The table follows the code: what a mutant changes is there, once.
    #[test]
    fn every_mutant_can_be_made() {
        let mutants = read_table(root()).unwrap();
        let mut files = sources(&mutants);
        plant(&mut files, &mutants).unwrap();
        for (name, bytes) in &files {
            let text = core::str::from_utf8(bytes).unwrap();
            assert!(!text.contains("MUTANT)") || name.ends_with("mutants.rs"), "{name}");
            syn::parse_file(text).unwrap();
        }
        for script in mutants.iter().filter_map(Mutant::script) {
            assert!(root().join(&script).exists(), "{script}");
        }
        let mut names: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == mutants.len() && names.len() >= 20, "{}", names.len());
    }

    #[test]
    fn a_mutant_that_does_not_apply_is_named() {
        let mut mutants = read_table(root()).unwrap();
        let files = sources(&mutants);
        "no such text".clone_into(&mut mutants[1].from);
        let error = plant(&mut files.clone(), &mutants).unwrap_err().to_string();
        assert!(error.starts_with(&mutants[1].name), "{error}");
        assert!(error.contains("0 times, not once"), "{error}");
        "crates/none.rs".clone_into(&mut mutants[0].file);
        let error = plant(&mut files.clone(), &mutants).unwrap_err().to_string();
        assert_eq!(error, format!("{}: no file crates/none.rs", mutants[0].name));
    }
}
