use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::stack::tests::harness::*;

/// A connection of `pair.a`, with which tables of the test are filled. It stays in the stack's own.
fn made(pair: &mut Pair) -> Arc<Endpoint> {
    std::mem::forget(pair.connect(B4));
    connections(&pair.a).all().pop().unwrap()
}

fn key(port: u16) -> FlowKey {
    FlowKey { local: ip(A4), remote: ip(B4), local_port: port, remote_port: 80 }
}

#[test]
fn a_place_that_is_used_again_has_another_generation() {
    let mut pair = Pair::new();
    let first = made(&mut pair);
    let table = connections(&pair.a);
    let (id, port) = (first.id, first.key.local_port);
    assert!(table.get(id).is_some() && table.find(&first.key).is_some());
    assert!(table.uses_port(port) && table.len() == 1);
    table.remove(&first);
    table.remove(&first);
    assert!(table.get(id).is_none() && table.find(&first.key).is_none());
    assert!(!table.uses_port(port) && table.len() == 0);
    let mut again = None;
    let put = table.insert(first.key, |id| {
        again = Some(id);
        first.clone()
    });
    assert!(put.is_ok());
    assert_eq!(again.map(|id| id.slot), Some(id.slot));
    assert_ne!(again, Some(id));
}

#[test]
fn one_of_those_who_want_a_four_tuple_at_once_gets_it() {
    const THREADS: usize = 4;
    let mut pair = Pair::new();
    let endpoint = made(&mut pair);
    for round in 0..50 {
        let table = ConnectionTable::new([round; 16]);
        let (wanted, began) = (endpoint.key, Barrier::new(THREADS));
        let makes = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    began.wait();
                    let made = table.insert(wanted, |_| {
                        makes.fetch_add(1, Ordering::Relaxed);
                        endpoint.clone()
                    });
                    assert!(matches!(made, Ok(_) | Err(InsertError::Taken)));
                });
            }
        });
        assert_eq!(makes.into_inner(), 1, "nothing is made for those who do not get it");
        assert_eq!(table.len(), 1);
    }
}

#[test]
fn while_a_connection_is_made_the_table_can_be_used() {
    let mut pair = Pair::new();
    let endpoint = made(&mut pair);
    let table = ConnectionTable::new([1; 16]);
    let made = table.insert(endpoint.key, |_| {
        assert!(table.find(&endpoint.key).is_none(), "it is not there yet");
        let second = table.insert(endpoint.key, |_| unreachable!("the four-tuple is reserved"));
        assert_eq!(second.err(), Some(InsertError::Taken));
        endpoint.clone()
    });
    assert!(made.is_ok() && table.find(&endpoint.key).is_some());
}

#[test]
fn a_panic_while_a_connection_is_made_leaves_no_trace() {
    let table = ConnectionTable::new([1; 16]);
    let insert = || table.insert(key(1000), |_| panic!("a test"));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert));
    assert!(ended.is_err());
    assert!(table.len() == 0 && !table.uses_port(1000));
    let mut pair = Pair::new();
    let endpoint = made(&mut pair);
    assert!(table.insert(key(1000), |_| endpoint).is_ok(), "the four-tuple is free again");
}
