//! Results that are kept from one run of the command to the next.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::plant::Mutant;
use super::table::Row;

/// How the names of the files begin that a result depends on.
const SOURCES: [&str; 3] = ["crates/", "Cargo.lock", "xtask/src/swarm_mutants/"];

/// Where scripts are that somebody has written.
const SCRIPTS: &str = "tests/drill/";

/// A row, and of which sources it is.
#[derive(Deserialize, Serialize)]
struct Kept {
    sources: u64,
    row: Row,
}

/// A directory with one file for each mutant.
pub(super) struct Results {
    folder: PathBuf,
    /// A hash of everything the simulator is built of, and of how mutants are looked for.
    sources: u64,
    /// Hashes of scripts, by their paths.
    scripts: BTreeMap<String, u64>,
}

impl Results {
    /// Those of a tree with these `files`.
    pub(super) fn new(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<Results> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut hasher = DefaultHasher::new();
        let counts = |name: &str| SOURCES.iter().any(|start| name.starts_with(start));
        files.iter().filter(|(name, _)| counts(name)).for_each(|file| file.hash(&mut hasher));
        let scripts = files.iter().filter(|(name, _)| name.starts_with(SCRIPTS));
        let hash = |bytes: &Vec<u8>| {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            hasher.finish()
        };
        let scripts = scripts.map(|(name, bytes)| (name.clone(), hash(bytes))).collect();
        Ok(Results { folder: folder.to_owned(), sources: hasher.finish(), scripts })
    }

    /// The same mutant of other sources has another result. Why a script is missing is said when
    /// the result is there.
    fn key(&self, mutant: &Mutant) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut mutant = mutant.clone();
        mutant.script_missing = None;
        let script = mutant.by_hand.as_ref().and_then(|path| self.scripts.get(path));
        (self.sources, script, mutant).hash(&mut hasher);
        hasher.finish()
    }

    fn path(&self, mutant: &Mutant) -> PathBuf {
        self.folder.join(format!("{}.json", mutant.name))
    }

    /// What an earlier run has found of a mutant in the same sources.
    pub(super) fn get(&self, mutant: &Mutant) -> Option<Row> {
        let text = fs::read(self.path(mutant)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.sources == self.key(mutant)).then_some(kept.row)
    }

    pub(super) fn put(&self, mutant: &Mutant, row: &Row) -> Result<()> {
        let kept = Kept { sources: self.key(mutant), row: row.clone() };
        let path = self.path(mutant);
        fs::write(&path, serde_json::to_vec_pretty(&kept)?)
            .with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::read_table;
    use super::super::table::{Outcome, Row};
    use super::*;

    #[test]
    fn a_result_is_of_its_sources_and_of_its_mutant() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mutants = read_table(root).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::from([("crates/tcp/src/lib.rs".to_owned(), b"1".to_vec())]);
        let results = Results::new(folder.path(), &files).unwrap();
        let row = Row::new(&mutants[0], Outcome::NotFound { runs: 7 });
        results.put(&mutants[0], &row).unwrap();
        assert_eq!(results.get(&mutants[0]), Some(row.clone()));
        assert_eq!(results.get(&mutants[1]), None);

        let mut other = mutants[0].clone();
        other.script_missing = Some("for a reason".to_owned());
        assert_eq!(results.get(&other), Some(row.clone()));
        other.no_script = Some("another definition".to_owned());
        assert_eq!(results.get(&other), None);

        files.insert("docs/results/swarm-mutants.md".to_owned(), b"words".to_vec());
        let documented = Results::new(folder.path(), &files).unwrap();
        assert_eq!(documented.get(&mutants[0]), Some(row));
        for name in ["crates/tcp/src/lib.rs", "xtask/src/swarm_mutants/hunt.rs"] {
            let mut files = files.clone();
            files.insert(name.to_owned(), b"2".to_vec());
            let changed = Results::new(folder.path(), &files).unwrap();
            assert_eq!(changed.get(&mutants[0]), None, "{name}");
        }
    }
}
