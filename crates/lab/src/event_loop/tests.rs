use std::cell::Cell;
use std::rc::Rc;
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
        let mut events = EventLoop::new(&stack, WhenIdle::Sleep);
        events.run(None, |_| {
            let stopped = stopper.is_stopped();
            stopper.stop();
            stopped
        });
        ended.send(()).unwrap();
    });
    end.recv_timeout(BOUND).expect("the loop sleeps although it was stopped");
}

/// What one task sends the others wait for, so it sends less at once while there are others.
#[test]
fn turns_are_short_in_company() {
    let mut company = Company::default();
    let mut round = |millis: u64, tokens: &[usize]| {
        company.now = Instant::ZERO + Duration::from_millis(millis);
        tokens.iter().map(|&token| company.turn_bytes(token)).max().unwrap_or(0)
    };
    assert_eq!(round(900, &[0]), SHARED_TURN_BYTES);
    assert_eq!(round(1000, &[3]), SHARED_TURN_BYTES);
    assert_eq!(round(1099, &[3]), SHARED_TURN_BYTES);
    assert_eq!(round(1100, &[3]), TURN_BYTES);
    // One that comes now and then is enough.
    assert_eq!(round(1500, &[4]), SHARED_TURN_BYTES);
    assert_eq!(round(1501, &[3]), SHARED_TURN_BYTES);
    assert_eq!(round(1580, &[4, 3]), SHARED_TURN_BYTES);
    assert_eq!(round(1679, &[3]), SHARED_TURN_BYTES);
    assert_eq!(round(1680, &[3]), TURN_BYTES);
}

/// Sets its deadline again and again, and counts how often it is called.
struct Alarm {
    calls: Rc<Cell<u32>>,
    next: Vec<Option<Instant>>,
}

impl Task for Alarm {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        self.calls.set(self.calls.get() + 1);
        match self.next.pop() {
            Some(deadline) => *around.deadline = deadline,
            None => return Turn::Done,
        }
        Turn::Sleep
    }
}

/// Nobody wakes the task but its deadlines, whatever the loop does until then.
#[test]
fn a_task_is_called_at_its_deadline() {
    for idle in [WhenIdle::Sleep, WhenIdle::Poll(Duration::from_millis(2)), WhenIdle::Adapt] {
        called_at_its_deadline(idle);
    }
}

fn called_at_its_deadline(idle: WhenIdle) {
    let (stack, _peer) = quiet_stack();
    let mut events = EventLoop::new(&stack, idle);
    let calls = Rc::new(Cell::new(0));
    let soon = |millis| Some(plimsoll::now() + Duration::from_millis(millis));
    // Taken from the end. The first is called for as it is in the past.
    let next = vec![soon(3), soon(1), Some(Instant::ZERO)];
    events.spawn(Box::new(Alarm { calls: calls.clone(), next }));
    events.run(soon(BOUND.as_millis() as u64), |events| events.tasks() == 0);
    assert_eq!((events.tasks(), calls.get()), (0, 4), "{idle:?}");
}

/// A deadline that was moved or taken back does not call the task at its old time, and one that was
/// brought forward does not come at the later.
#[test]
fn deadlines_can_be_moved() {
    let (stack, _peer) = quiet_stack();
    let mut events = EventLoop::new(&stack, WhenIdle::Sleep);
    let calls = Rc::new(Cell::new(0));
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let next = vec![None, Some(at(30)), Some(at(20)), Some(at(10))];
    events.spawn(Box::new(Alarm { calls: calls.clone(), next }));
    events.run_tasks();
    assert_eq!(calls.get(), 1);
    let mut call = |now, wanted| {
        events.expire(at(now));
        events.run_tasks();
        assert_eq!(calls.get(), wanted, "at {now}");
    };
    call(9, 1);
    call(10, 2);
    call(19, 2);
    call(25, 3);
    call(31, 4);
    // The last call has set none.
    call(1000, 4);
}
