//! splice(2) and sendfile(2): bytes from one descriptor to another.

use plimsoll_stack::SocketError;
use plimsoll_tcp::{Duration, Instant, WriteFlags};

use crate::posix::call::{Out, Reply, SpliceEnd};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::pipe::PipeEnd;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::send::{as_value, is_woken, note_sleep};
use crate::posix::socket::{Link, Socket, stack_errno};

/// What sendfile moves at once.
const CHUNK: usize = 65_536;

/// Why nothing was moved, or not all.
enum Stuck {
    /// It can go on later.
    Wait,
    /// It never will; what was moved counts.
    End,
    Failed(Errno),
}

impl Process {
    pub(crate) fn splice(
        &mut self,
        now: Instant,
        (from, to): (SpliceEnd, SpliceEnd),
        len: usize,
        flags: u32,
        wait: &mut Wait,
    ) -> Step {
        if len == 0 {
            return Step::value(0);
        }
        if flags & !SPLICE_F_ALL != 0 {
            return Step::error(Errno::EINVAL);
        }
        if let Err(errno) = self.check_splice(from, to) {
            return Step::error(errno);
        }
        let nonblocking = |fd| self.fds.get(fd).is_ok_and(|descriptor| descriptor.nonblocking);
        let mut blocks = flags & SPLICE_F_NONBLOCK == 0;
        // The socket's own flag counts as well; that of a pipe only where it is written to.
        for fd in [from.fd, to.fd] {
            let reader = matches!(self.fds.get(fd).map(|d| &d.file), Ok(File::Pipe(end))
                if end.is_reader());
            blocks &= reader || !nonblocking(fd);
        }
        let timeout = self.splice_timeout(from.fd, to.fd);
        blocks &= timeout != Some(Duration::ZERO);
        let count = match self.splice_once(now, (from, to), len, flags, wait) {
            Ok(count) => count,
            Err(Stuck::End) => 0,
            Err(Stuck::Failed(errno)) => return Step::error(errno),
            Err(Stuck::Wait) if blocks && !wait.expired(now) => return wait.sleep(now, timeout),
            Err(Stuck::Wait) => return Step::error(Errno::EAGAIN),
        };
        let out = Out::Offsets { from: offset_after(from.offset, count), to: to.offset };
        Step::Done(Ok(Reply { result: Ok(as_value(count)), out }))
    }

    /// How long splice may sleep: a socket's own timeout counts where the socket is what it waits
    /// for, and for a pipe it waits without end.
    fn splice_timeout(&self, from: i32, to: i32) -> Option<Duration> {
        let file = |fd| self.fds.get(fd).ok().map(|descriptor| &descriptor.file);
        match (file(from), file(to)) {
            (Some(File::Socket(socket)), Some(File::Pipe(end))) if end.free() > 0 => {
                socket.set.rcvtimeo
            }
            (Some(File::Pipe(end)), Some(File::Socket(socket))) if end.len() > 0 => {
                socket.set.sndtimeo
            }
            _ => None,
        }
    }

