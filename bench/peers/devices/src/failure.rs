//! What went wrong, by the name of the error.

use std::convert::Infallible;
use std::fmt::{Display, Formatter, Result as Written};
use std::io;

/// A call that has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    error: io::Error,
}

/// What answers until it is killed.
pub(crate) type Endless = Result<Infallible, Failure>;

/// Says which call has failed.
pub(crate) trait Named<T> {
    fn named(self, what: &str) -> Result<T, Failure>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure { what: what.to_owned(), error })
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        write!(f, "{}: ", self.what)?;
        match self.error.raw_os_error().and_then(name) {
            Some(name) => f.write_str(name),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

/// The names of what the calls of this program are documented to fail with.
fn name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EACCES => "EACCES",
        libc::EAGAIN => "EAGAIN",
        libc::EBADF => "EBADF",
        libc::EBADFD => "EBADFD",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EFAULT => "EFAULT",
        libc::EINVAL => "EINVAL",
        libc::EIO => "EIO",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENODEV => "ENODEV",
        libc::ENOENT => "ENOENT",
        libc::ENOMEM => "ENOMEM",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::ENXIO => "ENXIO",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPERM => "EPERM",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::ERANGE => "ERANGE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_by_name() {
        let said = |errno| {
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(errno));
            failed.named("IFF_NAPI").unwrap_err().to_string()
        };
        assert_eq!(said(libc::EINVAL), "IFF_NAPI: EINVAL");
        assert!(said(libc::EXDEV).contains("os error"), "{}", said(libc::EXDEV));
    }
}
