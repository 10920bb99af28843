//! Finds the file that a path names, and never one outside the directory that is served.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a request's path leads to.
#[derive(Debug)]
pub(crate) struct Found {
    /// The open file.
    pub file: File,
    /// Its size in bytes.
    pub size: u64,
    /// Its media type, from its name.
    pub media_type: &'static str,
    /// Its modification time, if the file system knows.
    pub modified: Option<std::time::SystemTime>,
}

/// Opens what `path` (decoded, with a slash at the front) names below `root`, which must be
/// canonical. `None` means that there is nothing to serve: 404.
///
/// A component `..`, a link that leads out of `root`, and anything but a regular file are refused.
pub(crate) fn open(root: &Path, path: &str) -> Option<Found> {
    let relative = safe_relative(path)?;
    let mut full = root.join(relative).canonicalize().ok()?;
    if full.is_dir() {
        full = full.join("index.html").canonicalize().ok()?;
    }
    // Links were resolved above, so the prefix tells where the file really is.
    if !full.starts_with(root) {
        return None;
    }
    let (file, size, modified) = open_regular(&full).ok()??;
    Some(Found { file, size, media_type: media_type(&full), modified })
}

type Regular = (File, u64, Option<std::time::SystemTime>);

fn open_regular(path: &Path) -> io::Result<Option<Regular>> {
    // The kind is looked at before the file is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let data = file.metadata()?;
    Ok(data.is_file().then(|| (file, data.len(), data.modified().ok())))
}

/// `path` without its leading slashes, if it only goes down.
fn safe_relative(path: &str) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for component in Path::new(path.trim_start_matches('/')).components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(relative)
}

fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("txt" | "md" | "log") => "text/plain; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let outer = dir.path().canonicalize().unwrap();
        let root = outer.join("www");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(outer.join("secret"), "no").unwrap();
        std::fs::write(root.join("a.txt"), "yes").unwrap();
        std::fs::write(root.join("sub/index.html"), "index").unwrap();
        std::os::unix::fs::symlink(outer.join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("a.txt"), root.join("inside")).unwrap();
        assert_eq!(open(&root, "/a.txt").unwrap().size, 3);
        assert_eq!(open(&root, "//./a.txt").unwrap().media_type, "text/plain; charset=utf-8");
        assert_eq!(open(&root, "/sub/").unwrap().size, 5);
        assert!(open(&root, "/inside").is_some());
        for path in ["/../secret", "/sub/../../secret", "/link", "/none", "/", "/a.txt/x"] {
            assert!(open(&root, path).is_none(), "{path}");
        }
    }
}
