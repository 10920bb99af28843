//! Copies of the tree, in which something is changed and built.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// All files that git lists or would add, as they are now, by their paths from the root.
pub(crate) fn files(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let out = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    if !out.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let text = String::from_utf8(out.stdout).context("a path that is no UTF-8")?;
    let names = text.split('\0').filter(|name| !name.is_empty());
    // One that was deleted is still listed.
    let read = |name: &str| Some((name.to_owned(), fs::read(root.join(name)).ok()?));
    Ok(names.filter_map(read).collect())
}

/// Makes `folder` a copy that has these files and no others.
pub(crate) fn mirror(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, bytes) in files {
        let path = folder.join(name);
        write(&path, bytes)?;
        // `files` keeps bytes alone, and packetdrill scripts call programs of the tree.
        if bytes.starts_with(b"#!/") {
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .with_context(|| path.display().to_string())?;
        }
    }
    remove_others(folder, folder, files)
}

/// Writes a file, with the folders around it. An unchanged file keeps its time, so that cargo does
/// not build it again.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == bytes.as_ref()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Removes what is below `at` in `folder` and not among the files: a test or a module that is gone
/// from the tree would still be built.
fn remove_others(folder: &Path, at: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(at).with_context(|| at.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(folder, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(folder)?.to_str();
        if !name.is_some_and(|name| files.contains_key(name)) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_files_of_the_tree_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for name in ["a.rs", "src/b.rs", "src/deep/c.rs"] {
            files.insert(name.to_owned(), name.as_bytes().to_vec());
        }
        mirror(folder.path(), &files).unwrap();
        let modified = |name: &str| fs::metadata(folder.path().join(name)).unwrap().modified();
        let before = modified("a.rs").unwrap();
        files.remove("src/deep/c.rs");
        files.insert("src/b.rs".to_owned(), b"other".to_vec());
        mirror(folder.path(), &files).unwrap();
        assert_eq!(fs::read(folder.path().join("src/b.rs")).unwrap(), b"other");
        assert!(!folder.path().join("src/deep/c.rs").exists());
        assert_eq!(modified("a.rs").unwrap(), before);
    }

    #[test]
    fn programs_can_be_run_in_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let program = "#!/bin/sh\nexit 7\n";
        let files = BTreeMap::from([("run.sh".to_owned(), program.as_bytes().to_vec())]);
        // Also if the copy was made before it could be run.
        fs::write(folder.path().join("run.sh"), program).unwrap();
        mirror(folder.path(), &files).unwrap();
        let ended = Command::new(folder.path().join("run.sh")).status().unwrap();
        assert_eq!(ended.code(), Some(7));
    }
}
