//! The protocol on sockets that never block: a machine that is called when its socket can go on.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::{HEADER, Job, MARK, WRITES_PER_LOOK};

/// Bytes that a session moves in one turn, about, so that the stack and other sessions get theirs.
const TURN: usize = 512 * 1024;

/// A socket that never blocks.
pub trait Socket {
    /// Reads what there is; 0 is the end of the client's direction.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, and the caller's loop then calls again when there is.
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize>;

    /// Writes what fits, at least a byte.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits, and the caller's loop then calls again when something does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the direction to the client.
    ///
    /// # Errors
    /// If the connection is gone.
    fn end(&mut self) -> io::Result<()>;

    /// Has small writes leave at once.
    ///
    /// # Errors
    /// If the connection is gone.
    fn set_nodelay(&mut self) -> io::Result<()>;
}

/// What a session wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To be called when its socket can go on.
    Sleep,
    /// To be called again soon: it could go on.
    Again,
    /// Nothing more: the connection is to be closed.
    Done,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    state: State,
}

#[derive(Debug)]
enum State {
    Header { bytes: [u8; HEADER], filled: usize },
    Discard { marked: bool },
    Send { size: usize, begun: Instant, time: Duration, written: usize },
    Answer { size: usize, heard: usize, owed: usize },
}

/// How a step has gone.
enum Step {
    Moved(usize),
    Blocked,
    Over,
}

impl Session {
    /// A connection of which nothing is known yet.
    pub fn new() -> Session {
        Session { state: State::Header { bytes: [0; HEADER], filled: 0 } }
    }

    /// Goes on as far as possible. What is in `scratch` is of no meaning; it has
    /// [`SCRATCH`](super::SCRATCH) bytes. A connection that fails is done.
    pub fn run(&mut self, socket: &mut impl Socket, scratch: &mut [u8]) -> Turn {
        let mut moved = 0;
        while moved < TURN {
            match self.step(socket, scratch) {
                Ok(Step::Moved(count)) => moved += count,
                Ok(Step::Blocked) => return Turn::Sleep,
                Ok(Step::Over) => return Turn::Done,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Sleep,
                Err(_) => return Turn::Done,
            }
        }
        Turn::Again
    }

    fn step(&mut self, socket: &mut impl Socket, scratch: &mut [u8]) -> io::Result<Step> {
        match &mut self.state {
            State::Header { bytes, filled } => {
                let count = socket.read(&mut bytes[*filled..])?;
                *filled += count;
                if *filled == HEADER {
                    self.state = begin(Job::parse(bytes)?, socket)?;
                }
                Ok(moved(count))
            }
            State::Discard { marked } => {
                if *marked {
                    socket.write(&[MARK])?;
                    *marked = false;
                }
                let count = socket.read(scratch)?;
                *marked = count > 0 && scratch[count - 1] == MARK;
                Ok(moved(count))
            }
            State::Send { size, begun, time, written } => {
                if begun.elapsed() < *time {
                    return write_some(socket, &scratch[..*size], written);
                }
                // The last block is not cut short.
                if *written > 0 {
                    *written += socket.write(&scratch[..*size - *written])?;
                    *written %= *size;
                    return Ok(Step::Moved(1));
                }
                socket.end()?;
                self.state = State::Discard { marked: false };
                Ok(Step::Moved(1))
            }
            State::Answer { owed, .. } if *owed > 0 => {
                let count = socket.write(&scratch[..*owed])?;
                *owed -= count;
                Ok(Step::Moved(count))
            }
            State::Answer { size, heard, owed } => {
                let count = socket.read(&mut scratch[..*size - *heard])?;
                *heard += count;
                if *heard == *size {
                    (*heard, *owed) = (0, *size);
                }
                Ok(moved(count))
            }
        }
    }
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

fn begin(job: Job, socket: &mut impl Socket) -> io::Result<State> {
    Ok(match job {
        Job::Discard => State::Discard { marked: false },
        Job::Send { size, time } => State::Send { size, begun: Instant::now(), time, written: 0 },
        Job::Answer { size } => {
            socket.set_nodelay()?;
            State::Answer { size, heard: 0, owed: 0 }
        }
    })
}

/// What was read, of which nothing is the end.
fn moved(count: usize) -> Step {
    if count == 0 { Step::Over } else { Step::Moved(count) }
}

/// Writes some blocks, the first from where the last call has left it.
fn write_some(socket: &mut impl Socket, block: &[u8], written: &mut usize) -> io::Result<Step> {
    let mut sum = 0;
    for _ in 0..WRITES_PER_LOOK {
        match socket.write(&block[*written..]) {
            Ok(count) => {
                *written = (*written + count) % block.len();
                sum += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Step::Blocked),
            Err(error) => return Err(error),
        }
        if sum >= TURN {
            break;
        }
    }
    Ok(Step::Moved(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCRATCH;

    /// A socket whose client has said all it will say, and that takes a few bytes at a time.
    struct Pipe {
        said: Vec<u8>,
        ended: bool,
        heard: Vec<u8>,
        end_heard: bool,
        space: usize,
    }

    impl Pipe {
        fn new(said: &[u8], ended: bool) -> Pipe {
            let (heard, end_heard, space) = (Vec::new(), false, usize::MAX);
            Pipe { said: said.to_vec(), ended, heard, end_heard, space }
        }
    }

    impl Socket for Pipe {
        fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
            if self.said.is_empty() && !self.ended {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = block.len().min(self.said.len()).min(5);
            block[..count].copy_from_slice(&self.said[..count]);
            self.said.drain(..count);
            Ok(count)
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.space);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.space -= count;
            self.heard.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn end(&mut self) -> io::Result<()> {
            self.end_heard = true;
            Ok(())
        }

        fn set_nodelay(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_request_has_an_answer_of_its_length() {
        let mut scratch = vec![0; SCRATCH];
        let mut pipe = Pipe::new(b"a\0\0\0\x07\0\0\0\0seven..seven..sev", false);
        let mut session = Session::new();
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Sleep);
        assert_eq!(pipe.heard.len(), 14, "the third request is not whole");
        pipe.ended = true;
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Done);
    }

    #[test]
    fn what_is_sent_is_whole_blocks_and_ends() {
        let mut scratch = vec![0; SCRATCH];
        let mut pipe = Pipe::new(b"s\0\0\0\x80\0\0\0\x05", false);
        pipe.space = 1000;
        let mut session = Session::new();
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Sleep);
        assert_eq!((pipe.heard.len(), pipe.end_heard), (1000, false));
        std::thread::sleep(Duration::from_millis(6));
        pipe.space = usize::MAX;
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Sleep, "the client may say more");
        assert_eq!((pipe.heard.len(), pipe.end_heard), (1024, true));
        pipe.ended = true;
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Done);
    }

    #[test]
    fn what_is_discarded_is_read_to_its_end() {
        let mut scratch = vec![0; SCRATCH];
        let mut pipe = Pipe::new(b"d\0\0\0\0\0\0\0\0some bytes\x01", false);
        let mut session = Session::new();
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Sleep);
        assert_eq!((pipe.said.len(), &*pipe.heard), (0, &[MARK][..]));
        pipe.ended = true;
        assert_eq!(session.run(&mut pipe, &mut scratch), Turn::Done);
        assert_eq!(pipe.heard.len(), 1);
    }
}
