use std::sync::mpsc;

use plimsoll::device::memory_link;

use super::*;

/// What a test waits for at most. Nothing takes so long unless it hangs.
const BOUND: Duration = Duration::from_secs(30);

fn quiet_stack() -> (Stack, plimsoll::device::Device) {
    let (device, peer) = memory_link::pair(memory_link::LinkConfig::default());
    let builder = Stack::builder().device(device).address("192.0.2.1/24");
    (builder.build_without_thread().unwrap(), peer)
}

/// Somebody stops the loop right after it has looked, and before it sleeps.
#[test]
fn a_stop_between_looking_and_sleeping_is_seen() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let (stack, _peer) = quiet_stack();
        let stopper = Stopper::new(&stack);
        let mut events = EventLoop::new(&stack, Duration::ZERO);
        events.run(None, |_| {
            let stopped = stopper.is_stopped();
            stopper.stop();
            stopped
        });
        ended.send(()).unwrap();
    });
    end.recv_timeout(BOUND).expect("the loop sleeps although it was stopped");
}
