//! The client side: one GET, one response.

use std::io::{self, ErrorKind, Read, Write};

use super::head::{HeadError, HeadReader};
use super::url::Url;
use super::{BODY_CHUNK, MAX_HEAD};

/// Why a page could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    /// The response could not be read.
    #[error("cannot read the response: {0}")]
    Head(#[from] HeadError),
    /// The connection failed while the body was read.
    #[error("the connection failed after {received} bytes of the body: {error}")]
    Receive {
        /// Body bytes that had arrived.
        received: u64,
        /// The error that the call returned.
        error: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// The request could not be sent.
    #[error("cannot send the request: {0}")]
    Send(io::Error),
    /// The status is not 200.
    #[error("the server answered {0}")]
    Status(String),
    /// Fewer bytes than were promised.
    #[error("the body is short: {received} of {expected} bytes")]
    Short {
        /// Bytes that arrived.
        received: u64,
        /// Bytes that Content-Length promised.
        expected: u64,
    },
    /// The body ended inside a chunk.
    #[error("the body is short: the connection ended inside a chunk after {0} bytes")]
    ShortChunk(u64),
}

/// Where a body ends.
enum Body {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Sends a GET for `url` and copies the body of the response to `output`. Calls `progress` with
/// the bytes so far and the bytes expected.
pub(crate) fn get<S: Read + Write>(
    mut stream: S,
    url: &Url,
    output: &mut dyn Write,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<u64, GetError> {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: plimsoll\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        url.target, url.host
    );
    stream.write_all(request.as_bytes()).map_err(GetError::Send)?;
    let mut reader = HeadReader::new(stream);
    let body = response_head(&mut reader)?;
    let mut copy = Copy { reader, output, progress, received: 0, buffer: vec![0; BODY_CHUNK] };
    match body {
        Body::Length(expected) => {
            let received = copy.bytes(Some(expected), Some(expected))?;
            if received < expected {
                return Err(GetError::Short { received, expected });
            }
        }
        Body::UntilClose => {
            copy.bytes(None, None)?;
        }
        Body::Chunked => copy.chunks()?,
    }
    copy.output.flush().map_err(GetError::Output)?;
    Ok(copy.received)
}

/// Reads heads up to the final one and returns how the body is framed.
fn response_head<S: Read>(reader: &mut HeadReader<S>) -> Result<Body, GetError> {
    let head = loop {
        let head = reader.head()?.ok_or(HeadError::Truncated)?;
        // Interim responses (RFC 9110, section 15.2) come before the real one.
        if !status(&head.start)?.starts_with('1') {
            break head;
        }
    };
    let status = status(&head.start)?;
    if !status.starts_with("200") {
        return Err(GetError::Status(status.to_owned()));
    }
    if head.lists("transfer-encoding", "chunked") {
        return Ok(Body::Chunked);
    }
    if head.get("transfer-encoding").is_some() {
        return Err(HeadError::Malformed("an unknown Transfer-Encoding").into());
    }
    Ok(head.content_length()?.map_or(Body::UntilClose, Body::Length))
}

/// Code and reason of a status line.
fn status(line: &str) -> Result<&str, HeadError> {
    line.strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..))
        .filter(|rest| rest.len() >= 3 && rest.bytes().take(3).all(|byte| byte.is_ascii_digit()))
        .ok_or(HeadError::Malformed("the answer does not begin with HTTP/1"))
}

/// Moves a body from the connection to the output.
struct Copy<'a, S> {
    reader: HeadReader<S>,
    output: &'a mut dyn Write,
    progress: &'a mut dyn FnMut(u64, Option<u64>),
    received: u64,
    buffer: Vec<u8>,
}

impl<S: Read> Copy<'_, S> {
    /// Copies `limit` bytes, or all that comes; fewer if the connection ends before.
    fn bytes(&mut self, limit: Option<u64>, expected: Option<u64>) -> Result<u64, GetError> {
        let mut left = limit.unwrap_or(u64::MAX);
        let before = self.received;
        while left > 0 {
            let want = left.min(self.buffer.len() as u64) as usize;
            let count = match self.reader.read(&mut self.buffer[..want]) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(GetError::Receive { received: self.received, error });
                }
            };
            self.output.write_all(&self.buffer[..count]).map_err(GetError::Output)?;
            left -= count as u64;
            self.received += count as u64;
            (self.progress)(self.received, expected);
        }
        Ok(self.received - before)
    }

    /// Copies chunks (RFC 9112, section 7.1) up to the last one and its trailer.
    fn chunks(&mut self) -> Result<(), GetError> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let valid = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let size = u64::from_str_radix(digits, 16)
                .ok()
                .filter(|_| valid)
                .ok_or(HeadError::Malformed("a bad chunk size"))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(());
            }
            if self.bytes(Some(size), None)? < size {
                return Err(GetError::ShortChunk(self.received));
            }
            if !self.line()?.is_empty() {
                return Err(HeadError::Malformed("a chunk that is longer than its size").into());
            }
        }
    }

    /// One line, without its end. Lines are short, and the reader keeps a buffer for heads only, so
    /// this reads byte by byte from what is kept.
    fn line(&mut self) -> Result<String, GetError> {
        let mut line = Vec::new();
        loop {
            let byte = self.reader.byte()?.ok_or(GetError::ShortChunk(self.received))?;
            match byte {
                b'\n' => break,
                _ if line.len() >= MAX_HEAD => return Err(HeadError::TooLarge.into()),
                byte => line.push(byte),
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let text = String::from_utf8(line);
        Ok(text.map_err(|_| HeadError::Malformed("a bad chunk header"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has its answer ready.
    struct Canned(io::Cursor<Vec<u8>>, usize);

    impl Read for Canned {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let count = buf.len().min(self.1);
            self.0.read(&mut buf[..count])
        }
    }

    impl Write for Canned {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn fetch(answer: &str, step: usize) -> (Result<u64, GetError>, String) {
        let url = "http://192.0.2.1/".parse().unwrap();
        let mut output = Vec::new();
        let stream = Canned(io::Cursor::new(answer.as_bytes().to_vec()), step);
        let result = get(stream, &url, &mut output, &mut |_, _| {});
        (result, String::from_utf8(output).unwrap())
    }

    #[test]
    fn framings() {
        for (answer, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, ignored", "hello"),
            ("HTTP/1.0 200 OK\r\n\r\nto the end", "to the end"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
                "hello world",
            ),
        ] {
            for step in [1, 3, 4096] {
                let (result, got) = fetch(answer, step);
                assert_eq!((result.unwrap(), got.as_str()), (body.len() as u64, body));
            }
        }
    }

    #[test]
    fn failures() {
        for (answer, message) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "the server answered 404 Not Found"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "short: 5 of 9 bytes"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", "inside a chunk"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a bad chunk size"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "longer than"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "does not begin with HTTP/1"),
            ("", "ended inside"),
        ] {
            let error = fetch(answer, 4096).0.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
