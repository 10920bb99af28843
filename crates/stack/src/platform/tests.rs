//! The three events, with the same tests.

use std::iter::empty;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);

macro_rules! behaves {
    ($name:ident, $event:ty, $sleep:path) => {
        mod $name {
            use super::*;

            fn new() -> $event {
                <$event>::new().unwrap()
            }

            #[test]
            fn a_time_ends_a_sleep() {
                let event = new();
                assert_eq!($sleep(&[&event], empty(), NOW).unwrap(), 0);
                assert_eq!($sleep(&[&event], empty(), Some(Duration::from_millis(1))).unwrap(), 0);
            }

            #[test]
            fn an_event_stays_set_until_it_is_cleared() {
                let (a, b) = (new(), new());
                b.set();
                b.set();
                assert_eq!($sleep(&[&a, &b], empty(), None).unwrap(), 0b10);
                assert_eq!($sleep(&[&a, &b], empty(), None).unwrap(), 0b10);
                a.set();
                assert_eq!($sleep(&[&a, &b], empty(), None).unwrap(), 0b11);
                b.clear();
                b.clear();
                assert_eq!($sleep(&[&a, &b], empty(), NOW).unwrap(), 0b01);
            }

            #[test]
            fn it_can_be_set_more_often_than_anybody_reads() {
                let event = new();
                (0..100_000).for_each(|_| event.set());
                assert_eq!($sleep(&[&event], empty(), None).unwrap(), 1);
                event.clear();
                assert_eq!($sleep(&[&event], empty(), NOW).unwrap(), 0);
            }

            #[test]
            fn another_thread_ends_a_sleep_by_any_of_the_events() {
                let events = [new(), new(), new()];
                let turn = std::sync::Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for event in events.iter().cycle().take(300) {
                            event.set();
                            turn.wait();
                        }
                    });
                    for place in (0..3).cycle().take(300) {
                        let all = [&events[0], &events[1], &events[2]];
                        while $sleep(&all, empty(), None).unwrap() != 1 << place {}
                        events[place].clear();
                        turn.wait();
                    }
                });
            }
        }
    };
}

behaves!(eventfd, super::super::eventfd::Event, super::super::sleep);
behaves!(pair, super::super::pair::Event, super::super::sleep);
behaves!(bell, super::super::bell::Event, super::super::bell::sleep);
