use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use plimsoll_drill::host::{Captured, Host, HostError, Started};
use plimsoll_drill::posix::{Call, Out, Reply};
use plimsoll_drill::shell::Command;
use plimsoll_tcp::{Duration, Instant};

use super::Adapter;

/// A host on which a connect sleeps for ten milliseconds and a packet leaves every second.
#[derive(Default)]
struct Fake {
    now: Instant,
    sleeps: Option<Instant>,
    packets: VecDeque<Captured>,
}

impl Host for Fake {
    fn now(&self) -> Instant {
        self.now
    }

    fn wait(&mut self, until: Instant) -> Result<(), HostError> {
        let second = Instant::ZERO + Duration::from_secs(self.now.as_millis() / 1000 + 1);
        let stop = self.sleeps.filter(|end| *end > self.now).unwrap_or(until).min(until);
        if second <= stop {
            self.now = second;
            self.packets.push_back(Captured { at: second, bytes: vec![0x45] });
        } else {
            self.now = stop;
        }
        Ok(())
    }

    fn inject(&mut self, _: &[u8]) -> Result<(), HostError> {
        Ok(())
    }

    fn sniff(&mut self) -> Option<Captured> {
        self.packets.pop_front()
    }

    fn call(&mut self, call: Call, _: bool) -> Result<Started, HostError> {
        if let Call::Connect { .. } = call {
            self.sleeps = Some(self.now + Duration::from_millis(10));
            return Ok(Started::Sleeps);
        }
        Ok(Started::Returned(Reply { result: Ok(0), out: Out::Nothing }))
    }

    fn returned(&mut self) -> Option<(Instant, Reply)> {
        let end = self.sleeps.take_if(|end| *end <= self.now)?;
        Some((end, Reply::value(7)))
    }

    fn command(&mut self, _: &Command) -> Result<(), HostError> {
        Ok(())
    }

    fn tcp_info(&mut self, _: i32) -> Result<Vec<u8>, HostError> {
        Ok(Vec::new())
    }
}

#[test]
fn the_clock_advances_when_it_is_looked_at() {
    let adapter = Adapter::new(Box::new(Fake::default()));
    let first = adapter.look_at_clock();
    assert!(adapter.look_at_clock() > first);
    adapter.sleep(Duration::from_secs(3));
    assert!(adapter.look_at_clock() > first + Duration::from_secs(3));
    // Packets that left meanwhile are still there, with their times.
    let (at, bytes) = adapter.sniff().unwrap();
    assert_eq!((at, bytes.len()), (Duration::from_secs(1), 1));
}

#[test]
fn a_sleep_of_the_only_thread_lets_time_pass() {
    let adapter = Adapter::new(Box::new(Fake::default()));
    let reply = adapter.call(Call::Connect { fd: 3, addr: None });
    assert_eq!(reply, Reply::value(7));
    assert!(adapter.look_at_clock() >= Duration::from_millis(10));
}

#[test]
fn the_clock_stands_still_until_a_woken_thread_has_looked() {
    let adapter = Arc::new(Adapter::new(Box::new(Fake::default())));
    let theirs = Arc::clone(&adapter);
    let second = thread::spawn(move || {
        let reply = theirs.call(Call::Connect { fd: 3, addr: None });
        (reply, theirs.look_at_clock())
    });
    while !matches!(adapter.lock().sleeper, super::Sleeper::Asleep) {
        thread::yield_now();
    }
    adapter.sleep(Duration::from_secs(5));
    assert!(adapter.look_at_clock() >= Duration::from_secs(5));
    let (reply, seen) = second.join().unwrap();
    assert_eq!(reply, Reply::value(7));
    assert_eq!(seen, Duration::from_millis(10));
}