    /// The arguments, in the order in which Linux looks at them.
    fn check_splice(&self, from: SpliceEnd, to: SpliceEnd) -> Result<(), Errno> {
        let (input, output) = (&self.fds.get(from.fd)?.file, &self.fds.get(to.fd)?.file);
        let unreadable = matches!(input, File::Pipe(end) if !end.is_reader());
        let unwritable = match output {
            File::Pipe(end) => end.is_reader(),
            File::Regular(_) => true,
            _ => false,
        };
        if unreadable || unwritable {
            return Err(Errno::EBADF);
        }
        let ends = [(input, from.offset), (output, to.offset)];
        if ends.iter().any(|(file, offset)| matches!(file, File::Pipe(_)) && offset.is_some()) {
            return Err(Errno::ESPIPE);
        }
        match (input, output) {
            (File::Pipe(one), File::Pipe(other)) if one.is_same_pipe(other) => Err(Errno::EINVAL),
            (File::Pipe(_), File::Pipe(_)) => Ok(()),
            (File::Pipe(_), File::Socket(_)) if to.offset.is_none() => Ok(()),
            (File::Socket(_), File::Pipe(_)) if from.offset.is_none() => Ok(()),
            (File::Regular(_), File::Pipe(_)) if from.offset.is_none_or(|at| at >= 0) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Moves what can be moved now.
    fn splice_once(
        &mut self,
        now: Instant,
        (from, to): (SpliceEnd, SpliceEnd),
        len: usize,
        flags: u32,
        wait: &mut Wait,
    ) -> Result<usize, Stuck> {
        let gone = |_| Stuck::Failed(Errno::EBADF);
        if let File::Pipe(end) = &self.fds.get(to.fd).map_err(gone)?.file {
            let output = end.share();
            return self.fill_pipe(now, from, &output, len);
        }
        let File::Pipe(end) = &self.fds.get(from.fd).map_err(gone)?.file else {
            return Err(Stuck::Failed(Errno::EINVAL));
        };
        let input = end.share();
        let bytes = input.head(len);
        if bytes.is_empty() {
            return Err(if input.is_ended() { Stuck::End } else { Stuck::Wait });
        }
        let (socket, _) = self.fds.socket(to.fd).map_err(Stuck::Failed)?;
        let count = push(socket, now, &bytes, flags & SPLICE_F_MORE != 0, wait)?;
        input.drop_head(count);
        Ok(count)
    }

    /// Moves bytes into a pipe.
    fn fill_pipe(
        &mut self,
        now: Instant,
        from: SpliceEnd,
        output: &PipeEnd,
        len: usize,
    ) -> Result<usize, Stuck> {
        if output.is_broken() {
            return Err(Stuck::Failed(Errno::EPIPE));
        }
        let room = len.min(output.free());
        if room == 0 {
            return Err(Stuck::Wait);
        }
        let descriptor = self.fds.get_mut(from.fd).map_err(Stuck::Failed)?;
        let bytes = match &mut descriptor.file {
            File::Pipe(input) => {
                let bytes = input.head(room);
                if bytes.is_empty() {
                    return Err(if input.is_ended() { Stuck::End } else { Stuck::Wait });
                }
                input.drop_head(bytes.len());
                bytes
            }
            File::Regular(file) => {
                let at = from.offset.map_or(file.position, |at| at.unsigned_abs());
                let bytes = file.read_at(at, room.min(CHUNK)).map_err(Stuck::Failed)?;
                if from.offset.is_none() {
                    file.position += bytes.len() as u64;
                }
                bytes
            }
            File::Socket(socket) => pull(socket, now, room)?,
            File::Epoll(_) => return Err(Stuck::Failed(Errno::EINVAL)),
        };
        output.put(&bytes);
        Ok(bytes.len())
    }

    pub(crate) fn sendfile(
        &mut self,
        now: Instant,
        (out_fd, in_fd): (i32, i32),
        offset: Option<i64>,
        count: usize,
        wait: &mut Wait,
    ) -> Step {
        match self.send_chunks(now, (out_fd, in_fd), offset, count, wait) {
            Ok(()) | Err(Stuck::End) => {}
            Err(Stuck::Failed(errno)) if wait.sent == 0 => return Step::error(errno),
            Err(Stuck::Failed(_)) => {}
            Err(Stuck::Wait) => {
                let blocks = self.fds.get(out_fd).is_ok_and(|out| !out.nonblocking);
                match blocks {
                    true if !wait.expired(now) => {
                        let timeout = self.fds.socket(out_fd).ok().and_then(|s| s.0.set.sndtimeo);
                        return wait.sleep(now, timeout);
                    }
                    _ if wait.sent == 0 => return Step::error(Errno::EAGAIN),
                    _ => {}
                }
            }
        }
        if offset.is_none()
            && let Ok(File::Regular(file)) = self.fds.get_mut(in_fd).map(|d| &mut d.file)
        {
            file.position += wait.sent as u64;
        }
        let out = Out::Offsets { from: offset_after(offset, wait.sent), to: None };
        Step::Done(Ok(Reply { result: Ok(as_value(wait.sent)), out }))
    }

    fn send_chunks(
        &mut self,
        now: Instant,
        (out_fd, in_fd): (i32, i32),
        offset: Option<i64>,
        count: usize,
        wait: &mut Wait,
    ) -> Result<(), Stuck> {
        loop {
            let file = match &self.fds.get(in_fd).map_err(Stuck::Failed)?.file {
                File::Regular(file) => file,
                File::Pipe(end) if !end.is_reader() => return Err(Stuck::Failed(Errno::EBADF)),
                _ if offset.is_some() => return Err(Stuck::Failed(Errno::ESPIPE)),
                _ => return Err(Stuck::Failed(Errno::EINVAL)),
            };
            let start = match offset {
                Some(at) => u64::try_from(at).map_err(|_| Stuck::Failed(Errno::EINVAL))?,
                None => file.position,
            };
            let left = count.saturating_sub(wait.sent);
            let bytes =
                file.read_at(start + wait.sent as u64, left.min(CHUNK)).map_err(Stuck::Failed)?;
            let more = left > bytes.len() && bytes.len() == CHUNK;
            let moved = match &mut self.fds.get_mut(out_fd).map_err(Stuck::Failed)?.file {
                File::Socket(socket) if bytes.is_empty() => {
                    push(socket, now, &bytes, more, wait)?;
                    return Ok(());
                }
                File::Socket(socket) => push(socket, now, &bytes, more, wait)?,
                File::Pipe(end) if end.is_reader() => return Err(Stuck::Failed(Errno::EBADF)),
                File::Pipe(end) if end.is_broken() => return Err(Stuck::Failed(Errno::EPIPE)),
                File::Pipe(_) if bytes.is_empty() => return Ok(()),
                File::Pipe(end) => {
                    let fits = bytes.len().min(end.free());
                    end.put(&bytes[..fits]);
                    fits
                }
                File::Epoll(_) => return Err(Stuck::Failed(Errno::EINVAL)),
                File::Regular(_) => return Err(Stuck::Failed(Errno::EBADF)),
            };
            wait.sent += moved;
            if moved == 0 {
                return Err(Stuck::Wait);
            }
        }
    }
}

/// Where reading goes on that began at `offset`.
fn offset_after(offset: Option<i64>, moved: usize) -> Option<i64> {
    offset.map(|at| at.saturating_add(as_value(moved)))
}

/// Writes to a socket what fits.
fn push(
    socket: &mut Socket,
    now: Instant,
    bytes: &[u8],
    more: bool,
    wait: &mut Wait,
) -> Result<usize, Stuck> {
    if socket.is_opening() {
        return Err(Stuck::Wait);
    }
    if wait.again && !is_woken(socket, wait) && !wait.expired(now) {
        return Err(Stuck::Wait);
    }
    let Link::Stream(stream) = &socket.link else {
        return Err(Stuck::Failed(socket.take_error().unwrap_or(Errno::EPIPE)));
    };
    let flags = WriteFlags { more, ..WriteFlags::default() };
    match stream.write_with(now, &[bytes], flags) {
        Ok(count) => {
            if count < bytes.len() {
                note_sleep(socket, wait);
            }
            Ok(count)
        }
        Err(SocketError::WouldBlock) => {
            note_sleep(socket, wait);
            Err(Stuck::Wait)
        }
        Err(error) => Err(Stuck::Failed(stack_errno(error))),
    }
}

/// Reads from a socket what is there.
fn pull(socket: &mut Socket, now: Instant, most: usize) -> Result<Vec<u8>, Stuck> {
    let stream = match &socket.link {
        Link::Stream(stream) => stream.clone(),
        Link::Listener(_) => return Err(Stuck::Failed(Errno::ENOTCONN)),
        Link::Idle => return Err(Stuck::Failed(socket.take_error().unwrap_or(Errno::ENOTCONN))),
    };
    if stream.at_urgent_mark() && !stream.awaits_urgent() {
        // Linux does not look behind an urgent byte here.
        return Err(Stuck::End);
    }
    let mut bytes = vec![0; most.min(stream.readable_bytes()).max(1)];
    match stream.read(now, &mut bytes) {
        Ok(0) => Err(Stuck::End),
        Ok(count) => {
            bytes.truncate(count);
            Ok(bytes)
        }
        Err(SocketError::WouldBlock) => Err(Stuck::Wait),
        Err(SocketError::NotConnected) if socket.is_opening() => Err(Stuck::Wait),
        Err(error) => Err(Stuck::Failed(stack_errno(error))),
    }
}
