//! The table of mutants, and the copy of the sources that has all of them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
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

    /// The changed text, in which a switch asks for mutant `number`.
    fn replacement(&self, number: usize) -> String {
        let krate = if self.file.starts_with("crates/tcp/") { "crate" } else { "plimsoll_tcp" };
        self.to.replace("MUTANT", &format!("{krate}::mutants::is({number})"))
    }

    /// The file with the change.
    fn apply(&self, text: &str, number: usize) -> Result<String> {
        let count = text.matches(&self.from).count();
        if count != 1 {
            bail!(
                "does not apply: {} has the text that it changes {count} times, not once; write \
                 it anew in {TABLE}",
                self.file,
            );
        }
        Ok(text.replacen(&self.from, &self.replacement(number), 1))
    }
}

/// Reads the table.
pub(super) fn read_table(root: &Path) -> Result<Vec<Mutant>> {
    let path = root.join(TABLE);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let table: Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(table.mutant)
}

/// A mutant that cannot be run: its number, and why.
pub(super) type Refused = (usize, String);

/// Makes the changes of all mutants but those of `without`, and adds the switch that chooses among
/// them. Returns the mutants whose change cannot be made.
pub(super) fn plant(
    files: &mut BTreeMap<String, Vec<u8>>,
    mutants: &[Mutant],
    without: &[Refused],
) -> Result<Vec<Refused>> {
    let mut refused = Vec::new();
    for (number, mutant) in (1..).zip(mutants) {
        if without.iter().any(|&(other, _)| other == number) {
            continue;
        }
        match change(files, mutant, number) {
            Ok((name, bytes)) => drop(files.insert(name, bytes)),
            Err(error) => refused.push((number, error.to_string())),
        }
    }
    let lib = files.get_mut("crates/tcp/src/lib.rs").context("crates/tcp/src/lib.rs")?;
    lib.extend_from_slice(b"\n#[allow(missing_docs, unreachable_pub)]\npub mod mutants;\n");
    let switch = include_bytes!("switch.rs").to_vec();
    files.insert("crates/tcp/src/mutants.rs".to_owned(), switch);
    Ok(refused)
}

fn change(
    files: &BTreeMap<String, Vec<u8>>,
    mutant: &Mutant,
    number: usize,
) -> Result<(String, Vec<u8>)> {
    let Some(bytes) = files.get(&mutant.file) else {
        bail!("does not apply: there is no file {}", mutant.file);
    };
    let text = mutant.apply(core::str::from_utf8(bytes)?, number)?;
    Ok((mutant.file.clone(), text.into_bytes()))
}

/// The mutants in whose changed lines the compiler has found errors, of a report in its short form
/// (`FILE:LINE:COLUMN: error...`).
pub(super) fn culprits(
    report: &str,
    files: &BTreeMap<String, Vec<u8>>,
    mutants: &[Mutant],
) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (number, mutant) in (1..).zip(mutants) {
        let Some(lines) = planted_lines(files, mutant, number) else { continue };
        let error = report.lines().find(|line| {
            error_at(line).is_some_and(|(file, at)| file == mutant.file && lines.contains(&at))
        });
        if let Some(error) = error {
            refused.push((number, format!("does not build: {error}")));
        }
    }
    refused
}

/// The lines of its file that a mutant has made.
fn planted_lines(
    files: &BTreeMap<String, Vec<u8>>,
    mutant: &Mutant,
    number: usize,
) -> Option<Range<usize>> {
    let text = core::str::from_utf8(files.get(&mutant.file)?).ok()?;
    let planted = mutant.replacement(number);
    let at = text.find(&planted)?;
    let first = 1 + text[..at].matches('\n').count();
    Some(first..first + planted.lines().count())
}

/// File and line of an error.
fn error_at(line: &str) -> Option<(&str, usize)> {
    let (place, _) = line.split_once(": error")?;
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some((file, line.parse().ok()?))
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
        assert_eq!(plant(&mut files, &mutants, &[]).unwrap(), []);
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
    fn a_mutant_that_does_not_apply_leaves_the_others() {
        let mut mutants = read_table(root()).unwrap();
        mutants.truncate(3);
        "no such text".clone_into(&mut mutants[0].from);
        let mut files = sources(&mutants);
        "crates/none.rs".clone_into(&mut mutants[1].file);
        let refused = plant(&mut files, &mutants, &[]).unwrap();
        let [(1, first), (2, second)] = refused.as_slice() else { panic!("{refused:?}") };
        assert!(first.contains("0 times, not once"), "{first}");
        assert!(second.contains("no file crates/none.rs"), "{second}");
        let has = |number: usize| {
            let switch = format!("mutants::is({number})");
            files.values().any(|bytes| String::from_utf8_lossy(bytes).contains(&switch))
        };
        assert!(has(3) && !has(1) && !has(2));
    }

    #[test]
    fn errors_of_the_compiler_name_their_mutant() {
        let mutants = read_table(root()).unwrap();
        let mut files = sources(&mutants);
        plant(&mut files, &mutants, &[]).unwrap();
        let lines = planted_lines(&files, &mutants[3], 4).unwrap();
        let file = &mutants[3].file;
        let report = format!(
            "   Compiling plimsoll-tcp\n{file}:{}:9: error[E0425]: no such thing\n{file}:1:1: \
             warning: other\nerror: could not compile\n",
            lines.start
        );
        let [(4, why)] = &*culprits(&report, &files, &mutants) else { panic!("{report}") };
        assert!(why.contains("does not build") && why.contains("E0425"), "{why}");
        // An error elsewhere is nobody's.
        let elsewhere = format!("{file}:1:1: error: other\n");
        assert_eq!(culprits(&elsewhere, &files, &mutants), []);
    }
}
