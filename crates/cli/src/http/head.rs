//! Reads header sections: a start line, fields, an empty line.

use std::io::{self, ErrorKind, Read};

use super::{MAX_FIELDS, MAX_HEAD};

/// Why a head could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The connection ended inside a head.
    #[error("the connection ended inside a header section")]
    Truncated,
    /// More than [`MAX_HEAD`] bytes or [`MAX_FIELDS`] fields.
    #[error("the header section is too long")]
    TooLarge,
    /// Not HTTP.
    #[error("malformed HTTP: {0}")]
    Malformed(&'static str),
}

/// A header section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The request line or the status line.
    pub start: String,
    /// Field names, in lower case, and values.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The value of the first field called `name` (in lower case).
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether the comma-separated field `name` lists `token`.
    pub(crate) fn lists(&self, name: &str, token: &str) -> bool {
        self.fields
            .iter()
            .filter(|(field, _)| field == name)
            .flat_map(|(_, value)| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    }

    /// The value of Content-Length, if there is one.
    pub(crate) fn content_length(&self) -> Result<Option<u64>, HeadError> {
        let mut found = None;
        for (_, value) in self.fields.iter().filter(|(field, _)| field == "content-length") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length: u64 = value
                .parse()
                .ok()
                .filter(|_| digits)
                .ok_or(HeadError::Malformed("bad Content-Length"))?;
            if found.is_some_and(|earlier| earlier != length) {
                return Err(HeadError::Malformed("two different Content-Length fields"));
            }
            found = Some(length);
        }
        Ok(found)
    }
}

/// A reader that keeps what arrived behind a head, for the body or the next request.
pub(crate) struct HeadReader<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
}

impl<R: Read> HeadReader<R> {
    /// Reads from `inner`.
    pub(crate) fn new(inner: R) -> HeadReader<R> {
        HeadReader { inner, buffer: Vec::new(), start: 0 }
    }

    /// Reads the next head; `None` if the connection ended before one began.
    pub(crate) fn head(&mut self) -> Result<Option<Head>, HeadError> {
        let mut scanned = self.start;
        loop {
            if let Some(end) = find_end(&self.buffer[self.start..], scanned - self.start) {
                let section = &self.buffer[self.start..self.start + end];
                let head = parse_section(section);
                self.start += end;
                return head.map(Some);
            }
            scanned = self.buffer.len();
            if self.buffer.len() - self.start >= MAX_HEAD {
                return Err(HeadError::TooLarge);
            }
            let base = self.start;
            if self.fill()? == 0 {
                let pending = &self.buffer[self.start..];
                let blank = pending.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
                return if blank { Ok(None) } else { Err(HeadError::Truncated) };
            }
            scanned -= base - self.start;
        }
    }

    /// The next byte, through the buffer; `None` at the end.
    pub(crate) fn byte(&mut self) -> Result<Option<u8>, HeadError> {
        if self.start == self.buffer.len() && self.fill()? == 0 {
            return Ok(None);
        }
        self.start += 1;
        Ok(Some(self.buffer[self.start - 1]))
    }

    /// Moves what is kept to the front and reads some more behind it.
    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + 4096, 0);
        let result = loop {
            match self.inner.read(&mut self.buffer[len..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(len + *result.as_ref().unwrap_or(&0));
        result
    }

    /// Whether nothing of a head has arrived. Empty lines before it are nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer[self.start..].iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// The connection itself.
    pub(crate) fn inner(&mut self) -> &mut R {
        &mut self.inner
    }
}

impl<R: Read> Read for HeadReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let kept = &self.buffer[self.start..];
        if kept.is_empty() {
            return self.inner.read(buf);
        }
        let count = kept.len().min(buf.len());
        buf[..count].copy_from_slice(&kept[..count]);
        self.start += count;
        Ok(count)
    }
}

/// Where the empty line ends, if `data` holds one; bytes before `scanned` were looked at already.
fn find_end(data: &[u8], scanned: usize) -> Option<usize> {
    // Empty lines before the start line do not end a head (RFC 9112, section 2.2).
    let lead = data.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let from = scanned.saturating_sub(3).max(lead);
    let mut at = from;
    while let Some(step) = data[at..].iter().position(|&byte| byte == b'\n') {
        let line_end = at + step + 1;
        match &data[line_end..] {
            [b'\n', ..] => return Some(line_end + 1),
            [b'\r', b'\n', ..] => return Some(line_end + 2),
            _ => at = line_end,
        }
    }
    None
}

