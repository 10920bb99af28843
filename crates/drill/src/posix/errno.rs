//! Error numbers.

use core::fmt;

/// A Linux error number, always positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are those of errno(3)")]
        impl Errno {
            $(pub const $name: Errno = Errno($value);)*

            /// The symbol, such as `EAGAIN`; `None` if this table does not know the number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The number of a symbol such as `EAGAIN`.
            pub fn from_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno($value)),)*
                    "EWOULDBLOCK" => Some(Errno::EAGAIN),
                    "ENOTSUP" => Some(Errno::EOPNOTSUPP),
                    _ => None,
                }
            }

            /// What the number means, in a few words.
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EINTR = 4, "interrupted system call";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device or address";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "resource temporarily unavailable";
    ENOMEM = 12, "cannot allocate memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    EEXIST = 17, "file exists";
    ENODEV = 19, "no such device";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "inappropriate ioctl for device";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    ESPIPE = 29, "illegal seek";
    EPIPE = 32, "broken pipe";
    EDOM = 33, "argument out of domain";
    ERANGE = 34, "result out of range";
    ENOSYS = 38, "function not implemented";
    ELOOP = 40, "too many levels of symbolic links";
    ENOMSG = 42, "no message of the desired type";
    EPROTO = 71, "protocol error";
    EBADMSG = 74, "bad message";
    EOVERFLOW = 75, "value too large for the data type";
    ENOTSOCK = 88, "socket operation on a non-socket";
    EDESTADDRREQ = 89, "destination address required";
    EMSGSIZE = 90, "message too long";
    EPROTOTYPE = 91, "protocol wrong type for socket";
    ENOPROTOOPT = 92, "protocol not available";
    EPROTONOSUPPORT = 93, "protocol not supported";
    ESOCKTNOSUPPORT = 94, "socket type not supported";
    EOPNOTSUPP = 95, "operation not supported";
    EPFNOSUPPORT = 96, "protocol family not supported";
    EAFNOSUPPORT = 97, "address family not supported by protocol";
    EADDRINUSE = 98, "address already in use";
    EADDRNOTAVAIL = 99, "cannot assign requested address";
    ENETDOWN = 100, "network is down";
    ENETUNREACH = 101, "network is unreachable";
    ENETRESET = 102, "network dropped connection on reset";
    ECONNABORTED = 103, "software caused connection abort";
    ECONNRESET = 104, "connection reset by peer";
    ENOBUFS = 105, "no buffer space available";
    EISCONN = 106, "transport endpoint is already connected";
    ENOTCONN = 107, "transport endpoint is not connected";
    ESHUTDOWN = 108, "cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "connection timed out";
    ECONNREFUSED = 111, "connection refused";
    EHOSTDOWN = 112, "host is down";
    EHOSTUNREACH = 113, "no route to host";
    EALREADY = 114, "operation already in progress";
    EINPROGRESS = 115, "operation now in progress";
    ECANCELED = 125, "operation canceled";
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.text()),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
