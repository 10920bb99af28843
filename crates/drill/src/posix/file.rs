//! Regular files, for reading.

use std::fs::File as RealFile;
use std::os::unix::fs::FileExt;

use crate::posix::call::Dest;
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Outcome, Process, Step};
use crate::posix::receive::{received, room};

/// Most bytes that one call reads.
const MOST: usize = 1 << 26;

/// A file that is open for reading, and where reading goes on.
pub(crate) struct RegularFile {
    file: RealFile,
    pub(crate) position: u64,
}

impl Process {
    pub(crate) fn open_file(&mut self, path: &str, flags: i32) -> Outcome {
        if flags & O_ACCMODE != O_RDONLY {
            return Err(Errno::EACCES);
        }
        let failed = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
        let file = RealFile::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Errno::EISDIR);
        }
        let file = File::Regular(RegularFile { file, position: 0 });
        self.open(file, flags & O_NONBLOCK != 0, flags & O_CLOEXEC != 0)
    }
}

impl RegularFile {
    /// Bytes behind the position.
    pub(crate) fn left(&self) -> usize {
        let len = self.file.metadata().map_or(0, |metadata| metadata.len());
        usize::try_from(len.saturating_sub(self.position)).unwrap_or(usize::MAX)
    }

    /// Up to `most` bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, most: usize) -> Result<Vec<u8>, Errno> {
        let mut data = vec![0; most.min(MOST)];
        let count = self
            .file
            .read_at(&mut data, offset)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)))?;
        data.truncate(count);
        Ok(data)
    }

    pub(crate) fn read(&mut self, buffers: &[Dest]) -> Step {
        let (room, bad) = room(buffers);
        match self.read_at(self.position, room.min(self.left())) {
            Err(errno) => Step::error(errno),
            Ok(data) if data.is_empty() && bad && self.left() > 0 => Step::error(Errno::EFAULT),
            Ok(data) => {
                self.position += data.len() as u64;
                let count = data.len();
                received(data, count, 0, Vec::new())
            }
        }
    }
}
