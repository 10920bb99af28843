//! From a call of the script to one of the host, with what to look at afterwards.

use std::net::{IpAddr, SocketAddr};

use crate::posix::{
    Call, ControlMessage, EpollEvent, PollFd, ReceiveVia, SendVia, Source, SpliceEnd,
};

use super::Runner;
use super::arguments::{self, Arguments, integer, integer32};
use super::control;
use super::flow::State;
use crate::failure::Failure;
use crate::lang::ast::{self, Expr, Spanned};
use crate::raw;

/// A call that is ready to be made.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) call: Call,
    pub(super) check: Check,
}

/// What is looked at when a call has returned, beside its result.
#[derive(Debug)]
pub(super) enum Check {
    Nothing,
    /// A new socket: protocol.
    Socket(i32),
    /// A new descriptor of another kind.
    Descriptor,
    Accept,
    Listen(i32),
    Close(i32),
    Pipe([i32; 2]),
    /// The number that ioctl gives.
    Ioctl(i32),
    Option {
        value: Expected,
        len: i32,
    },
    Message {
        flags: i32,
        control: Vec<control::Expected>,
    },
    Poll(Vec<i64>),
    Epoll {
        events: u32,
        data: u64,
        /// The bits of the data that count.
        mask: u64,
    },
}

/// The value of an option.
#[derive(Debug)]
pub(super) enum Expected {
    Int(i32),
    Bytes(Vec<u8>),
    /// Only the start.
    Prefix(Vec<u8>),
}

fn plain(call: Call) -> Result<Prepared, Failure> {
    Ok(Prepared { call, check: Check::Nothing })
}

fn checked(call: Call, check: Check) -> Result<Prepared, Failure> {
    Ok(Prepared { call, check })
}

