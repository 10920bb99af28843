//! Finds the file that a path names, never one outside the directory that is served, and keeps few
//! files open.
//!
//! A response does not hold a file open: it holds a [`Known`] file and reads through [`Files`],
//! which has few files open at a time, [`MOST_OPEN`] by default. A file that was closed to make
//! room for another is opened again when its response continues. So clients that do not read their
//! responses hold no descriptors, however many there are.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;

/// Files that a server has open at a time, over all its loops.
pub(crate) const MOST_OPEN: usize = 64;

/// The file that a request's path names.
#[derive(Debug)]
pub(crate) struct Found {
    /// The file.
    pub file: Known,
    /// Its size in bytes.
    pub size: u64,
    /// Its media type, from its name.
    pub media_type: &'static str,
    /// Its modification time, if the file system records it and a date can express it.
    pub modified: Option<SystemTime>,
}

/// A file that a response reads.
#[derive(Debug)]
pub(crate) struct Known {
    path: PathBuf,
    identity: Identity,
}

/// Distinguishes a file from another that has taken its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    /// A number of a deleted file may be given to a new one.
    created: Option<SystemTime>,
}

impl Identity {
    fn of(data: &Metadata) -> Identity {
        Identity { device: data.dev(), inode: data.ino(), created: data.created().ok() }
    }
}

/// The open files of a server.
pub(crate) struct Files {
    open: Vec<Open>,
    /// Responses that read a file, open or not.
    users: HashMap<Identity, usize>,
    /// Files that may be open at a time.
    most: usize,
    /// Counts reads, so that the file which was not read for longest is known.
    clock: u64,
    /// How often the system had no descriptor left for a file.
    pub(crate) short: u64,
    /// How a file is opened; tests have it fail.
    opener: fn(&Path) -> io::Result<File>,
}

struct Open {
    file: File,
    identity: Identity,
    used: u64,
}

impl Files {
    /// At most `most` files are open at a time.
    pub(crate) fn new(most: usize) -> Files {
        Files::with_opener(most, |path| File::open(path))
    }

    /// As [`new`](Self::new), with files opened by `opener`.
    pub(crate) fn with_opener(most: usize, opener: fn(&Path) -> io::Result<File>) -> Files {
        Files { open: Vec::new(), users: HashMap::new(), most, clock: 0, short: 0, opener }
    }

    /// The file that `path` (decoded, with a slash at the front) names below `root`, which must be
    /// canonical. `None` means that there is nothing to serve: 404.
    ///
    /// A component `..`, a link that leads out of `root`, and anything but a regular file are
    /// refused.
    ///
    /// # Errors
    /// If the file cannot be had at the moment; [`is_short`] says whether for want of descriptors.
    pub(crate) fn find(&mut self, root: &Path, path: &str) -> io::Result<Option<Found>> {
        match self.look(root, path) {
            Err(error) if is_absent(&error) => Ok(None),
            other => other,
        }
    }

    fn look(&mut self, root: &Path, path: &str) -> io::Result<Option<Found>> {
        let Some(relative) = safe_relative(path) else { return Ok(None) };
        let mut path = root.join(relative).canonicalize()?;
        if path.is_dir() {
            path = path.join("index.html").canonicalize()?;
        }
        // Links were resolved above, so the prefix shows where the file really is.
        if !path.starts_with(root) {
            return Ok(None);
        }
        // The kind is looked at before the file is opened: opening a pipe would wait for a writer.
        let data = std::fs::metadata(&path)?;
        if !data.is_file() {
            return Ok(None);
        }
        let (media_type, identity) = (media_type(&path), Identity::of(&data));
        let file = Known { path, identity };
        // Opened now, so that a file that may not be read is no promise of a body.
        self.opened(&file)?;
        *self.users.entry(file.identity).or_default() += 1;
        Ok(Some(Found {
            file,
            size: data.len(),
            media_type,
            modified: data.modified().ok().filter(is_date),
        }))
    }

    /// Reads from `at` on.
    ///
    /// # Errors
    /// If the file is another one by now, or cannot be had; [`is_short`] says whether for want of
    /// descriptors.
    pub(crate) fn read_at(&mut self, file: &Known, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.opened(file)?.read_at(buf, at)
    }

    /// A response needs the file no more. It stays open for the others that read it: under its
    /// name there may be another one by now.
    pub(crate) fn release(&mut self, file: &Known) {
        if let Some(users) = self.users.get_mut(&file.identity)
            && *users > 1
        {
            *users -= 1;
            return;
        }
        self.users.remove(&file.identity);
        self.open.retain(|open| open.identity != file.identity);
    }

