//! Acceptors that share a listener, and the loops of a stack with two queues.

use std::sync::{Arc, Mutex, mpsc};
use std::task::Wake;
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::{Options, Stack};

use super::*;
use crate::event_loop::{EventLoop, Stopper, TURN_BYTES, WhenIdle};

/// What a test waits for at most. Nothing takes so long unless it hangs.
const BOUND: Duration = Duration::from_secs(60);

const SERVER: &str = "192.0.2.2:7";

/// Says that it was woken.
struct Tell(Mutex<mpsc::Sender<()>>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _ = self.0.lock().unwrap().send(());
    }
}

fn listen(stack: &Stack) -> TcpListener {
    let address = SERVER.parse().unwrap();
    let listener = TcpListener::bind_with(stack, address, 16, Options::default()).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Whichever is faster gets the connection, but none may miss that there was one: a loop that was
/// not told would not come back for what the other leaves.
#[test]
fn acceptors_that_share_a_listener_are_all_woken() {
    let (here, there) = memory_link::pair(memory_link::LinkConfig::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let server = Stack::builder().device(there).address("192.0.2.2/24").build().unwrap();
    let listener = listen(&server);
    let tally = Rc::new(Tally::default());
    let mut waiting: Vec<_> = (0..3)
        .map(|_| {
            let start = |_| -> Box<dyn Task> { unreachable!("nothing is accepted") };
            let mut acceptor = Acceptor::new(listener.try_clone().unwrap(), start, tally.clone());
            let (tell, told) = mpsc::channel();
            let waker = Waker::from(Arc::new(Tell(Mutex::new(tell))));
            let (mut spawn, mut deadline) = (Vec::new(), None);
            let turn = acceptor.run(&mut Around {
                waker: &waker,
                scratch: &mut [],
                spawn: &mut spawn,
                deadline: &mut deadline,
                phase: 0,
                turn_bytes: TURN_BYTES,
            });
            assert_eq!(turn, Turn::Sleep);
            (acceptor, told)
        })
        .collect();
    let stream = TcpStream::connect(&client, SERVER).unwrap();
    for (at, (_, told)) in waiting.iter_mut().enumerate() {
        told.recv_timeout(BOUND).unwrap_or_else(|_| panic!("acceptor {at} sleeps on"));
    }
    drop(stream);
}

/// Each loop has a queue of the stack, and they accept from one listener. One stopper ends both.
#[test]
fn loops_of_two_queues_serve_and_stop() {
    serve_and_stop(WhenIdle::Sleep);
    serve_and_stop(WhenIdle::Adapt);
}

fn serve_and_stop(idle: WhenIdle) {
    let (here, there) = memory_link::pair(memory_link::LinkConfig::default());
    let (_quiet, second) = memory_link::pair(memory_link::LinkConfig::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let server = Stack::builder().device(there).more_queues([second]).address("192.0.2.2/24");
    let server = server.queues(2).build_without_thread().unwrap();
    let (listener, stopper) = (listen(&server), Stopper::new(&server));
    let (tell, told) = mpsc::channel();
    for queue in 0..2 {
        let (own, listener) = (server.queue(queue).unwrap(), listener.try_clone().unwrap());
        let (stop, tell) = (stopper.clone(), tell.clone());
        std::thread::spawn(move || {
            let tally = Rc::new(Tally::tolerant());
            let mut events = EventLoop::of_queue(own, idle);
            let count = tally.clone();
            let start =
                move |stream| -> Box<dyn Task> { Box::new(Echo::new(stream, count.clone())) };
            events.spawn(Box::new(Acceptor::new(listener, start, tally.clone())));
            events.run(None, |_| stop.is_stopped());
            tell.send((events.ended().is_none(), tally.accepted.get())).unwrap();
        });
    }
    for _ in 0..8 {
        let mut stream = TcpStream::connect(&client, SERVER).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    }
    stopper.stop();
    let loops: Vec<_> = (0..2).map(|_| told.recv_timeout(BOUND).expect("a loop hangs")).collect();
    assert!(loops.iter().all(|(alive, _)| *alive), "{loops:?}");
    assert_eq!(loops.iter().map(|(_, accepted)| accepted).sum::<u64>(), 8);
}
