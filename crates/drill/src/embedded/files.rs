//! Scratch files of a script.
//!
//! A script knows them by paths of its choice; they lie elsewhere, under names of our own, so that
//! scripts that run at the same time do not meet, and no script reads a file that it has not made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::host::HostError;

/// Numbers the files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The most files of one script.
const MOST: usize = 16;

/// Scratch files, removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<String, PathBuf>);

impl Files {
    /// Makes a file of `len` zeroes that the script calls `path`.
    pub(super) fn create(&mut self, path: &str, len: u64) -> Result<(), HostError> {
        self.remove(path);
        if self.0.len() >= MOST {
            return Err(HostError(format!("{path}: too many files")));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-drill-{}-{number}", std::process::id());
        let real = std::env::temp_dir().join(name);
        let failed = |error: std::io::Error| HostError(format!("{path}: {error}"));
        let file = std::fs::File::create_new(&real).map_err(failed)?;
        self.0.insert(path.to_owned(), real);
        file.set_len(len).map_err(failed)
    }

    /// Removes a file; one that is not there is no mistake.
    pub(super) fn remove(&mut self, path: &str) {
        if let Some(real) = self.0.remove(path) {
            let _ = std::fs::remove_file(real);
        }
    }

    /// Where the file lies that the script calls `path`.
    pub(super) fn real(&self, path: &str) -> Option<String> {
        self.0.get(path).map(|real| real.to_string_lossy().into_owned())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for real in self.0.values() {
            let _ = std::fs::remove_file(real);
        }
    }
}
