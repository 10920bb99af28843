//! The server side of one connection, as a machine that runs until its stream would block.
//!
//! A connection holds no body buffer of its own: bytes are read from the file into a scratch buffer
//! that all connections of a loop share, and what the stream did not take is read again later. The
//! page cache has it still.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::head::{HeadError, HeadReader};
use super::range::{self, Wanted};
use super::request::{self, Method, Request};
use super::{date, files};

/// Pipelined requests that are answered before the other connections get their turn.
const REQUESTS_PER_TURN: u64 = 16;

/// What a connection waits for after [`Connection::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Until the stream is readable.
    WantsRead,
    /// Until the stream is writable.
    WantsWrite,
    /// For its turn: others may go first.
    Yield,
    /// Nothing: all was sent and the connection may be closed.
    Done,
}

/// One connection of a client.
pub(crate) struct Connection<S> {
    reader: HeadReader<S>,
    response: Option<Response>,
    /// Requests answered.
    pub(crate) requests: u64,
}

/// A response on its way out.
struct Response {
    head: Vec<u8>,
    head_sent: usize,
    /// The file and the part that is still to be sent.
    body: Option<(File, u64, u64)>,
    keep_alive: bool,
}

impl<S: Read + Write> Connection<S> {
    /// A connection over `stream`.
    pub(crate) fn new(stream: S) -> Connection<S> {
        Connection { reader: HeadReader::new(stream), response: None, requests: 0 }
    }

    /// The stream below.
    pub(crate) fn stream(&mut self) -> &mut S {
        self.reader.inner()
    }

    /// Answers requests with files below `root` until the stream would block. `scratch` is where
    /// bodies pass through.
    pub(crate) fn run(&mut self, root: &Path, scratch: &mut [u8]) -> io::Result<Progress> {
        loop {
            if let Some(response) = &mut self.response {
                match response.send(self.reader.inner(), scratch)? {
                    Progress::Done => {
                        let keep_alive = response.keep_alive;
                        self.response = None;
                        self.requests += 1;
                        if !keep_alive {
                            return Ok(Progress::Done);
                        }
                        if self.requests.is_multiple_of(REQUESTS_PER_TURN) {
                            return Ok(Progress::Yield);
                        }
                    }
                    other => return Ok(other),
                }
            }
            self.response = Some(match self.reader.head() {
                Ok(None) => return Ok(Progress::Done),
                Ok(Some(head)) => match request::parse(&head) {
                    Ok(request) => answer(root, &request),
                    Err(error) => refuse(&error),
                },
                Err(HeadError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Progress::WantsRead);
                }
                Err(HeadError::Io(error)) => return Err(error),
                Err(HeadError::Truncated) => return Ok(Progress::Done),
                Err(error) => refuse(&error),
            });
        }
    }
}

impl Response {
    /// Sends on; `Done` when all of it was taken.
    fn send<S: Write>(&mut self, stream: &mut S, scratch: &mut [u8]) -> io::Result<Progress> {
        while self.head_sent < self.head.len() {
            match stream.write(&self.head[self.head_sent..]) {
                Ok(count) => self.head_sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Progress::WantsWrite);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let Some((file, at, end)) = &mut self.body else { return Ok(Progress::Done) };
        // A few chunks in one turn, then the next connection.
        for _ in 0..4 {
            if at == end {
                return Ok(Progress::Done);
            }
            let want = (*end - *at).min(scratch.len() as u64) as usize;
            let got = file.read_at(&mut scratch[..want], *at)?;
            if got == 0 {
                // The promised length cannot be kept; only closing tells the client.
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the file has become shorter",
                ));
            }
            match stream.write(&scratch[..got]) {
                Ok(count) => *at += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Progress::WantsWrite);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if at == end { Progress::Done } else { Progress::Yield })
    }
}

/// The response to a request.
fn answer(root: &Path, request: &Request) -> Response {
    let with_body = match request.method {
        Method::Get => true,
        Method::Head => false,
        Method::Other => {
            let fields = "Allow: GET, HEAD\r\n";
            return plain("405 Method Not Allowed", fields, request.keep_alive, true);
        }
    };
    let Some(found) = files::open(root, &request.path) else {
        return plain("404 Not Found", "", request.keep_alive, with_body);
    };
    let (status, start, end) = match range::wanted(request.range.as_deref(), found.size) {
        Wanted::Whole => ("200 OK", 0, found.size),
        Wanted::Part { start, end } => ("206 Partial Content", start, end),
        Wanted::Unsatisfiable => {
            let fields = format!("Content-Range: bytes */{}\r\n", found.size);
            return plain("416 Range Not Satisfiable", &fields, request.keep_alive, with_body);
        }
    };
    let mut fields = format!("Content-Type: {}\r\nAccept-Ranges: bytes\r\n", found.media_type);
    if status.starts_with("206") {
        fields += &format!("Content-Range: bytes {start}-{}/{}\r\n", end - 1, found.size);
    }
    if let Some(modified) = found.modified {
        fields += &format!("Last-Modified: {}\r\n", date::http_date(modified));
    }
    let body = with_body.then_some((found.file, start, end));
    let head = head(status, &fields, end - start, request.keep_alive);
    Response { head, head_sent: 0, body, keep_alive: request.keep_alive }
}

/// The response to something that was not a request.
fn refuse(error: &HeadError) -> Response {
    let status = match error {
        HeadError::TooLarge => "431 Request Header Fields Too Large",
        _ => "400 Bad Request",
    };
    plain(status, "", false, true)
}

/// A response whose body repeats its status.
fn plain(status: &str, fields: &str, keep_alive: bool, with_body: bool) -> Response {
    let body = format!("{status}\n");
    let fields = format!("Content-Type: text/plain\r\n{fields}");
    let mut head = head(status, &fields, body.len() as u64, keep_alive);
    if with_body {
        head.extend_from_slice(body.as_bytes());
    }
    Response { head, head_sent: 0, body: None, keep_alive }
}

fn head(status: &str, fields: &str, length: u64, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let date = date::http_date(std::time::SystemTime::now());
    format!(
        "HTTP/1.1 {status}\r\nServer: plimsoll\r\nDate: {date}\r\n{fields}\
         Content-Length: {length}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
