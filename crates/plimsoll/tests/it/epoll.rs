//! Stacks in a loop of the program's own, which sleeps in `ppoll` or `epoll_wait` by itself.
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::{PreparedWait, QueueLoop, ReadyQueue, Stack, StackError, TcpListener, TcpStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::namespace::{ip, isolated};

/// Sleeps until a descriptor is ready, or the stack's deadline, or `most`. Returns how many are.
fn sleep(wait: &PreparedWait<'_>, most: Option<Duration>) -> usize {
    let watches: Vec<_> = wait.watches().collect();
    let again: Vec<_> = wait.watches().collect();
    assert_eq!(watches, again, "nothing has changed");
    let flags = |wants_write| if wants_write { PollFlags::OUT } else { PollFlags::empty() };
    let fd = |watch| PollFd::new(watch, PollFlags::IN | flags(plimsoll::Watch::wants_write(watch)));
    let mut fds: Vec<_> = watches.iter().map(fd).collect();
    let timeout = wait.timeout().into_iter().chain(most).min();
    let timeout = timeout.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    poll(&mut fds, timeout.as_ref()).unwrap()
}

/// Echoes what one stream says until it ends.
fn echo(mut queue: QueueLoop, listener: &TcpListener) {
    let ready = ReadyQueue::with_kicker(queue.kicker());
    let waker = ready.waker(0);
    let (mut stream, mut held): (Option<TcpStream>, Vec<u8>) = (None, Vec::new());
    let mut buf = [0; 16_384];
    loop {
        let mut tokens = Vec::new();
        ready.take(&mut tokens);
        if stream.is_none() && listener.poll_acceptable(&waker) {
            let (accepted, _) = listener.accept().unwrap();
            accepted.set_nonblocking(true).unwrap();
            stream = Some(accepted);
        }
        if let Some(stream) = &mut stream {
            loop {
                while !held.is_empty() && stream.poll_writable(&waker) {
                    match stream.write(&held) {
                        Ok(count) => drop(held.drain(..count)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                if !held.is_empty() || !stream.poll_readable(&waker) {
                    break;
                }
                match stream.read(&mut buf).unwrap() {
                    0 => return stream.shutdown(Shutdown::Write).unwrap(),
                    count => held.extend_from_slice(&buf[..count]),
                }
            }
        }
        if queue.poll().worked {
            continue;
        }
        if let Some(wait) = queue.prepare_wait(|| !ready.is_empty()).unwrap() {
            sleep(&wait, None);
        }
    }
}

/// Data that a broken transfer does not leave as it is.
fn data() -> Vec<u8> {
    (0..3_000_000).map(|at| (at / 7) as u8).collect()
}

#[test]
fn a_loop_that_sleeps_by_itself_misses_nothing() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let builder = Stack::builder().device(there).address("192.0.2.2/24");
    let server = builder.build_without_thread().unwrap();
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let queue = server.queue(0).unwrap();
    let serving = thread::spawn(move || {
        echo(queue, &listener);
        // The thread that runs the stack next delivers what is left.
        server.drain(Duration::from_secs(30))
    });
    let mut stream = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(&data()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(heard == data(), "it comes back byte for byte");
    writing.join().unwrap();
    drop(stream);
    assert!(serving.join().unwrap());
}

fn quiet() -> (Stack, QueueLoop) {
    let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
    let queue = stack.queue(0).unwrap();
    (stack, queue)
}

#[test]
fn a_kick_ends_one_sleep() {
    let (_stack, mut queue) = quiet();
    let kicker = queue.kicker();
    for _ in 0..3 {
        let wait = queue.prepare_wait(|| false).unwrap().expect("there is nothing to do");
        assert_eq!((wait.deadline(), wait.timeout()), (None, None));
        assert_eq!(sleep(&wait, Some(Duration::ZERO)), 0);
        kicker.kick();
        kicker.kick();
        assert_eq!(sleep(&wait, None), 1);
        assert_eq!(sleep(&wait, None), 1, "until the loop has said that it is awake");
    }
    // While the loop is awake a kick has no effect: the loop reads all its work before it sleeps.
    kicker.kick();
    let wait = queue.prepare_wait(|| false).unwrap().expect("there is nothing to do");
    assert_eq!(sleep(&wait, Some(Duration::ZERO)), 0);
}

#[test]
fn a_timer_is_a_deadline_and_what_is_ready_is_no_sleep() {
    let (here, _there) = memory_link::pair(LinkConfig::default());
    let builder = Stack::builder().device(here).address("192.0.2.1/24");
    let stack = builder.build_without_thread().unwrap();
    let mut queue = stack.queue(0).unwrap();
    assert!(queue.prepare_wait(|| true).unwrap().is_none());
    let _connecting = plimsoll::Connector::new(&stack).start("192.0.2.2:7".parse().unwrap());
    while queue.poll().worked {}
    let wait = queue.prepare_wait(|| false).unwrap().expect("the SYN has left");
    let left = wait.timeout().expect("it is sent again");
    assert!(left <= Duration::from_secs(1), "{left:?}");
    assert_eq!(sleep(&wait, None), 0, "nothing comes but the time");
    drop(wait);
    assert!(queue.poll().worked, "the SYN is sent again");
}

#[test]
fn a_panic_of_the_question_is_the_programs_own() {
    let (stack, mut queue) = quiet();
    let asked = catch_unwind(AssertUnwindSafe(|| queue.prepare_wait(|| panic!("mine")).is_ok()));
    assert_eq!(asked.unwrap_err().downcast_ref::<&str>(), Some(&"mine"));
    assert_eq!(stack.error(), None);
    assert!(queue.prepare_wait(|| false).unwrap().is_some(), "it was left awake");
    // And the loop can sleep by the stack's own call after that.
    queue.kicker().kick();
    queue.wait(Some(stack.now() + Duration::from_millis(1)), || false).unwrap();
}

#[test]
fn a_stack_that_has_ended_is_not_waited_for() {
    let (stack, mut queue) = quiet();
    stack.shutdown(Duration::ZERO);
    assert_eq!(queue.prepare_wait(|| false).err(), Some(StackError::ShutDown));
}

/// The kernel sends to an echo on this stack and reads it back.
fn kernel_talks() {
    let mut stream = std::net::TcpStream::connect("192.0.2.2:7").unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(&data()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(heard == data(), "it comes back byte for byte");
    writing.join().unwrap();
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_descriptor_of_a_device_is_among_those_to_watch() {
    isolated("epoll::the_descriptor_of_a_device_is_among_those_to_watch", || {
        let config = TunConfig::default().name("tun0").up(true);
        let device = tun::open(config).unwrap();
        ip("address add 192.0.2.1/24 dev tun0");
        let builder = Stack::builder().device(device).address("192.0.2.2/24");
        let stack = builder.build_without_thread().unwrap();
        let listener = TcpListener::bind(&stack, "192.0.2.2:7").unwrap();
        let kernel = thread::spawn(kernel_talks);
        echo(stack.queue(0).unwrap(), &listener);
        drop(listener);
        assert!(stack.drain(Duration::from_secs(30)));
        kernel.join().unwrap();
    });
}
