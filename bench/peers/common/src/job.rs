//! The protocol: what a client asks for in the first bytes of a connection.

use std::io;
use std::time::Duration;

use super::{SCRATCH, wrong};

/// Bytes with which a connection begins: what to do, and two numbers, the most significant byte
/// first.
pub const HEADER: usize = 9;

/// The last byte that a client sends to a server that discards; the others are not this one.
pub const MARK: u8 = 1;

/// The longest that a server sends, however long it is asked to.
const LONGEST: Duration = Duration::from_secs(60);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// `d`: the server reads until the client ends its direction, and then closes. When what it
    /// reads ends with the byte [`MARK`], it sends one byte. So the client knows that all has been
    /// read, also of a stack that has trouble with the end of a stream.
    Discard,
    /// `s`, SIZE, MILLISECONDS: the server writes blocks of SIZE bytes for so long, ends its
    /// direction, and closes when the client has.
    Send {
        /// Bytes of one write.
        size: usize,
        /// How long it writes.
        time: Duration,
    },
    /// `a`, SIZE, 0: the server answers every SIZE bytes with as many, until the client ends its
    /// direction, and then closes.
    Answer {
        /// Bytes of a request, and of a response.
        size: usize,
    },
}

impl Job {
    /// What a header asks for.
    ///
    /// # Errors
    /// If it is of another protocol, or wants blocks that are empty or larger than [`SCRATCH`].
    pub fn parse(header: &[u8; HEADER]) -> io::Result<Job> {
        let number = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let size = number(1) as usize;
        if header[0] != b'd' && !(1..=SCRATCH).contains(&size) {
            return Err(wrong(format!("blocks of {size} bytes: 1 to {SCRATCH} are possible")));
        }
        match header[0] {
            b'd' => Ok(Job::Discard),
            b's' => {
                let time = Duration::from_millis(number(5).into()).min(LONGEST);
                Ok(Job::Send { size, time })
            }
            b'a' => Ok(Job::Answer { size }),
            other => Err(wrong(format!("the client asks for job {other}, which nobody knows"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let discard = *b"d\0\0\0\0\0\0\0\0";
        assert_eq!(Job::parse(&discard).unwrap(), Job::Discard);
        let send = *b"s\0\0\0\x80\0\0\x03\xe8";
        let second = Duration::from_secs(1);
        assert_eq!(Job::parse(&send).unwrap(), Job::Send { size: 128, time: second });
        let forever = *b"s\0\0\0\x80\xff\xff\xff\xff";
        assert_eq!(Job::parse(&forever).unwrap(), Job::Send { size: 128, time: LONGEST });
        assert_eq!(Job::parse(b"a\0\0\x10\0\0\0\0\0").unwrap(), Job::Answer { size: 4096 });
        for bad in [b"a\0\0\0\0\0\0\0\0", b"s\0\x10\0\0\0\0\0\0", b"GET / HTT"] {
            assert!(Job::parse(bad).is_err(), "{bad:?}");
        }
    }
}
