//! The server side of one connection, as a machine that runs until its stream would block.
//!
//! A connection holds no body buffer of its own: bytes are read from the file into a scratch buffer
//! that all connections of a loop share, and what the stream did not take is read again later. The
//! page cache has it still. Nor does it hold a file open (see [`files`]).
//!
//! It has no clock. Its caller decides how long a client may take for a stage
//! ([`Connection::stage`]).

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use super::files::{self, Files, Known};
use super::head::{HeadError, HeadReader};
use super::range::{self, Wanted};
use super::request::{self, Method, Request};

/// Pipelined requests that are answered before the other connections get their turn.
const REQUESTS_PER_TURN: u64 = 16;

/// Bytes that are read and thrown away of a client whose request was not understood.
const LINGER_BYTES: usize = 256 * 1024;

/// The transport of a connection.
pub(crate) trait Stream: Read + Write {
    /// Ends this side's direction after all written data is sent; the peer may still send.
    fn end(&mut self) -> io::Result<()>;
}

/// The event that a connection waits for after [`Connection::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Until the stream is readable.
    WantsRead,
    /// Until the stream is writable.
    WantsWrite,
    /// For a free descriptor, of which there is no event: run it again in a moment.
    WantsFile,
    /// For its turn: others may go first.
    Yield,
    /// Nothing: all was sent and the connection may be closed.
    Done,
}

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is idle: its last request was answered, and no other has begun.
    Idle,
    /// It sends a request.
    Request,
    /// It takes a response.
    Response,
    /// It got an error response, and the bytes that it still sends are thrown away. If the
    /// connection were closed now, the reset that answers these bytes would make the client's stack
    /// discard the response.
    Lingering,
}

/// One connection of a client.
pub(crate) struct Connection<S> {
    reader: HeadReader<S>,
    state: State,
    /// Requests answered.
    pub(crate) requests: u64,
}

enum State {
    Reading,
    Answering(Response),
    /// Bytes that may still be thrown away.
    Lingering(usize),
}

/// A response on its way out.
struct Response {
    head: Vec<u8>,
    head_sent: usize,
    body: Option<Body>,
    after: After,
}

/// The step after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    NextRequest,
    Close,
    /// The client may not have sent everything yet.
    Linger,
}

/// The part of a file that is still to be sent.
struct Body {
    file: Known,
    at: u64,
    end: u64,
}

impl<S: Stream> Connection<S> {
    /// A connection over `stream`.
    pub(crate) fn new(stream: S) -> Connection<S> {
        Connection { reader: HeadReader::new(stream), state: State::Reading, requests: 0 }
    }

    /// A connection over `stream` that is refused with 503.
    pub(crate) fn refused(stream: S) -> Connection<S> {
        let mut connection = Connection::new(stream);
        connection.refuse("503 Service Unavailable", "Retry-After: 10\r\n");
        connection
    }

    /// Answers `status`, whatever the client has sent, and ends the connection.
    pub(crate) fn refuse(&mut self, status: &str, fields: &str) {
        self.state = State::Answering(plain(status, fields, After::Linger, true));
    }

    /// The stream below.
    pub(crate) fn stream(&mut self) -> &mut S {
        self.reader.inner()
    }

    /// The state of the client.
    pub(crate) fn stage(&self) -> Stage {
        match &self.state {
            State::Reading if self.requests > 0 && self.reader.is_empty() => Stage::Idle,
            State::Reading => Stage::Request,
            State::Answering(_) => Stage::Response,
            State::Lingering(_) => Stage::Lingering,
        }
    }

    /// Whether the client has begun to send a request, and not ended it.
    pub(crate) fn has_begun(&self) -> bool {
        !self.reader.is_empty()
    }

    /// Releases the file of a response that will not be sent to its end.
    pub(crate) fn release(&mut self, files: &mut Files) {
        if let State::Answering(Response { body: Some(body), .. }) = &self.state {
            files.release(&body.file);
        }
    }

