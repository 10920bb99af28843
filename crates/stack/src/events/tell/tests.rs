//! Tests of the events that subscribers get, and of their order.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Metadata, Subscriber, dispatcher};

use super::*;

/// Keeps the message of each event with the number of its span, and how many handles to each span
/// there are.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    lines: Vec<String>,
    handles: HashMap<u64, i32>,
}

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl Recorder {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).lines)
    }

    /// How many spans have not ended.
    fn open(&self) -> usize {
        lock(&self.0).handles.values().filter(|&&handles| handles > 0).count()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        let handles = &mut lock(&self.0).handles;
        let number = handles.len() as u64 + 1;
        handles.insert(number, 1);
        Id::from_u64(number)
    }

    fn clone_span(&self, id: &Id) -> Id {
        *lock(&self.0).handles.get_mut(&id.into_u64()).unwrap() += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let handles = &mut lock(&self.0).handles;
        let left = handles.get_mut(&id.into_u64()).unwrap();
        *left -= 1;
        *left == 0
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = String::new();
        event.record(&mut Message(&mut message));
        let span = event.parent().map_or(0, Id::into_u64);
        lock(&self.0).lines.push(format!("{message} in {span}"));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn recorded(what: impl FnOnce(&Recorder, &OpenSpans)) {
    let recorder = Recorder::default();
    let dispatch = Dispatch::new(recorder.clone());
    dispatcher::with_default(&dispatch, || what(&recorder, &OpenSpans::default()));
}

const ID: ConnectionId = ConnectionId { slot: 1, generation: 0 };
const OPENING: ConnectionEvent = ConnectionEvent::Opening(Open::Connect);
const CLOSED: ConnectionEvent = ConnectionEvent::Closed(Some(Ending::InOrder));

fn key() -> FlowKey {
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    FlowKey { local: ip, remote: ip, local_port: 1, remote_port: 2 }
}

fn note(spans: &OpenSpans, event: ConnectionEvent) -> Vec<Event> {
    spans.note(ID, &key(), event).into_iter().collect()
}

#[test]
fn who_tells_the_end_first_tells_the_beginning_before_it() {
    recorded(|recorder, spans| {
        let of_one_thread = note(spans, OPENING);
        let of_another = note(spans, CLOSED);
        spans.tell(of_another);
        assert_eq!(recorder.lines(), ["opening in 1", "closed in 1"]);
        spans.tell(of_one_thread);
        assert!(recorder.lines().is_empty());
        assert_eq!((recorder.open(), spans.count.load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn what_comes_while_a_thread_tells_is_told_by_that_thread() {
    recorded(|recorder, spans| {
        let first = note(spans, OPENING);
        let (key, mut span) = spans.begin(ID).unwrap();
        let event = spans.next(ID, &mut span).unwrap();
        let mut others = note(spans, ConnectionEvent::Established);
        others.extend(note(spans, CLOSED));
        spans.tell(others);
        assert!(recorder.lines().is_empty(), "the first thread is about it");
        tell_of_connection(&key, &mut span, event);
        while let Some(event) = spans.next(ID, &mut span) {
            tell_of_connection(&key, &mut span, event);
        }
        assert_eq!(recorder.lines(), ["opening in 1", "established in 1", "closed in 1"]);
        spans.tell(first);
        assert_eq!((recorder.open(), spans.count.load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn a_connection_that_nobody_heard_opening_has_no_span() {
    recorded(|recorder, spans| {
        spans.tell(note(spans, ConnectionEvent::Established));
        spans.tell(note(spans, CLOSED));
        assert_eq!(recorder.lines(), ["established in 0", "closed in 0"]);
        assert_eq!((recorder.open(), spans.count.load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn nothing_is_kept_of_a_connection_whose_span_nobody_wants() {
    // It is offered everything, and accepts nothing.
    struct Refuses;
    impl Subscriber for Refuses {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            false
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            unreachable!("it is not enabled")
        }
        fn event(&self, _: &tracing::Event<'_>) {
            unreachable!("it is not enabled")
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
    dispatcher::with_default(&Dispatch::new(Refuses), || {
        let spans = OpenSpans::default();
        let events = note(&spans, OPENING);
        assert_eq!((events.len(), spans.count.load(Ordering::Relaxed)), (1, 1));
        spans.tell(events);
        assert_eq!(spans.count.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn each_event_beside_connections_has_the_level_that_it_is_told_at() {
    let address = key().local_addr();
    let refused = StackEvent::Refused { peer: address, local: address, reason: "no listener" };
    assert_eq!(refused.level(), LevelFilter::DEBUG);
    assert_eq!(StackEvent::Ended { reason: String::new() }.level(), LevelFilter::INFO);
    let down = StackEvent::InterfaceDown { name: String::new(), reason: String::new() };
    assert_eq!(down.level(), LevelFilter::WARN);
}
