//! A subscriber whose filter changes while connections are open. It has a file of its own, since
//! the level that anybody listens at is one for the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll::device::memory_link;
use plimsoll::{Connector, Stack, TcpListener};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// Counts the handles to spans, until `is_deaf` is set.
#[derive(Clone, Default)]
struct Counter(Arc<Counts>);

#[derive(Default)]
struct Counts {
    spans: AtomicUsize,
    handles: AtomicUsize,
    is_deaf: AtomicBool,
}

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "plimsoll" && !self.0.is_deaf.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let deaf = self.0.is_deaf.load(Ordering::Relaxed);
        Some(if deaf { LevelFilter::OFF } else { LevelFilter::INFO })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Id::from_u64(self.0.spans.fetch_add(1, Ordering::Relaxed) as u64 + 1)
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        id.clone()
    }

    fn try_close(&self, _: Id) -> bool {
        self.0.handles.fetch_sub(1, Ordering::Relaxed);
        false
    }

    fn event(&self, _: &Event<'_>) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_span_ends_although_nobody_listens_any_more() {
    let counter = Counter::default();
    dispatcher::with_default(&Dispatch::new(counter.clone()), || {
        let (here, there) = memory_link::pair(Default::default());
        let build = |device, address: &str| {
            Stack::builder().device(device).address(address).build_without_thread().unwrap()
        };
        let (client, server) = (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"));
        let run = || while client.poll().worked | server.poll().worked {};
        let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
        let near = Connector::new(&client).start("192.0.2.2:80".parse().unwrap()).unwrap();
        run();
        let (far, _) = listener.accept().unwrap();
        let handles = || counter.0.handles.load(Ordering::Relaxed);
        assert_eq!((counter.0.spans.load(Ordering::Relaxed), handles()), (2, 2));

        counter.0.is_deaf.store(true, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
        drop(near);
        run();
        drop(far);
        run();
        assert_eq!(handles(), 0);
    });
}