    /// Answers requests with files below `root` until the stream would block. `scratch` is where
    /// bodies pass through.
    pub(crate) fn run(
        &mut self,
        root: &Path,
        files: &mut Files,
        scratch: &mut [u8],
    ) -> io::Result<Progress> {
        loop {
            match &mut self.state {
                State::Reading => match self.next_response(root, files)? {
                    Ok(response) => self.state = State::Answering(response),
                    Err(progress) => return Ok(progress),
                },
                State::Answering(response) => {
                    match response.send(self.reader.inner(), files, scratch)? {
                        Progress::Done => {}
                        other => return Ok(other),
                    }
                    let after = response.after;
                    self.release(files);
                    self.requests += 1;
                    match after {
                        After::NextRequest => self.state = State::Reading,
                        After::Close if !self.has_unread(scratch) => return Ok(Progress::Done),
                        After::Close | After::Linger => {
                            self.stream().end()?;
                            self.state = State::Lingering(LINGER_BYTES);
                        }
                    }
                    if self.requests.is_multiple_of(REQUESTS_PER_TURN) {
                        return Ok(Progress::Yield);
                    }
                }
                State::Lingering(left) => match self.reader.inner().read(scratch) {
                    Ok(count) if count > 0 && count < *left => *left -= count,
                    Ok(_) => return Ok(Progress::Done),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Progress::WantsRead);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Whether the client has sent more than its last request. Closing now would answer that with
    /// a reset.
    fn has_unread(&mut self, scratch: &mut [u8]) -> bool {
        !self.reader.is_empty() || self.reader.inner().read(scratch).is_ok_and(|count| count > 0)
    }

    /// The response to the next request, or what to wait for.
    fn next_response(
        &mut self,
        root: &Path,
        files: &mut Files,
    ) -> io::Result<Result<Response, Progress>> {
        Ok(match self.reader.head() {
            Ok(None) | Err(HeadError::Truncated) => Err(Progress::Done),
            Ok(Some(head)) => Ok(match request::parse(&head) {
                Ok(request) => answer(root, files, &request),
                Err(error) => refusal(&error),
            }),
            Err(HeadError::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                Err(Progress::WantsRead)
            }
            Err(HeadError::Io(error)) => return Err(error),
            Err(error) => Ok(refusal(&error)),
        })
    }
}

impl Response {
    /// Sends on; `Done` when all of it was taken.
    fn send<S: Write>(
        &mut self,
        stream: &mut S,
        files: &mut Files,
        scratch: &mut [u8],
    ) -> io::Result<Progress> {
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
        let Some(Body { file, at, end }) = &mut self.body else { return Ok(Progress::Done) };
        // A few chunks in one turn, then the next connection.
        for _ in 0..4 {
            if at == end {
                return Ok(Progress::Done);
            }
            let want = (*end - *at).min(scratch.len() as u64) as usize;
            let got = match files.read_at(file, &mut scratch[..want], *at) {
                Ok(got) => got,
                Err(error) if files::is_short(&error) => return Ok(Progress::WantsFile),
                Err(error) => return Err(error),
            };
            if got == 0 {
                // The promised length cannot be kept; only closing the connection informs the
                // client.
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
fn answer(root: &Path, files: &mut Files, request: &Request) -> Response {
    let after = match request {
        Request { has_body: true, .. } => After::Linger,
        Request { keep_alive: true, .. } => After::NextRequest,
        _ => After::Close,
    };
    let with_body = match request.method {
        Method::Get => true,
        Method::Head => false,
        Method::Other => {
            return plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n", after, true);
        }
    };
    let found = match files.find(root, &request.path) {
        Ok(Some(found)) => found,
        Ok(None) => return plain("404 Not Found", "", after, with_body),
        Err(error) if files::is_short(&error) => {
            return plain(
                "503 Service Unavailable",
                "Retry-After: 1\r\n",
                After::Linger,
                with_body,
            );
        }
        Err(_) => return plain("500 Internal Server Error", "", after, with_body),
    };
    let (status, start, end) = match range::wanted(request.range.as_deref(), found.size) {
        Wanted::Whole => ("200 OK", 0, found.size),
        Wanted::Part { start, end } => ("206 Partial Content", start, end),
        Wanted::Unsatisfiable => {
            files.release(&found.file);
            let fields = format!("Content-Range: bytes */{}\r\n", found.size);
            return plain("416 Range Not Satisfiable", &fields, after, with_body);
        }
    };
    let mut fields = format!("Content-Type: {}\r\nAccept-Ranges: bytes\r\n", found.media_type);
    if status.starts_with("206") {
        fields += &format!("Content-Range: bytes {start}-{}/{}\r\n", end - 1, found.size);
    }
    if let Some(modified) = found.modified {
        fields += &format!("Last-Modified: {}\r\n", httpdate::fmt_http_date(modified));
    }
    // Without a body there is nothing left to send; the file is released with the response.
    let at = if with_body { start } else { end };
    let head = head(status, &fields, end - start, after);
    Response { head, head_sent: 0, body: Some(Body { file: found.file, at, end }), after }
}

/// The response to something that was not a request.
fn refusal(error: &HeadError) -> Response {
    let status = match error {
        HeadError::TooLarge => "431 Request Header Fields Too Large",
        _ => "400 Bad Request",
    };
    plain(status, "", After::Linger, true)
}

/// A response whose body repeats its status.
fn plain(status: &str, fields: &str, after: After, with_body: bool) -> Response {
    let body = format!("{status}\n");
    let fields = format!("Content-Type: text/plain\r\n{fields}");
    let mut head = head(status, &fields, body.len() as u64, after);
    if with_body {
        head.extend_from_slice(body.as_bytes());
    }
    Response { head, head_sent: 0, body: None, after }
}

fn head(status: &str, fields: &str, length: u64, after: After) -> Vec<u8> {
    let connection = if after == After::NextRequest { "keep-alive" } else { "close" };
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    format!(
        "HTTP/1.1 {status}\r\nServer: plimsoll\r\nDate: {date}\r\n{fields}\
         Content-Length: {length}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
