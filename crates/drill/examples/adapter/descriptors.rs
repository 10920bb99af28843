//! Descriptors: the tool closes what it knows with `close(2)`, so each must be a real one.
//!
//! Behind every descriptor of the stack stands one `eventfd`, whose number is what the tool sees.

use std::collections::BTreeMap;

use plimsoll_drill::posix::{Call, Out, Reply};

/// What a descriptor that the tool does not know becomes: one that the stack does not know.
const UNKNOWN: i32 = i32::MAX;

/// Which descriptor of the tool is which of the stack.
#[derive(Default)]
pub(crate) struct Descriptors {
    by_live: BTreeMap<i32, i32>,
}

impl Descriptors {
    pub(crate) fn knows(&self, live: i32) -> bool {
        self.by_live.contains_key(&live)
    }

    /// The stack's number.
    fn inner(&self, live: i32) -> i32 {
        match self.by_live.get(&live) {
            Some(inner) => *inner,
            // A negative one means something to some calls.
            None if live < 0 => live,
            None => UNKNOWN,
        }
    }

    /// A number for the tool.
    fn add(&mut self, inner: i32) -> i32 {
        // SAFETY: the call takes numbers only.
        let live = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if live >= 0 {
            self.by_live.insert(live, inner);
        }
        live
    }

    fn remove(&mut self, live: i32) {
        if self.by_live.remove(&live).is_some() {
            // SAFETY: this descriptor was made above, and nothing else uses it.
            unsafe { libc::close(live) };
        }
    }

    /// Replaces the tool's descriptors in a call by the stack's.
    pub(crate) fn translate(&self, call: &mut Call) {
        match call {
            Call::Bind { fd, .. }
            | Call::Listen { fd, .. }
            | Call::Accept { fd, .. }
            | Call::Connect { fd, .. }
            | Call::Getsockname { fd }
            | Call::Getpeername { fd }
            | Call::Receive { fd, .. }
            | Call::Send { fd, .. }
            | Call::Fcntl { fd, .. }
            | Call::Ioctl { fd, .. }
            | Call::Close { fd }
            | Call::Shutdown { fd, .. }
            | Call::Getsockopt { fd, .. }
            | Call::Setsockopt { fd, .. }
            | Call::EpollWait { epfd: fd, .. } => *fd = self.inner(*fd),
            Call::Poll { fds, .. } => fds.iter_mut().for_each(|p| p.fd = self.inner(p.fd)),
            Call::EpollCtl { epfd, fd, .. } => {
                *epfd = self.inner(*epfd);
                *fd = self.inner(*fd);
            }
            Call::Splice { from, to, .. } => {
                from.fd = self.inner(from.fd);
                to.fd = self.inner(to.fd);
            }
            Call::Sendfile { out_fd, in_fd, .. } => {
                *out_fd = self.inner(*out_fd);
                *in_fd = self.inner(*in_fd);
            }
            Call::Socket { .. }
            | Call::EpollCreate { .. }
            | Call::Pipe { .. }
            | Call::Open { .. } => {}
        }
    }

    /// Replaces new descriptors of the stack in a reply by ones for the tool. `call` is the call as
    /// the tool made it.
    pub(crate) fn answer(&mut self, call: &Call, reply: &mut Reply) {
        let Ok(value) = &mut reply.result else { return };
        match call {
            Call::Socket { .. }
            | Call::Accept { .. }
            | Call::EpollCreate { .. }
            | Call::Open { .. } => {
                *value = self.add(i32::try_from(*value).unwrap_or(UNKNOWN)).into();
            }
            Call::Close { fd } => self.remove(*fd),
            Call::Pipe { .. } => {
                if let Out::Pipe(fds) = &mut reply.out {
                    *fds = fds.map(|fd| self.add(fd));
                }
            }
            Call::Poll { fds, .. } => {
                if let Out::Poll(answers) = &mut reply.out {
                    answers.iter_mut().zip(fds).for_each(|(answer, asked)| answer.fd = asked.fd);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_drill::posix::{Call, Reply};

    use super::Descriptors;

    #[test]
    fn a_socket_gets_a_real_descriptor_until_it_is_closed() {
        let mut descriptors = Descriptors::default();
        let mut reply = Reply::value(3);
        let call = Call::Socket { domain: 2, kind: 1, protocol: 6 };
        descriptors.answer(&call, &mut reply);
        let live = i32::try_from(reply.result.unwrap()).unwrap();
        assert!(descriptors.knows(live));
        // SAFETY: the call only looks at a descriptor.
        assert!(unsafe { libc::fcntl(live, libc::F_GETFD) } >= 0);

        let mut listen = Call::Listen { fd: live, backlog: 1 };
        descriptors.translate(&mut listen);
        assert_eq!(listen, Call::Listen { fd: 3, backlog: 1 });

        descriptors.answer(&Call::Close { fd: live }, &mut Reply::value(0));
        assert!(!descriptors.knows(live));
        let mut listen = Call::Listen { fd: live, backlog: 1 };
        descriptors.translate(&mut listen);
        assert_eq!(listen, Call::Listen { fd: super::UNKNOWN, backlog: 1 });
    }
}
