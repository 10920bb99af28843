//! Pipes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_tcp::Instant;

use crate::posix::call::{Dest, Out, Reply, Source};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::poll::{READ, WRITE};
use crate::posix::process::{Outcome, Process, Step, Wait};
use crate::posix::receive::{received, room};
use crate::posix::send::{as_value, parts_from};

/// Bytes that a pipe holds.
pub(crate) const CAPACITY: usize = 65_536;
/// Writes of up to so many bytes are not torn (PIPE_BUF).
const ATOMIC: usize = 4096;

/// What both ends share.
#[derive(Default)]
struct Pipe {
    data: VecDeque<u8>,
    readers: usize,
    writers: usize,
    /// How often something came, and how often something went.
    edges: [u32; 2],
}

/// One end of a pipe.
pub(crate) struct PipeEnd {
    pipe: Arc<Mutex<Pipe>>,
    reads: bool,
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut pipe = self.lock();
        let left = if self.reads { &mut pipe.readers } else { &mut pipe.writers };
        *left -= 1;
        if *left == 0 {
            pipe.edges = pipe.edges.map(|edge| edge.wrapping_add(1));
        }
    }
}

impl Process {
    pub(crate) fn pipe(&mut self, flags: i32) -> Outcome {
        if flags & !(O_NONBLOCK | O_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let pipe = Pipe { readers: 1, writers: 1, ..Pipe::default() };
        let pipe = Arc::new(Mutex::new(pipe));
        let (mut fds, mut first) = ([0; 2], 0);
        for (fd, reads) in fds.iter_mut().zip([true, false]) {
            let end = File::Pipe(PipeEnd { pipe: pipe.clone(), reads });
            *fd = match self.fds.open(end, flags & O_NONBLOCK != 0) {
                Ok(fd) => fd,
                Err(errno) => {
                    // One end alone is no use to anybody; 0 is no descriptor here.
                    let _ = self.fds.close(first);
                    return Err(errno);
                }
            };
            first = *fd;
            self.fds.get_mut(*fd)?.cloexec = flags & O_CLOEXEC != 0;
        }
        Ok(Reply { result: Ok(0), out: Out::Pipe(fds) })
    }
}

impl PipeEnd {
    fn lock(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_reader(&self) -> bool {
        self.reads
    }

    /// Whether both are ends of one pipe.
    pub(crate) fn is_same_pipe(&self, other: &PipeEnd) -> bool {
        Arc::ptr_eq(&self.pipe, &other.pipe)
    }

    /// One more hold of this end.
    pub(crate) fn share(&self) -> PipeEnd {
        let mut pipe = self.lock();
        if self.reads {
            pipe.readers += 1;
        } else {
            pipe.writers += 1;
        }
        drop(pipe);
        PipeEnd { pipe: self.pipe.clone(), reads: self.reads }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().data.len()
    }

    pub(crate) fn free(&self) -> usize {
        CAPACITY - self.len().min(CAPACITY)
    }

    /// Nobody can read what is written.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().readers == 0
    }

    /// Nothing can come any more.
    pub(crate) fn is_ended(&self) -> bool {
        let pipe = self.lock();
        pipe.writers == 0 && pipe.data.is_empty()
    }

    pub(crate) fn put(&self, bytes: &[u8]) {
        let mut pipe = self.lock();
        pipe.data.extend(bytes);
        pipe.edges[0] = pipe.edges[0].wrapping_add(1);
    }

    /// The first bytes, which stay.
    pub(crate) fn head(&self, most: usize) -> Vec<u8> {
        self.lock().data.iter().take(most).copied().collect()
    }

    pub(crate) fn drop_head(&self, count: usize) {
        let mut pipe = self.lock();
        let count = count.min(pipe.data.len());
        pipe.data.drain(..count);
        pipe.edges[1] = pipe.edges[1].wrapping_add(1);
    }

    pub(crate) fn edges(&self) -> [u32; 3] {
        let [came, went] = self.lock().edges;
        [came, went, 0]
    }

    pub(crate) fn mask(&self) -> u32 {
        let pipe = self.lock();
        if self.reads {
            let there = if pipe.data.is_empty() { 0 } else { READ };
            there | if pipe.writers == 0 { EPOLLHUP } else { 0 }
        } else {
            let space = if pipe.data.len() < CAPACITY { WRITE } else { 0 };
            space | if pipe.readers == 0 { EPOLLERR } else { 0 }
        }
    }

    pub(crate) fn read(
        &self,
        buffers: &[Dest],
        blocks: bool,
        wait: &mut Wait,
        now: Instant,
    ) -> Step {
        if !self.reads {
            return Step::error(Errno::EBADF);
        }
        let (room, bad) = room(buffers);
        if room == 0 && !bad {
            return received(Vec::new(), 0, 0, Vec::new());
        }
        let data = self.head(room);
        match self.len() {
            0 if self.is_ended() => received(Vec::new(), 0, 0, Vec::new()),
            0 if blocks => wait.sleep(now, None),
            0 => Step::error(Errno::EAGAIN),
            _ if room == 0 => Step::error(Errno::EFAULT),
            _ => {
                let count = data.len();
                self.drop_head(count);
                received(data, count, 0, Vec::new())
            }
        }
    }

    pub(crate) fn write(&self, buffers: &[Source], blocks: bool, wait: &mut Wait) -> Step {
        if self.reads {
            return Step::error(Errno::EBADF);
        }
        let (parts, bad) = parts_from(buffers, wait.sent);
        let asked: usize = parts.iter().map(|part| part.len()).sum();
        if asked == 0 && !bad {
            return Step::value(as_value(wait.sent));
        }
        let sent = wait.sent;
        let short = |errno| if sent > 0 { Step::value(as_value(sent)) } else { Step::error(errno) };
        if self.is_broken() {
            return short(Errno::EPIPE);
        }
        if asked == 0 {
            return short(Errno::EFAULT);
        }
        let mut free = self.free();
        if asked <= ATOMIC && asked > free {
            free = 0;
        }
        for part in parts {
            let count = part.len().min(free);
            if count > 0 {
                self.put(&part[..count]);
            }
            free -= count;
            wait.sent += count;
        }
        match wait.sent - sent {
            count if count == asked => Step::value(as_value(wait.sent)),
            _ if blocks => Step::Sleep,
            0 if sent == 0 => Step::error(Errno::EAGAIN),
            _ => Step::value(as_value(wait.sent)),
        }
    }
}
