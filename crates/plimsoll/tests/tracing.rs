//! The spans and events that subscribers of the crate tracing receive.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::{self, Write as _};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use plimsoll::device::{channel, memory_link};
use plimsoll::gate::{GateConfig, GatedListener};
use plimsoll::{Budget, Connector, Refusal, Stack, TcpListener, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, dispatcher};

/// Keeps all spans and events that it receives, a line for each.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    lines: Vec<String>,
    spans: u64,
    /// Panics at every event, after having kept it.
    panics: bool,
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Recorder {
    fn keep(&self, kind: &str, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields::default();
        record(&mut fields);
        let mut kept = self.0.lock().unwrap();
        kept.lines.push(format!("{kind}{}", fields.0));
    }

    /// Waits until there is a line with all these words, and returns it.
    fn wait_for(&self, words: &[&str]) -> String {
        for _ in 0..6000 {
            let kept = self.0.lock().unwrap();
            let found = kept.lines.iter().find(|line| words.iter().all(|word| line.contains(word)));
            if let Some(line) = found {
                return line.clone();
            }
            drop(kept);
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no line with {words:?} in {:#?}", self.0.lock().unwrap().lines);
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "plimsoll"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = {
            let mut kept = self.0.lock().unwrap();
            kept.spans += 1;
            kept.spans
        };
        self.keep(&format!("span {id} {}", span.metadata().name()), |fields| span.record(fields));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.keep(&format!("record {}", span.into_u64()), |fields| values.record(fields));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let parent = event.parent().map_or(0, |id| id.into_u64());
        self.keep(&format!("event in {parent}"), |fields| event.record(fields));
        let panics = self.0.lock().unwrap().panics;
        assert!(!panics, "a subscriber that panics");
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        // Clones of spans end, too. Only the last end closes a span, and this recorder does not
        // count them.
        self.keep(&format!("end {}", id.into_u64()), |_| ());
        false
    }
}

/// Two stacks without threads: this thread does all the work, so it also delivers the events.
fn stacks() -> (Stack, Stack) {
    let (here, there) = memory_link::pair(Default::default());
    let build = |device, address: &str| {
        Stack::builder().device(device).address(address).build_without_thread().unwrap()
    };
    (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"))
}

fn run(stacks: &(Stack, Stack)) {
    while stacks.0.poll().worked | stacks.1.poll().worked {}
}

/// Does `what` with a recorder as this thread's subscriber.
fn recorded(what: impl FnOnce(&Recorder)) {
    let recorder = Recorder::default();
    let dispatch = tracing::Dispatch::new(recorder.clone());
    dispatcher::with_default(&dispatch, || what(&recorder));
}

#[test]
fn the_life_of_a_connection_is_a_span() {
    recorded(|recorder| {
        let stacks = stacks();
        let listener = TcpListener::bind(&stacks.1, "192.0.2.2:80").unwrap();
        let near = Connector::new(&stacks.0).start("192.0.2.2:80".parse().unwrap()).unwrap();
        run(&stacks);
        let (mut far, _) = listener.accept().unwrap();
        let span = recorder.wait_for(&["connection", "opened=\"connect\"", "peer=192.0.2.2:80"]);
        let number = span.split(' ').nth(1).unwrap();
        recorder.wait_for(&[&format!("event in {number} opening")]);
        recorder.wait_for(&[&format!("event in {number} established")]);
        recorder.wait_for(&["opened=\"accept\"", "local=192.0.2.2:80"]);
        drop(near);
        run(&stacks);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
        drop(far);
        run(&stacks);
        recorder.wait_for(&[&format!("record {number}"), "reason=\"in order\""]);
        recorder.wait_for(&[&format!("event in {number} closed"), "in order"]);
        recorder.wait_for(&[&format!("end {number}")]);
    });
}

#[test]
fn errors_and_refusals_are_told() {
    recorded(|recorder| {
        let stacks = stacks();
        let near = Connector::new(&stacks.0).start("192.0.2.2:81".parse().unwrap()).unwrap();
        run(&stacks);
        recorder.wait_for(&["refused", "peer=192.0.2.1:", "local=192.0.2.2:81", "no listener"]);
        recorder.wait_for(&["closed", "refused"]);
        drop(near);
    });
}

impl Recorder {
    /// The number of refusals reported, and of those for this reason.
    fn refusals(&self, reason: &str) -> (usize, usize) {
        let kept = self.0.lock().unwrap();
        let all = kept.lines.iter().filter(|line| line.contains(" refused peer="));
        (all.clone().count(), all.filter(|line| line.contains(reason)).count())
    }
}

#[test]
fn a_syn_over_the_budget_is_refused_once() {
    for refusal in [Refusal::Reset, Refusal::Drop] {
        recorded(|recorder| {
            let stacks = stacks();
            let listener = TcpListener::bind(&stacks.1, "192.0.2.2:80").unwrap();
            listener.set_budget(Budget::default().connections(Some(1))).unwrap();
            listener.set_refusal(refusal);
            let start =
                || Connector::new(&stacks.0).start("192.0.2.2:80".parse().unwrap()).unwrap();
            let _first = start();
            run(&stacks);
            let _second = start();
            run(&stacks);
            assert_eq!(recorder.refusals("budget spent"), (1, 1), "{refusal:?}");
        });
    }
}

#[test]
fn a_syn_over_the_budget_of_a_gate_is_refused_once() {
    for verify_source in [false, true] {
        recorded(|recorder| {
            let stacks = stacks();
            let config = GateConfig::default().verify_source(verify_source);
            let listener = GatedListener::bind_any(&stacks.1, config).unwrap();
            listener.set_budget(Budget::default().half_open(Some(1))).unwrap();
            listener.set_refusal(Refusal::Drop);
            let start =
                |address: &str| Connector::new(&stacks.0).start(address.parse().unwrap()).unwrap();
            let _first = start("198.51.100.1:1");
            run(&stacks);
            let _second = start("198.51.100.2:2");
            run(&stacks);
            let second = recorder.refusals("local=198.51.100.2:2 reason=\"budget spent\"").1;
            assert_eq!(second, 1, "verifies: {verify_source}");
        });
    }
}

#[test]
fn an_answer_that_nobody_waits_for_is_no_refusal() {
    recorded(|recorder| {
        let stacks = stacks();
        let _listener = TcpListener::bind(&stacks.1, "192.0.2.2:80").unwrap();
        drop(Connector::new(&stacks.0).start("192.0.2.2:80".parse().unwrap()).unwrap());
        run(&stacks);
        let resets = stacks.0.metrics().counter("TcpOutRsts");
        assert_eq!(resets, Some(1), "the SYN was answered, and the answer refused");
        assert_eq!(recorder.refusals("").0, 0);
    });
}

#[test]
fn decisions_at_a_gate_are_told() {
    recorded(|recorder| {
        let stacks = stacks();
        let listener = GatedListener::bind_any(&stacks.1, Default::default()).unwrap();
        let start =
            |address: &str| Connector::new(&stacks.0).start(address.parse().unwrap()).unwrap();
        let _streams = [start("198.51.100.1:1"), start("198.51.100.2:2")];
        run(&stacks);
        let next = || match listener.poll_incoming(Waker::noop()) {
            Poll::Ready(incoming) => incoming.unwrap(),
            Poll::Pending => panic!("nobody waits"),
        };
        drop(next().accept());
        next().ignore();
        recorder.wait_for(&["gate", "decision=\"accept\""]);
        recorder.wait_for(&["gate", "decision=\"ignore\""]);
    });
}

#[test]
fn retransmissions_are_told() {
    recorded(|recorder| {
        let (device, peer) = memory_link::pair(Default::default());
        let stack =
            Stack::builder().device(device).address("192.0.2.1/24").build_without_thread().unwrap();
        let _near = Connector::new(&stack).start("192.0.2.2:80".parse().unwrap()).unwrap();
        let until = plimsoll::now() + Duration::from_secs(2);
        while plimsoll::now() < until {
            let polled = stack.poll();
            if !polled.worked {
                stack.wait(polled.next.map(|next| next.min(until)), || false).unwrap();
            }
        }
        recorder.wait_for(&["retransmission", "len=0"]);
        drop(peer);
    });
}

#[test]
fn the_end_of_a_device_is_told() {
    recorded(|recorder| {
        let (device, far) = channel(channel::ChannelConfig::default()).unwrap();
        let stack =
            Stack::builder().device(device).address("192.0.2.1/24").build_without_thread().unwrap();
        drop(far);
        while stack.poll().worked {}
        recorder.wait_for(&["interface down", "interface=\"channel\""]);
        recorder.wait_for(&["stack ended"]);
    });
}

#[test]
fn a_subscriber_that_panics_harms_nobody() {
    recorded(|recorder| {
        recorder.0.lock().unwrap().panics = true;
        let stacks = stacks();
        let listener = TcpListener::bind(&stacks.1, "192.0.2.2:80").unwrap();
        let mut near = Connector::new(&stacks.0).start("192.0.2.2:80".parse().unwrap()).unwrap();
        run(&stacks);
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"ahoy").unwrap();
        run(&stacks);
        far.read_exact(&mut [0; 4]).unwrap();
        assert!(stacks.0.error().is_none() && stacks.1.error().is_none());
        recorder.0.lock().unwrap().panics = false;
    });
}

/// Runs the stacks during the event of an opening: the answer to the SYN ends the connection before
/// that call has returned.
struct Runs(Recorder, Mutex<Option<(Stack, Stack)>>);

impl Subscriber for Runs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.new_span(span)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
        let stacks = self.1.lock().unwrap().take();
        if let Some(stacks) = stacks {
            run(&stacks);
        }
    }
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
    fn try_close(&self, id: Id) -> bool {
        self.0.try_close(id)
    }
}

