//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping, which goes with its owner.
pub(super) struct Map {
    base: NonNull<u8>,
    length: usize,
}

impl Map {
    /// Memory of its own, zeroed, at the beginning of a page.
    pub(super) fn anonymous(length: usize) -> io::Result<Map> {
        Map::new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Memory of a socket.
    pub(super) fn of(socket: &OwnedFd, length: usize, offset: i64) -> io::Result<Map> {
        Map::new(length, libc::MAP_SHARED, socket.as_raw_fd(), offset)
    }

    fn new(length: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Map> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (anywhere, flags) = (std::ptr::null_mut(), flags | libc::MAP_POPULATE);
        // SAFETY: the kernel chooses the place, so no memory that is in use is replaced.
        let base = unsafe { libc::mmap(anywhere, length, access, flags, fd, offset) };
        match NonNull::new(base.cast::<u8>()) {
            Some(place) if base != libc::MAP_FAILED => Ok(Map { base: place, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where `length` bytes from `offset` on begin.
    ///
    /// # Panics
    /// If they are not within the mapping.
    pub(super) fn at<T>(&self, offset: usize, length: usize) -> *mut T {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{offset} and {length} more");
        // SAFETY: it is within the mapping, as has been looked at.
        let place = unsafe { self.base.as_ptr().add(offset) }.cast::<T>();
        assert!(place.is_aligned(), "{offset}");
        place
    }

    /// Bytes that the kernel leaves alone for as long as they are borrowed.
    ///
    /// # Safety
    /// The kernel has handed them over, and does not get them back before the slice is gone.
    pub(super) unsafe fn bytes(&mut self, offset: usize, length: usize) -> &mut [u8] {
        // SAFETY: they are within the mapping (`at`), have values, and are nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, length), length) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, and whoever borrowed from it is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
