//! Whole exchanges with the server over a stream made of two byte strings.

use super::*;

/// Gives out requests and takes responses, at most `step` bytes at a time, and blocks every other
/// time it is asked.
struct Fake {
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
    step: usize,
    block: bool,
    ended: bool,
}

impl Stream for Fake {
    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        Ok(())
    }
}

impl Fake {
    fn turn(&mut self) -> io::Result<()> {
        self.block = !self.block;
        if self.block { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

impl Read for Fake {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.turn()?;
        let rest = &self.input[self.read..];
        let count = rest.len().min(buf.len()).min(self.step);
        buf[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        Ok(count)
    }
}

impl Write for Fake {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.turn()?;
        let count = buf.len().min(self.step);
        self.output.extend_from_slice(&buf[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exchange(root: &Path, requests: &str, step: usize) -> String {
    let input = requests.as_bytes().to_vec();
    let fake = Fake { input, read: 0, output: Vec::new(), step, block: false, ended: false };
    let (mut connection, mut files) = (Connection::new(fake), Files::new(files::MOST_OPEN));
    let mut scratch = vec![0; 64];
    while connection.run(root, &mut files, &mut scratch).unwrap() != Progress::Done {}
    assert_eq!(files.open_count(), 0);
    String::from_utf8(std::mem::take(&mut connection.stream().output)).unwrap()
}

fn site() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("a.txt"), "0123456789".repeat(100)).unwrap();
    (dir, root)
}

/// Removes the fields that change from run to run.
fn stable(response: &str) -> String {
    response
        .split_inclusive("\r\n")
        .filter(|line| !line.starts_with("Date:") && !line.starts_with("Last-Modified:"))
        .collect()
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let (_dir, root) = site();
    let requests = "GET /a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=10-14\r\n\r\n\
                    HEAD /a.txt HTTP/1.1\r\nHost: x\r\n\r\n\
                    GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n\
                    GET /a.txt HTTP/1.1\r\nHost: never answered\r\n\r\n";
    let expected = "HTTP/1.1 206 Partial Content\r\nServer: plimsoll\r\n\
         Content-Type: text/plain; charset=utf-8\r\nAccept-Ranges: bytes\r\n\
         Content-Range: bytes 10-14/1000\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n\
         01234HTTP/1.1 200 OK\r\nServer: plimsoll\r\n\
         Content-Type: text/plain; charset=utf-8\r\nAccept-Ranges: bytes\r\n\
         Content-Length: 1000\r\nConnection: keep-alive\r\n\r\n\
         HTTP/1.1 404 Not Found\r\nServer: plimsoll\r\nContent-Type: text/plain\r\n\
         Content-Length: 14\r\nConnection: close\r\n\r\n404 Not Found\n";
    for step in [1, 7, 4096] {
        assert_eq!(stable(&exchange(&root, requests, step)), expected);
    }
}

#[test]
fn whole_file_in_many_pieces() {
    let (_dir, root) = site();
    let response = exchange(&root, "GET /a.txt HTTP/1.0\r\n\r\n", 33);
    assert!(response.ends_with(&"0123456789".repeat(100)));
    assert!(response.contains("Content-Length: 1000\r\nConnection: close\r\n\r\n0123"));
}

#[test]
fn refusals() {
    let (_dir, root) = site();
    for (request, status) in [
        ("GET /a.txt HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        ("DELETE /a.txt HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed"),
        ("GET /../a.txt HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
        ("GET /%2e%2e/a.txt HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
        ("GET /a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=1000-\r\n\r\n", "416 Range"),
    ] {
        let response = exchange(&root, request, 4096);
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {response}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(20_000));
    assert!(exchange(&root, &long, 4096).starts_with("HTTP/1.1 431"));
}

/// Never blocks.
struct Eager {
    input: io::Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Eager {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.input.read(buf)
    }
}

impl Stream for Eager {
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Eager {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.output.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn pipelined_requests_leave_others_their_turn() {
    let (_dir, root) = site();
    let requests = "HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(40);
    let eager = Eager { input: io::Cursor::new(requests.into_bytes()), output: Vec::new() };
    let (mut connection, mut files) = (Connection::new(eager), Files::new(files::MOST_OPEN));
    let mut scratch = vec![0; 64];
    let mut run = |connection: &mut Connection<Eager>| {
        connection.run(&root, &mut files, &mut scratch).unwrap()
    };
    for answered in [16, 32] {
        assert_eq!(run(&mut connection), Progress::Yield);
        assert_eq!(connection.requests, answered);
    }
    assert_eq!(run(&mut connection), Progress::Done);
    assert_eq!(connection.requests, 40);
}

/// A client that sends more than a head may have is not cut off: it gets its answer and the end of
/// the stream, and only then is what it still sends thrown away.
#[test]
fn what_follows_a_refused_head_is_read() {
    let (_dir, root) = site();
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(100_000));
    let input = long.into_bytes();
    let fake = Fake { input, read: 0, output: Vec::new(), step: 4096, block: false, ended: false };
    let (mut connection, mut files) = (Connection::new(fake), Files::new(files::MOST_OPEN));
    let mut scratch = vec![0; 4096];
    while connection.stage() != Stage::Lingering {
        let progress = connection.run(&root, &mut files, &mut scratch).unwrap();
        assert_ne!(progress, Progress::Done);
    }
    let fake = connection.stream();
    assert!(fake.ended && fake.read < fake.input.len());
    assert!(fake.output.starts_with(b"HTTP/1.1 431"));
    while connection.run(&root, &mut files, &mut scratch).unwrap() != Progress::Done {}
    let fake = connection.stream();
    assert_eq!(fake.read, fake.input.len());
}

/// Bytes that a client sends behind its last request do not cost it the answer.
#[test]
fn what_follows_the_last_request_is_read() {
    let (_dir, root) = site();
    let last = "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for (more, lingers) in [(String::new(), false), ("x".into(), true), ("x".repeat(9000), true)] {
        let input = format!("{last}{more}").into_bytes();
        let (output, block, ended) = (Vec::new(), false, false);
        let fake = Fake { input, read: 0, output, step: 4096, block, ended };
        let (mut connection, mut files) = (Connection::new(fake), Files::new(files::MOST_OPEN));
        let mut scratch = vec![0; 4096];
        while connection.run(&root, &mut files, &mut scratch).unwrap() != Progress::Done {}
        assert_eq!(connection.requests, 1);
        let fake = connection.stream();
        assert!(fake.output.starts_with(b"HTTP/1.1 200"));
        assert_eq!((fake.ended, fake.read), (lingers, fake.input.len()), "{} more", more.len());
    }
}

#[test]
fn without_descriptors_a_file_is_not_absent() {
    let (_dir, root) = site();
    let requests = "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
    let input = requests.into_bytes();
    let fake = Fake { input, read: 0, output: Vec::new(), step: 4096, block: false, ended: false };
    let mut connection = Connection::new(fake);
    let mut files = Files::with_opener(files::MOST_OPEN, |_| Err(rustix::io::Errno::MFILE.into()));
    let mut scratch = vec![0; 4096];
    while connection.run(&root, &mut files, &mut scratch).unwrap() != Progress::Done {}
    let response = String::from_utf8(connection.stream().output.clone()).unwrap();
    assert!(response.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{response}");
    assert!(response.contains("Connection: close\r\n"), "{response}");
    assert_eq!(connection.requests, 1, "the connection ends with it");
}

#[test]
fn stages() {
    let (_dir, root) = site();
    let input = b"\r\nGET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nGET".to_vec();
    let fake = Fake { input, read: 0, output: Vec::new(), step: 1, block: false, ended: false };
    let (mut connection, mut files) = (Connection::new(fake), Files::new(files::MOST_OPEN));
    let mut scratch = vec![0; 4096];
    let mut seen = vec![(connection.stage(), connection.has_begun())];
    loop {
        let progress = connection.run(&root, &mut files, &mut scratch).unwrap();
        let now = (connection.stage(), connection.has_begun());
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        if progress == Progress::Done {
            break;
        }
    }
    let expected = [
        (Stage::Request, false),
        (Stage::Request, true),
        (Stage::Response, false),
        (Stage::Idle, false),
        (Stage::Request, true),
    ];
    assert_eq!(seen, expected);
}