#[test]
fn a_connection_that_ends_while_its_opening_is_told_leaves_no_span() {
    let (recorder, stacks) = (Recorder::default(), stacks());
    let runs = Runs(recorder.clone(), Mutex::new(Some((stacks.0.clone(), stacks.1.clone()))));
    dispatcher::with_default(&tracing::Dispatch::new(runs), || {
        let near = Connector::new(&stacks.0).start("192.0.2.2:81".parse().unwrap()).unwrap();
        assert!(near.take_error().unwrap().is_some(), "it was refused meanwhile");
        let lines = recorder.0.lock().unwrap().lines.clone();
        let place = |text: &str| lines.iter().position(|line| line.contains(text));
        let places = ["event in 1 opening", "record 1", "event in 1 closed", "end 1"].map(place);
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{lines:#?}");
    });
}

/// A subscriber may use the stack whose events it receives.
#[test]
fn a_subscriber_may_use_sockets() {
    struct Asks(Recorder, Mutex<Option<Stack>>);
    impl Subscriber for Asks {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.0.new_span(span)
        }
        fn record(&self, span: &Id, values: &Record<'_>) {
            self.0.record(span, values);
        }
        fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.event(event);
            let stack = self.1.lock().unwrap().clone();
            if let Some(stack) = stack {
                let open = stack.sockets().len();
                self.0.keep(&format!("{open} sockets"), |_| ());
            }
        }
        fn enter(&self, _span: &Id) {}
        fn exit(&self, _span: &Id) {}
    }
    let recorder = Recorder::default();
    let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
    let asks = Asks(recorder.clone(), Mutex::new(Some(stack.clone())));
    dispatcher::with_default(&tracing::Dispatch::new(asks), || {
        let _listener = TcpListener::bind(&stack, "127.0.0.1:80").unwrap();
        let _near: TcpStream =
            Connector::new(&stack).start("127.0.0.1:80".parse().unwrap()).unwrap();
        while stack.poll().worked {}
        recorder.wait_for(&["3 sockets"]);
    });
}
