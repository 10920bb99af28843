//! The system's error numbers, from which [`std::io::Error`] makes kinds and texts.

#[cfg(unix)]
pub(crate) use libc::*;

/// Only Linux has its own error for an isolated host.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) const ENONET: i32 = EHOSTUNREACH;

#[cfg(not(unix))]
pub(crate) use self::winsock::*;

/// Winsock's numbers, and the system's number for a closed pipe. (Microsoft, "Windows Sockets Error
/// Codes" and "System Error Codes".)
#[cfg(not(unix))]
#[allow(dead_code, reason = "those of sockets are all here")]
mod winsock {
    pub(crate) const EPIPE: i32 = 109;
    pub(crate) const EACCES: i32 = 10013;
    pub(crate) const EINVAL: i32 = 10022;
    pub(crate) const EAGAIN: i32 = 10035;
    pub(crate) const EINPROGRESS: i32 = 10036;
    pub(crate) const EDESTADDRREQ: i32 = 10039;
    pub(crate) const EMSGSIZE: i32 = 10040;
    pub(crate) const ENOPROTOOPT: i32 = 10042;
    /// There is no number for a malformed header; this is "protocol not supported".
    pub(crate) const EPROTO: i32 = 10043;
    pub(crate) const EOPNOTSUPP: i32 = 10045;
    pub(crate) const EADDRINUSE: i32 = 10048;
    pub(crate) const EADDRNOTAVAIL: i32 = 10049;
    pub(crate) const ENETDOWN: i32 = 10050;
    pub(crate) const ENETUNREACH: i32 = 10051;
    pub(crate) const ECONNABORTED: i32 = 10053;
    pub(crate) const ECONNRESET: i32 = 10054;
    pub(crate) const ENOBUFS: i32 = 10055;
    pub(crate) const ENOTCONN: i32 = 10057;
    pub(crate) const ETIMEDOUT: i32 = 10060;
    pub(crate) const ECONNREFUSED: i32 = 10061;
    pub(crate) const EHOSTDOWN: i32 = 10064;
    pub(crate) const EHOSTUNREACH: i32 = 10065;
    /// Only Linux distinguishes that the host is isolated.
    pub(crate) const ENONET: i32 = EHOSTUNREACH;
}
