//! Requests, as the server reads them.

use super::head::{Head, HeadError};

/// The methods that the server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// Anything else: status 405.
    Other,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The method.
    pub method: Method,
    /// The decoded path, without the query.
    pub path: String,
    /// The Range field.
    pub range: Option<String>,
    /// Whether the connection stays open after the response.
    pub keep_alive: bool,
    /// Whether a body follows, which is not read.
    pub has_body: bool,
}

/// Understands a head as a request.
pub(crate) fn parse(head: &Head) -> Result<Request, HeadError> {
    let mut words = head.start.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::Malformed("the request line is not METHOD PATH VERSION"));
    };
    let http11 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(HeadError::Malformed("the version is not HTTP/1.1")),
    };
    if http11 && head.fields.iter().filter(|(name, _)| name == "host").count() != 1 {
        return Err(HeadError::Malformed("HTTP/1.1 needs exactly one Host field"));
    }
    let has_body = head.get("transfer-encoding").is_some()
        || head.content_length()?.is_some_and(|length| length > 0);
    let keep_alive = if http11 {
        !head.lists("connection", "close")
    } else {
        head.lists("connection", "keep-alive")
    };
    Ok(Request {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        path: decode_path(target)?,
        range: head.get("range").map(str::to_owned),
        // A body is not read, so nothing behind this request can be understood.
        keep_alive: keep_alive && !has_body,
        has_body,
    })
}

/// The path of a request target, with percent signs decoded.
fn decode_path(target: &str) -> Result<String, HeadError> {
    const BAD: HeadError = HeadError::Malformed("a bad request target");
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    };
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(BAD);
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(BAD) };
        bytes.push((high * 16 + low) as u8);
    }
    let path = String::from_utf8(bytes).map_err(|_| BAD)?;
    if path.contains('\0') { Err(BAD) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::super::head::HeadReader;
    use super::*;

    fn request(text: &str) -> Result<Request, HeadError> {
        parse(&HeadReader::new(text.as_bytes()).head().unwrap().unwrap())
    }

    #[test]
    fn good() {
        let got = request("GET /a%20b/c?d HTTP/1.1\r\nHost: x\r\nRange: bytes=1-\r\n\r\n").unwrap();
        assert_eq!(got.path, "/a b/c");
        assert_eq!(got.range.as_deref(), Some("bytes=1-"));
        assert!(got.keep_alive && got.method == Method::Get);
        let got = request("HEAD / HTTP/1.0\r\n\r\n").unwrap();
        assert!(!got.keep_alive && got.method == Method::Head);
        let got = request("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert!(!got.keep_alive);
        let got = request("GET http://h:1/z HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(got.path, "/z");
        let got = request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n").unwrap();
        assert!(!got.keep_alive && got.method == Method::Other);
    }

    #[test]
    fn bad() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n",
            "GARBAGE\r\n\r\n",
        ] {
            assert!(request(text).is_err(), "{text:?}");
        }
    }
}
