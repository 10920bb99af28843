//! The calls of a program, and what comes back, as values.
//!
//! Numbers (families, levels, option names, flags) are Linux's. A pointer that a program passes is
//! either something with a length or NULL; both can be said here, since both have defined results.

use std::net::SocketAddr;

use plimsoll_tcp::Instant;

use crate::posix::errno::Errno;

/// What is written from: bytes, or a bad pointer with a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A NULL pointer said to have this many bytes.
    Null(usize),
}

/// What is read into: room for so many bytes, or a bad pointer said to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// Room for this many bytes.
    Room(usize),
    /// A NULL pointer said to have room for this many bytes.
    Null(usize),
}

/// Which of the calls that write was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the calls")]
pub enum SendVia {
    Write,
    Writev,
    Send,
    Sendto,
    Sendmsg,
}

/// Which of the calls that read was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the calls")]
pub enum ReceiveVia {
    Read,
    Readv,
    Recv,
    Recvfrom,
    Recvmsg,
}

/// One ancillary message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// `cmsg_level`.
    pub level: i32,
    /// `cmsg_type`.
    pub kind: i32,
    /// The bytes of the C structure.
    pub data: Vec<u8>,
}

/// One entry of `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of struct pollfd")]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// One event of `epoll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollEvent {
    /// EPOLLIN and so on.
    pub events: u32,
    /// What the program wants to be told with it.
    pub data: u64,
}

/// One end of `splice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpliceEnd {
    /// The descriptor.
    pub fd: i32,
    /// The offset, if a pointer to one was passed.
    pub offset: Option<i64>,
}

/// A call, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the calls and their arguments")]
pub enum Call {
    Socket {
        domain: i32,
        kind: i32,
        protocol: i32,
    },
    Bind {
        fd: i32,
        addr: Option<SocketAddr>,
    },
    Listen {
        fd: i32,
        backlog: i32,
    },
    Accept {
        fd: i32,
        flags: i32,
    },
    Connect {
        fd: i32,
        addr: Option<SocketAddr>,
    },
    Getsockname {
        fd: i32,
    },
    Getpeername {
        fd: i32,
    },
    /// `control_len` is the room for ancillary messages, in bytes.
    Receive {
        via: ReceiveVia,
        fd: i32,
        buffers: Vec<Dest>,
        flags: i32,
        control_len: usize,
    },
    Send {
        via: SendVia,
        fd: i32,
        buffers: Vec<Source>,
        flags: i32,
        to: Option<SocketAddr>,
        control: Vec<ControlMessage>,
    },
    Fcntl {
        fd: i32,
        cmd: i32,
        arg: i64,
    },
    /// `arg` is `None` for a NULL pointer.
    Ioctl {
        fd: i32,
        request: u64,
        arg: Option<i32>,
    },
    Close {
        fd: i32,
    },
    Shutdown {
        fd: i32,
        how: i32,
    },
    /// `len` is the room; `null` says that the pointer was NULL.
    Getsockopt {
        fd: i32,
        level: i32,
        name: i32,
        len: i32,
        null: bool,
    },
    Setsockopt {
        fd: i32,
        level: i32,
        name: i32,
        value: Option<Vec<u8>>,
        len: i32,
    },
    Poll {
        fds: Vec<PollFd>,
        timeout_ms: i32,
    },
    /// `None` for `epoll_create1`.
    EpollCreate {
        size: Option<i32>,
        flags: i32,
    },
    EpollCtl {
        epfd: i32,
        op: i32,
        fd: i32,
        event: Option<EpollEvent>,
    },
    EpollWait {
        epfd: i32,
        max_events: i32,
        timeout_ms: i32,
    },
    Pipe {
        flags: i32,
    },
    Splice {
        from: SpliceEnd,
        to: SpliceEnd,
        len: usize,
        flags: u32,
    },
    Sendfile {
        out_fd: i32,
        in_fd: i32,
        offset: Option<i64>,
        count: usize,
    },
    Open {
        path: String,
        flags: i32,
    },
}

/// What a call gives back beside its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the arguments that they fill")]
pub enum Out {
    #[default]
    Nothing,
    /// Of accept, getsockname, getpeername.
    Address(SocketAddr),
    Received {
        data: Vec<u8>,
        from: Option<SocketAddr>,
        control: Vec<ControlMessage>,
        msg_flags: i32,
    },
    /// Of ioctl.
    Int(i32),
    /// Of getsockopt: the bytes that were written and the length that was set.
    Option {
        value: Vec<u8>,
        len: i32,
    },
    Poll(Vec<PollFd>),
    Epoll(Vec<EpollEvent>),
    /// Of pipe.
    Pipe([i32; 2]),
    /// Of splice and sendfile: the offsets as they are afterwards.
    Offsets {
        from: Option<i64>,
        to: Option<i64>,
    },
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The value, or the error that a program finds in `errno`.
    pub result: Result<i64, Errno>,
    /// What was written through its pointers.
    pub out: Out,
}

impl Reply {
    /// A value and nothing else.
    pub fn value(value: i64) -> Reply {
        Reply { result: Ok(value), out: Out::Nothing }
    }

    /// An error and nothing else.
    pub fn error(errno: Errno) -> Reply {
        Reply { result: Err(errno), out: Out::Nothing }
    }
}

/// How far a call has come.
#[derive(Debug)]
pub(crate) enum Progress<P> {
    /// It has returned.
    Done(Reply),
    /// It sleeps. Resume it when something has happened, or at the deadline if there is one.
    Blocked {
        /// What it has done so far.
        pending: P,
        /// When it gives up sleeping.
        deadline: Option<Instant>,
    },
}
