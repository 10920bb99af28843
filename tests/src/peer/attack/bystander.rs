//! Downloads, and asks for a small file anew every 100 ms.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::super::options::Options;
use super::super::workload::say;

/// Time between two requests, and after which one counts as failed.
const EVERY: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(10);

/// `bystander HTTP --bulk PORT --limit MB --seconds S`: the port sends without end, the address
/// serves a file `small`.
pub(crate) fn bystander(options: &Options) -> Result<()> {
    let http = options.address();
    let bulk = SocketAddr::new(http.ip(), options.get("bulk", 5003)?);
    let limit: f64 = options.get("limit", 0.0)?;
    let time = options.seconds("seconds", 3.0)?;
    let start = Instant::now();
    let ((bytes, took), asked) = thread::scope(|scope| {
        let download = scope.spawn(|| download(bulk, limit * 1e6, start, time));
        let asked = ask_often(http, start, time);
        (download.join().expect("the download does not panic"), asked)
    });
    say(&json!({
        "bytes_per_s": bytes as f64 / took.as_secs_f64(),
        "asked": asked.count,
        "answered": asked.answered,
        "longest_connect_s": asked.longest_connect.as_secs_f64(),
        "longest_answer_s": asked.longest_answer.as_secs_f64(),
    })
    .to_string())
}

/// Reads for some time, at most `limit` bytes a second unless that is 0; returns how many came, and
/// in what time. If the connection ends early, nothing comes in the rest of the time.
fn download(from: SocketAddr, limit: f64, start: Instant, time: Duration) -> (u64, Duration) {
    let mut bytes = 0;
    let Ok(mut stream) = TcpStream::connect_timeout(&from, time) else { return (0, time) };
    if stream.set_read_timeout(Some(Duration::from_millis(100))).is_err() {
        return (0, time);
    }
    let mut room = vec![0; 64 * 1024];
    while start.elapsed() < time {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(taken) => bytes += taken as u64,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => break,
            },
        }
        if limit > 0.0 {
            let due = Duration::from_secs_f64(bytes as f64 / limit);
            thread::sleep(due.saturating_sub(start.elapsed()).min(time));
        }
    }
    (bytes, start.elapsed().max(time))
}

#[derive(Default)]
struct Asked {
    count: u32,
    answered: u32,
    longest_connect: Duration,
    longest_answer: Duration,
}

fn ask_often(server: SocketAddr, start: Instant, time: Duration) -> Asked {
    let mut asked = Asked::default();
    while start.elapsed() < time {
        let began = Instant::now();
        asked.count += 1;
        asked.answered += u32::from(ask(server, began, &mut asked.longest_connect).is_ok());
        asked.longest_answer = asked.longest_answer.max(began.elapsed());
        thread::sleep(EVERY.saturating_sub(began.elapsed()));
    }
    asked
}

/// Asks for the file once. Anything but the file is an error.
fn ask(server: SocketAddr, began: Instant, longest: &mut Duration) -> Result<()> {
    let connected = TcpStream::connect_timeout(&server, LIMIT);
    *longest = (*longest).max(began.elapsed());
    let mut stream = connected.context("connecting")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    anyhow::ensure!(&status == b"HTTP/1.1 200", "not the file");
    Ok(())
}
