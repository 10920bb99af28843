//! Reading a file at a place.

use std::fs::File;
use std::io;

/// Reads from `at` on, and leaves the file's own position alone where the system can: Windows moves
/// it.
///
/// # Errors
/// Those of the system.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, at)
}

#[cfg(windows)]
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, at)
}