    /// Files that are open now.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    fn opened(&mut self, known: &Known) -> io::Result<&File> {
        self.clock += 1;
        let at = match self.open.iter().position(|open| open.identity == known.identity) {
            Some(at) => at,
            None => {
                if self.open.len() >= self.most {
                    self.close_oldest();
                }
                let file = self.open_file(&known.path)?;
                if Identity::of(&file.metadata()?) != known.identity {
                    return Err(io::Error::other("another file has taken its name"));
                }
                self.open.push(Open { file, identity: known.identity, used: 0 });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[at];
        open.used = self.clock;
        Ok(&open.file)
    }

    /// Opens a file, with the descriptor of another if there is no other way.
    fn open_file(&mut self, path: &Path) -> io::Result<File> {
        match (self.opener)(path) {
            Err(error) if is_short(&error) => {
                self.close_oldest();
                (self.opener)(path).inspect_err(|error| self.short += u64::from(is_short(error)))
            }
            other => other,
        }
    }

    fn close_oldest(&mut self) {
        let oldest = self.open.iter().enumerate().min_by_key(|(_, open)| open.used);
        if let Some((at, _)) = oldest {
            self.open.swap_remove(at);
        }
    }
}

/// Whether HTTP can write a time: its years are those from 1970 to 9999.
fn is_date(time: &SystemTime) -> bool {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.is_ok_and(|since| since.as_secs() < 253_402_300_800)
}

/// Whether an error says that there is nothing that could be served.
fn is_absent(error: &io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
    let numbers = [Errno::LOOP, Errno::NAMETOOLONG];
    kinds.contains(&error.kind())
        || Errno::from_io_error(error).is_some_and(|n| numbers.contains(&n))
}

/// Whether an error says that descriptors, or memory for them, have run out. They come back.
pub(crate) fn is_short(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|number| short.contains(&number))
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
    use std::time::Duration;

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
        let mut files = Files::new(MOST_OPEN);
        let mut find = |path: &str| files.find(&root, path).unwrap();
        assert_eq!(find("/a.txt").unwrap().size, 3);
        assert_eq!(find("//./a.txt").unwrap().media_type, "text/plain; charset=utf-8");
        assert_eq!(find("/sub/").unwrap().size, 5);
        assert!(find("/inside").is_some());
        let long = format!("/{}", "x".repeat(300));
        for path in ["/../secret", "/sub/../../secret", "/link", "/none", "/", "/a.txt/x", &long] {
            assert!(find(path).is_none(), "{path}");
        }
    }

    #[test]
    fn times_that_no_date_has_are_left_out() {
        let at = |seconds: i64| {
            let (epoch, length) =
                (SystemTime::UNIX_EPOCH, Duration::from_secs(seconds.unsigned_abs()));
            if seconds < 0 { epoch - length } else { epoch + length }
        };
        let date = |seconds| Some(at(seconds)).filter(is_date).map(httpdate::fmt_http_date);
        assert_eq!(date(951_782_400).unwrap(), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(date(253_402_300_799).unwrap(), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!((date(-1), date(253_402_300_800)), (None, None));
    }

    #[test]
    fn few_files_are_open_however_many_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut files = Files::new(MOST_OPEN);
        let known: Vec<Known> = (0..3 * MOST_OPEN)
            .map(|number| {
                std::fs::write(root.join(number.to_string()), number.to_string()).unwrap();
                files.find(&root, &format!("/{number}")).unwrap().unwrap().file
            })
            .collect();
        for (number, file) in known.iter().enumerate() {
            let mut text = [0; 8];
            let len = files.read_at(file, &mut text, 0).unwrap();
            assert_eq!(&text[..len], number.to_string().as_bytes());
            assert!(files.open_count() <= MOST_OPEN);
        }
        known.iter().for_each(|file| files.release(file));
        assert_eq!(files.open_count(), 0);
    }

    #[test]
    fn another_file_with_the_name_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("a"), "old").unwrap();
        let mut files = Files::new(MOST_OPEN);
        let file = files.find(&root, "/a").unwrap().unwrap().file;
        std::fs::write(root.join("b"), "new").unwrap();
        std::fs::rename(root.join("b"), root.join("a")).unwrap();
        let mut text = [0; 3];
        assert_eq!(files.read_at(&file, &mut text, 0).unwrap(), 3);
        assert_eq!(&text, b"old", "it is open still");
        files.release(&file);
        assert!(files.read_at(&file, &mut text, 0).is_err());
    }

    #[test]
    fn a_file_stays_open_for_those_who_still_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("a"), "old").unwrap();
        let mut files = Files::new(MOST_OPEN);
        let mut find = || files.find(&root, "/a").unwrap().unwrap().file;
        let (first, second) = (find(), find());
        std::fs::write(root.join("b"), "new").unwrap();
        std::fs::rename(root.join("b"), root.join("a")).unwrap();
        files.release(&first);
        let mut text = [0; 3];
        assert_eq!(files.read_at(&second, &mut text, 0).unwrap(), 3);
        assert_eq!(&text, b"old");
        files.release(&second);
        assert_eq!((files.open_count(), files.users.len()), (0, 0));
    }

    #[test]
    fn a_shortage_is_not_absence() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("a"), "text").unwrap();
        let mut files = Files::with_opener(MOST_OPEN, |_| Err(Errno::MFILE.into()));
        let error = files.find(&root, "/a").unwrap_err();
        assert!(is_short(&error), "{error}");
        assert_eq!(files.short, 1);
    }
}