impl Runner<'_> {
    /// Translates a call.
    pub(super) fn prepare(&mut self, call: &ast::Call) -> Result<Prepared, Failure> {
        let name = call.name.node.as_str();
        let args = Arguments { name, span: &call.name.span, list: &call.arguments };
        match name {
            "socket" => self.socket(&args),
            "bind" => self.bind(&args),
            "listen" => self.listen(&args),
            "accept" | "accept4" => self.accept(&args),
            "connect" => self.connect(&args),
            "getsockname" | "getpeername" => self.names(&args),
            "read" | "readv" | "recv" | "recvfrom" | "recvmsg" => self.receive(&args),
            "write" | "writev" | "send" | "sendto" | "sendmsg" => self.send(&args),
            "fcntl" => self.fcntl(&args),
            "ioctl" => self.ioctl(&args),
            "close" => self.close(&args),
            "shutdown" => {
                args.count(2, 2)?;
                plain(Call::Shutdown { fd: self.fd(&args, 0)?, how: args.int32(1)? })
            }
            "getsockopt" => self.getsockopt(&args),
            "setsockopt" => self.setsockopt(&args),
            "poll" => self.poll(&args),
            "epoll_create" | "epoll_create1" => {
                args.count(1, 1)?;
                let value = args.int32(0)?;
                let old = name == "epoll_create";
                let (size, flags) = if old { (Some(value), 0) } else { (None, value) };
                checked(Call::EpollCreate { size, flags }, Check::Descriptor)
            }
            "epoll_ctl" => self.epoll_ctl(&args),
            "epoll_wait" => self.epoll_wait(&args),
            "pipe" => self.pipe(&args),
            "splice" => self.splice(&args),
            "sendfile" => self.sendfile(&args),
            "open" => self.open(&args),
            _ => Err(Failure::script(&call.name.span, format!("the call {name}() is not known"))),
        }
    }

    fn fd(&self, args: &Arguments<'_>, at: usize) -> Result<i32, Failure> {
        self.fd_of(args.get(at)?)
    }

    fn fd_of(&self, expr: &Spanned<Expr>) -> Result<i32, Failure> {
        let script = integer32(expr)?;
        self.live_fd(script).map_err(|text| Failure::script(&expr.span, text))
    }

    /// The address that a program would use for one on the wire.
    fn socket_address(&self, ip: IpAddr, port: u16) -> SocketAddr {
        match ip {
            IpAddr::V4(ip) if self.network.mapped => {
                SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), port)
            }
            ip => SocketAddr::new(ip, port),
        }
    }

    fn connect_address(&self) -> SocketAddr {
        self.socket_address(self.network.remote, self.config.connect_port)
    }

    fn socket(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let v4 = self.network.local.is_ipv4() && !self.network.mapped;
        let usual = if v4 { 2 } else { 10 };
        let domain = if args.is_ellipsis(0) { usual } else { args.int32(0)? };
        let (kind, protocol) = (args.int32(1)?, args.int32(2)?);
        checked(Call::Socket { domain, kind, protocol }, Check::Socket(protocol))
    }

    fn bind(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let fd = self.fd(args, 0)?;
        let addr = match &args.get(1)?.node {
            Expr::SocketAddress { port, address, .. } => self.socket_address(*address, *port),
            _ => {
                args.ellipsis(1)?;
                self.socket_address(self.network.local, self.config.bind_port)
            }
        };
        plain(Call::Bind { fd, addr: Some(addr) })
    }

    fn listen(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(2, 2)?;
        let call = Call::Listen { fd: self.fd(args, 0)?, backlog: args.int32(1)? };
        checked(call, Check::Listen(args.int32(0)?))
    }

    fn accept(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        let with_flags = args.name == "accept4";
        let count = if with_flags { 4 } else { 3 };
        args.count(count, count)?;
        let flags = if with_flags { args.int32(3)? } else { 0 };
        checked(Call::Accept { fd: self.fd(args, 0)?, flags }, Check::Accept)
    }

    fn names(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let fd = self.fd(args, 0)?;
        plain(match args.name {
            "getsockname" => Call::Getsockname { fd },
            _ => Call::Getpeername { fd },
        })
    }

    fn connect(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let fd = self.fd(args, 0)?;
        let addr = self.destination(args, 1)?;
        self.begin_connect(args.int32(0)?, addr.is_some());
        plain(Call::Connect { fd, addr })
    }

    /// `...` is the usual address, a number a family. `None` is `AF_UNSPEC`.
    fn destination(&self, args: &Arguments<'_>, at: usize) -> Result<Option<SocketAddr>, Failure> {
        let expr = args.get(at)?;
        match &expr.node {
            Expr::Ellipsis => Ok(Some(self.connect_address())),
            Expr::SocketAddress { port, address, .. } => {
                Ok(Some(self.socket_address(*address, *port)))
            }
            _ if integer(expr)? == 0 => Ok(None),
            _ => Err(Failure::script(&expr.span, "only `...` and AF_UNSPEC can stand here")),
        }
    }

    /// A call is about to connect a socket of the script.
    fn begin_connect(&mut self, script: i32, specified: bool) {
        let remote = SocketAddr::new(self.network.remote, self.config.connect_port);
        let Some(at) = self.flow_of(script) else { return };
        let flow = &mut self.flows[at];
        if !specified {
            flow.state = State::New;
        } else if flow.state == State::New {
            flow.state = State::Connecting;
            flow.remote = remote;
        }
    }

    fn receive(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        let via = match args.name {
            "read" => ReceiveVia::Read,
            "readv" => ReceiveVia::Readv,
            "recv" => ReceiveVia::Recv,
            "recvfrom" => ReceiveVia::Recvfrom,
            _ => return self.recvmsg(args),
        };
        let count = match via {
            ReceiveVia::Recvfrom => 6,
            ReceiveVia::Recv => 4,
            _ => 3,
        };
        args.count(count, count)?;
        let fd = self.fd(args, 0)?;
        let buffers = if via == ReceiveVia::Readv {
            args.iovecs(1)?.into_iter().map(crate::posix::Dest::Room).collect()
        } else {
            vec![args.dest(1)?]
        };
        let flags = if count > 3 { args.int32(3)? } else { 0 };
        plain(Call::Receive { via, fd, buffers, flags, control_len: 0 })
    }

    fn recvmsg(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let fd = self.fd(args, 0)?;
        let message = message(args, 1)?;
        let iov = arguments::iovecs(&message.iov, message.iov_count.node, &message.iov_count.span)?;
        let buffers = iov.into_iter().map(crate::posix::Dest::Room).collect();
        let control: Result<Vec<_>, Failure> =
            message.control.iter().map(control::expected).collect();
        let control = control?;
        let control_len = control.iter().map(control::Expected::room).sum();
        let flags = integer32(&message.flags)?;
        let call = Call::Receive {
            via: ReceiveVia::Recvmsg,
            fd,
            buffers,
            flags: args.int32(2)?,
            control_len,
        };
        checked(call, Check::Message { flags, control })
    }

    fn send(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        let (via, count) = match args.name {
            "write" => (SendVia::Write, 3),
            "writev" => (SendVia::Writev, 3),
            "send" => (SendVia::Send, 4),
            "sendto" => (SendVia::Sendto, 6),
            _ => return self.sendmsg(args),
        };
        args.count(count, count)?;
        let fd = self.fd(args, 0)?;
        let buffers =
            if via == SendVia::Writev { zeroes(args.iovecs(1)?) } else { vec![args.source(1)?] };
        let flags = if count > 3 { args.int32(3)? } else { 0 };
        let mut to = None;
        if via == SendVia::Sendto {
            let addr = self.destination(args, 4)?;
            self.begin_connect(args.int32(0)?, addr.is_some());
            // An address that says nothing stands for AF_UNSPEC.
            to = addr.or(Some(raw::NO_ADDRESS));
        }
        plain(Call::Send { via, fd, buffers, flags, to, control: Vec::new() })
    }

    fn sendmsg(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let fd = self.fd(args, 0)?;
        let message = message(args, 1)?;
        let iov = arguments::iovecs(&message.iov, message.iov_count.node, &message.iov_count.span)?;
        if integer(&message.flags)? != 0 {
            return Err(Failure::script(
                &message.flags.span,
                "sendmsg() does not look at the flags in the message",
            ));
        }
        let control: Result<Vec<ControlMessage>, Failure> =
            message.control.iter().map(control::to_send).collect();
        self.begin_connect(args.int32(0)?, true);
        plain(Call::Send {
            via: SendVia::Sendmsg,
            fd,
            buffers: zeroes(iov),
            flags: args.int32(2)?,
            to: Some(self.connect_address()),
            control: control?,
        })
    }

    fn fcntl(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(2, 3)?;
        let fd = self.fd(args, 0)?;
        let arg = if args.list.len() == 3 { args.int(2)? } else { 0 };
        plain(Call::Fcntl { fd, cmd: args.int32(1)?, arg })
    }

    fn ioctl(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(2, 3)?;
        let fd = self.fd(args, 0)?;
        let request = u64::from(args.int32(1)?.cast_unsigned());
        if args.list.len() == 2 {
            return plain(Call::Ioctl { fd, request, arg: None });
        }
        let expr = args.get(2)?;
        if matches!(&expr.node, Expr::List(_)) {
            let value = args.bracketed(2)? as i32;
            return checked(Call::Ioctl { fd, request, arg: Some(value) }, Check::Ioctl(value));
        }
        let arg = if integer(expr)? == 0 { None } else { Some(integer32(expr)?) };
        plain(Call::Ioctl { fd, request, arg })
    }

    fn close(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(1, 1)?;
        checked(Call::Close { fd: self.fd(args, 0)? }, Check::Close(args.int32(0)?))
    }

    fn getsockopt(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(5, 5)?;
        let (fd, level, name) = (self.fd(args, 0)?, args.int32(1)?, args.int32(2)?);
        let len = args.bracketed(4)?;
        let span = &args.get(4)?.span;
        if !(-1..=65_536).contains(&len) {
            return Err(Failure::script(span, format!("{len} is no length of an option")));
        }
        let len = len as i32;
        let value = args.get(3)?;
        let null = matches!(&value.node, Expr::Integer(0))
            || matches!(&value.node, Expr::Word(word) if word == "NULL");
        let value = match &value.node {
            _ if null => Expected::Prefix(Vec::new()),
            Expr::Ellipsis => Expected::Prefix(Vec::new()),
            Expr::List(_) => Expected::Int(args.bracketed(3)? as i32),
            Expr::String(bytes) => Expected::Bytes(bytes.clone()),
            Expr::StringPrefix(bytes) => Expected::Prefix(bytes.clone()),
            Expr::Address(IpAddr::V6(ip)) => Expected::Bytes(ip.octets().to_vec()),
            Expr::Linger { onoff, linger } => Expected::Bytes(ints(&[*onoff, *linger])),
            _ => return Err(Failure::script(&value.span, "no option has such a value")),
        };
        let call = Call::Getsockopt { fd, level, name, len, null };
        checked(call, Check::Option { value, len })
    }

    fn setsockopt(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(5, 5)?;
        let (fd, level, name) = (self.fd(args, 0)?, args.int32(1)?, args.int32(2)?);
        let len = args.int32(4)?;
        let value = args.get(3)?;
        let mut bytes = match &value.node {
            Expr::List(_) => (args.bracketed(3)? as i32).to_le_bytes().to_vec(),
            Expr::String(bytes) => bytes.clone(),
            Expr::Linger { onoff, linger } => ints(&[*onoff, *linger]),
            Expr::Address(IpAddr::V6(ip)) => ip.octets().to_vec(),
            _ if integer(value).is_ok_and(|value| value == 0) => {
                return plain(Call::Setsockopt { fd, level, name, value: None, len });
            }
            _ => return Err(Failure::script(&value.span, "no option has such a value")),
        };
        // A program that gives a length has that many bytes, whatever they are.
        let room = usize::try_from(len).unwrap_or(0).min(65_536);
        bytes.resize(bytes.len().max(room), 0);
        plain(Call::Setsockopt { fd, level, name, value: Some(bytes), len })
    }

    fn poll(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(3, 3)?;
        let expr = args.get(0)?;
        let Expr::List(list) = &expr.node else {
            return Err(Failure::script(&expr.span, "a list of {fd=.., events=..} belongs here"));
        };
        if usize::try_from(args.int(1)?) != Ok(list.len()) {
            let text = format!("there are {} entries", list.len());
            return Err(Failure::script(&args.get(1)?.span, text));
        }
        let mut fds = Vec::new();
        let mut wanted = Vec::new();
        for entry in list {
            let Expr::PollFd { fd, events, revents } = &entry.node else {
                return Err(Failure::script(&entry.span, "a {fd=.., events=..} belongs here"));
            };
            let events = integer(events)? as i16;
            fds.push(PollFd { fd: self.fd_of(fd)?, events, revents: 0 });
            wanted.push(revents.as_deref().map_or(Ok(0), integer)?);
        }
        checked(Call::Poll { fds, timeout_ms: args.int32(2)? }, Check::Poll(wanted))
    }

    /// An event of the script: events, data, and which bits of the data count.
    fn epoll_event(&self, expr: &Spanned<Expr>) -> Result<(u32, u64, u64), Failure> {
        let Expr::EpollEvent { events, field, data } = &expr.node else {
            return Err(Failure::script(&expr.span, "an {events=.., fd=..} belongs here"));
        };
        let events = integer32(events)?.cast_unsigned();
        let low = u64::from(u32::MAX);
        Ok(match field.as_str() {
            "fd" => (events, u64::from(self.fd_of(data)?.cast_unsigned()), low),
            "u32" => (events, integer(data)?.cast_unsigned() & low, low),
            _ => (events, integer(data)?.cast_unsigned(), u64::MAX),
        })
    }

    fn epoll_ctl(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(4, 4)?;
        let (epfd, op, fd) = (self.fd(args, 0)?, args.int32(1)?, self.fd(args, 2)?);
        let expr = args.get(3)?;
        let event = if matches!(expr.node, Expr::EpollEvent { .. }) {
            let (events, data, _) = self.epoll_event(expr)?;
            Some(EpollEvent { events, data })
        } else if integer(expr)? == 0 {
            None
        } else {
            return Err(Failure::script(&expr.span, "an {events=.., fd=..} belongs here"));
        };
        plain(Call::EpollCtl { epfd, op, fd, event })
    }

    fn epoll_wait(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(4, 4)?;
        let epfd = self.fd(args, 0)?;
        let (events, data, mask) = self.epoll_event(args.get(1)?)?;
        let max_events = args.int32(2)?;
        let call = Call::EpollWait { epfd, max_events, timeout_ms: args.int32(3)? };
        checked(call, Check::Epoll { events, data, mask })
    }

    fn pipe(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(1, 1)?;
        let expr = args.get(0)?;
        match &expr.node {
            Expr::List(list) if list.len() == 2 => {
                let ends = [integer32(&list[0])?, integer32(&list[1])?];
                checked(Call::Pipe { flags: 0 }, Check::Pipe(ends))
            }
            _ => Err(Failure::script(&expr.span, "two descriptors in brackets belong here")),
        }
    }

    fn splice(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(6, 6)?;
        let offset = |at: usize| match args.get(at)?.node {
            Expr::List(_) => args.bracketed(at).map(Some),
            _ => args.int(at).map(|value| (value != 0).then_some(value)),
        };
        let from = SpliceEnd { fd: self.fd(args, 0)?, offset: offset(1)? };
        let to = SpliceEnd { fd: self.fd(args, 2)?, offset: offset(3)? };
        let len = usize::try_from(args.int(4)?.clamp(0, arguments::MAX_BUFFER)).unwrap_or(0);
        let flags = args.int32(5)?.cast_unsigned();
        plain(Call::Splice { from, to, len, flags })
    }

    fn sendfile(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(4, 4)?;
        let (out_fd, in_fd) = (self.fd(args, 0)?, self.fd(args, 1)?);
        let offset = match args.get(2)?.node {
            Expr::List(_) => Some(args.bracketed(2)?),
            _ => None,
        };
        let count = usize::try_from(args.int(3)?.clamp(0, arguments::MAX_BUFFER)).unwrap_or(0);
        plain(Call::Sendfile { out_fd, in_fd, offset, count })
    }

    fn open(&mut self, args: &Arguments<'_>) -> Result<Prepared, Failure> {
        args.count(2, 3)?;
        let expr = args.get(0)?;
        let Expr::String(path) = &expr.node else {
            return Err(Failure::script(&expr.span, "a path in quotes belongs here"));
        };
        let path = String::from_utf8_lossy(path).into_owned();
        checked(Call::Open { path, flags: args.int32(1)? }, Check::Descriptor)
    }
}

fn message<'a>(args: &Arguments<'a>, at: usize) -> Result<&'a ast::Message, Failure> {
    let expr = args.get(at)?;
    match &expr.node {
        Expr::Message(message) => Ok(message),
        _ => Err(Failure::script(&expr.span, "a {msg_name(...)=..., ...} belongs here")),
    }
}

fn zeroes(lens: Vec<usize>) -> Vec<Source> {
    lens.into_iter().map(|len| Source::Bytes(vec![0; len])).collect()
}

/// Numbers as a C structure of ints.
fn ints(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect()
}