fn parse_section(section: &[u8]) -> Result<Head, HeadError> {
    if section.len() > MAX_HEAD {
        return Err(HeadError::TooLarge);
    }
    let text = str::from_utf8(section).map_err(|_| HeadError::Malformed("it is not text"))?;
    if text.bytes().any(|byte| byte == 0) {
        return Err(HeadError::Malformed("a NUL byte"));
    }
    let mut lines = text
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .skip_while(|line| line.is_empty());
    let start = lines.next().ok_or(HeadError::Malformed("no start line"))?.to_owned();
    let mut fields = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        if fields.len() == MAX_FIELDS {
            return Err(HeadError::TooLarge);
        }
        fields.push(parse_field(line)?);
    }
    Ok(Head { start, fields })
}

fn parse_field(line: &str) -> Result<(String, String), HeadError> {
    let (name, value) =
        line.split_once(':').ok_or(HeadError::Malformed("a field without a colon"))?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(HeadError::Malformed("a bad field name"));
    }
    let value = value.trim_matches([' ', '\t']);
    if value.contains('\r') {
        return Err(HeadError::Malformed("a carriage return in a field"));
    }
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out its data `step` bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buf.len());
            buf[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn any_fragmentation_gives_the_same() {
        let text = b"\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Y:  b c \t\r\n\r\nPOST /x HTTP/1.1\n\nbody";
        for step in 1..text.len() + 1 {
            let mut reader = HeadReader::new(Drip(text, step));
            let first = reader.head().unwrap().unwrap();
            assert_eq!(first.start, "GET / HTTP/1.1");
            assert_eq!(first.get("host"), Some("a"));
            assert_eq!(first.get("x-y"), Some("b c"));
            assert_eq!(reader.head().unwrap().unwrap().start, "POST /x HTTP/1.1");
            let mut rest = String::new();
            reader.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "body");
        }
    }

    #[test]
    fn ends() {
        assert!(HeadReader::new(&b""[..]).head().unwrap().is_none());
        assert!(HeadReader::new(&b"\r\n"[..]).head().unwrap().is_none());
        let cut = HeadReader::new(&b"GET / HTTP/1.1\r\nHost"[..]).head();
        assert!(matches!(cut, Err(HeadError::Truncated)));
    }

    #[test]
    fn limits() {
        let endless = vec![b'a'; MAX_HEAD * 2];
        assert!(matches!(HeadReader::new(&endless[..]).head(), Err(HeadError::TooLarge)));
        let mut many = String::from("GET / HTTP/1.1\r\n");
        (0..=MAX_FIELDS).for_each(|n| many += &format!("x{n}: y\r\n"));
        many += "\r\n";
        assert!(matches!(HeadReader::new(many.as_bytes()).head(), Err(HeadError::TooLarge)));
    }

    #[test]
    fn malformed() {
        for bad in [
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nbad name: x\r\n\r\n",
            "GET / HTTP/1.1\r\n folded: x\r\n\r\n",
            "GET / HTTP/1.1\r\na: x\0\r\n\r\n",
            "GET / HTTP/1.1\r\na: x\ry\r\n\r\n",
        ] {
            let result = HeadReader::new(bad.as_bytes()).head();
            assert!(matches!(result, Err(HeadError::Malformed(_))), "{bad:?}");
        }
    }

    #[test]
    fn lengths() {
        let head = |fields: &str| {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            HeadReader::new(text.as_bytes()).head().unwrap().unwrap()
        };
        assert_eq!(head("content-length: 12\r\n").content_length().unwrap(), Some(12));
        assert_eq!(head("").content_length().unwrap(), None);
        assert!(head("content-length: +12\r\n").content_length().is_err());
        assert!(head("content-length: 1\r\ncontent-length: 2\r\n").content_length().is_err());
        assert!(head("connection: a, Close\r\n").lists("connection", "close"));
    }
}
