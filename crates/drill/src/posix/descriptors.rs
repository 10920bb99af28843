//! The descriptors of a process: numbers, and what they stand for.

use std::collections::{BTreeMap, BTreeSet};

use crate::posix::epoll::Epoll;
use crate::posix::errno::Errno;
use crate::posix::file::RegularFile;
use crate::posix::pipe::PipeEnd;
use crate::posix::socket::Socket;

/// Where descriptors get their numbers.
pub(crate) trait Numbers: Send {
    /// A number that is not in use.
    ///
    /// # Errors
    /// EMFILE or whatever else keeps the process from having one more.
    fn take(&mut self) -> Result<i32, Errno>;

    /// The descriptor `fd` is closed.
    fn give_back(&mut self, fd: i32);
}

/// The lowest number that is free, from 3 on: 0, 1 and 2 are taken in every process.
#[derive(Debug, Default)]
pub(crate) struct LowestFree {
    used: BTreeSet<i32>,
}

/// Most descriptors that one process has.
const MAX_DESCRIPTORS: i32 = 1 << 20;

impl Numbers for LowestFree {
    fn take(&mut self) -> Result<i32, Errno> {
        let free = (3..MAX_DESCRIPTORS).find(|fd| !self.used.contains(fd)).ok_or(Errno::EMFILE)?;
        self.used.insert(free);
        Ok(free)
    }

    fn give_back(&mut self, fd: i32) {
        self.used.remove(&fd);
    }
}

/// What a descriptor stands for.
pub(crate) enum File {
    Socket(Box<Socket>),
    Epoll(Epoll),
    Pipe(PipeEnd),
    Regular(RegularFile),
}

/// One descriptor.
pub(crate) struct Descriptor {
    /// Numbers are used again, this is not.
    pub(crate) serial: u64,
    pub(crate) nonblocking: bool,
    pub(crate) cloexec: bool,
    pub(crate) file: File,
}

/// All descriptors.
pub(crate) struct Descriptors {
    numbers: Box<dyn Numbers>,
    table: BTreeMap<i32, Descriptor>,
    next_serial: u64,
}

impl Descriptors {
    pub(crate) fn new(numbers: Box<dyn Numbers>) -> Descriptors {
        Descriptors { numbers, table: BTreeMap::new(), next_serial: 1 }
    }

    pub(crate) fn open(&mut self, file: File, nonblocking: bool) -> Result<i32, Errno> {
        let fd = self.numbers.take()?;
        let serial = self.next_serial;
        self.next_serial += 1;
        self.table.insert(fd, Descriptor { serial, nonblocking, cloexec: false, file });
        Ok(fd)
    }

    pub(crate) fn close(&mut self, fd: i32) -> Result<Descriptor, Errno> {
        let descriptor = self.table.remove(&fd).ok_or(Errno::EBADF)?;
        self.numbers.give_back(fd);
        Ok(descriptor)
    }

    pub(crate) fn get(&self, fd: i32) -> Result<&Descriptor, Errno> {
        self.table.get(&fd).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, fd: i32) -> Result<&mut Descriptor, Errno> {
        self.table.get_mut(&fd).ok_or(Errno::EBADF)
    }

    /// The socket `fd`, and whether its calls block.
    pub(crate) fn socket(&mut self, fd: i32) -> Result<(&mut Socket, bool), Errno> {
        let descriptor = self.get_mut(fd)?;
        match &mut descriptor.file {
            File::Socket(socket) => Ok((socket, !descriptor.nonblocking)),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (i32, &Descriptor)> {
        self.table.iter().map(|(&fd, descriptor)| (fd, descriptor))
    }

    pub(crate) fn epolls(&mut self) -> impl Iterator<Item = &mut Epoll> {
        self.table.values_mut().filter_map(|descriptor| match &mut descriptor.file {
            File::Epoll(epoll) => Some(epoll),
            _ => None,
        })
    }
}
