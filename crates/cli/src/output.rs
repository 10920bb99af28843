//! Where documents go: standard output, and files that are written at the end of something long and
//! opened at its beginning.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::UsageError;

/// Where a document will go.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl Output {
    /// Opens `path`, or standard output for `-`. The file keeps its content until it is written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Output> {
        let open = || {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            file.with_context(|| format!("cannot write {}", path.display()))
        };
        let file = if is_stdout(Some(path)) { None } else { Some(open()?) };
        Ok(Output { path: path.to_owned(), file })
    }

    /// Whether it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes the document. The reader of standard output may close it early.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        let Some(mut file) = self.file else { return print(text.as_bytes()) };
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .or_else(|error| {
                // A pipe or a device has no length.
                let is_file = file.metadata().is_ok_and(|about| about.is_file());
                if is_file { Err(error) } else { Ok(0) }
            })
            .and_then(|_| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Whether one of these documents goes to standard output.
///
/// # Errors
/// If more than one does. `options` names them.
pub(crate) fn on_stdout(options: &str, paths: &[&Option<PathBuf>]) -> anyhow::Result<bool> {
    match paths.iter().filter(|path| is_stdout(path.as_deref())).count() {
        count @ (0 | 1) => Ok(count == 1),
        _ => Err(UsageError(format!("only one of {options} can go to standard output")).into()),
    }
}

/// Opens `path`, if one is given: before anything is measured that could not be written later.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Option<Output>> {
    path.map(Output::open).transpose()
}

/// Writes a document as JSON, if there is somewhere to write it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_json<T: Serialize>(to: Option<Output>, document: &T) -> anyhow::Result<()> {
    match to {
        Some(output) => output.write(&(serde_json::to_string_pretty(document)? + "\n")),
        None => Ok(()),
    }
}

/// Prints a warning on standard error. The reader may be gone.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {text}");
}

/// Whether `path` is standard output.
pub(crate) fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Writes to standard output. The reader may close it before the end: that is no error.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_takes_the_place_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "a longer document").unwrap();
        let output = Output::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a longer document");
        output.write("short").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
        let error = Output::open(&dir.path().join("no/x")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        assert!(Output::open(Path::new("-")).unwrap().is_stdout());
        Output::open(Path::new("/dev/null")).unwrap().write("nothing").unwrap();
    }
}
