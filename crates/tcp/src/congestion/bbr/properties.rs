//! For any input, BBR's window and its rate stay within their bounds.

use proptest::prelude::*;

use plimsoll_wire::SeqNum;

use super::state::BbrState;
use super::{Bbr, MIN_PIPE_CWND};
use crate::congestion::{AckSample, CwrSign, Event, Lost, MAX_CWND, Sent, TailLoss, Window};
use crate::send::flight::scoreboard::{LostRange, RateSample};
use crate::time::{Instant, Nanos};

/// One input. Figures are drawn from all their values, so that most make no sense together.
#[derive(Clone, Debug)]
enum Told {
    Sent {
        in_flight: u32,
        app_limited: bool,
    },
    Ack {
        acked: u32,
        lost: u32,
        marked: Option<u32>,
        in_flight: u32,
        rate: Option<RateSample>,
        rtt: u64,
        full: bool,
    },
    Lost(LostRange),
    Event(Event),
}

/// Mostly small, but any number is possible.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0_u32..200, 2 => 0_u32..100_000, 1 => any::<u32>()]
}

fn span() -> impl Strategy<Value = Nanos> {
    prop_oneof![4 => 1_u64..1_000_000_000, 1 => any::<u64>()].prop_map(Nanos::from_nanos)
}

prop_compose! {
    fn rate()(
        delivered in number(), prior_delivered in number(), lost in number(),
        tx_in_flight in number(), interval in prop::option::of(span()), is_app_limited: bool,
    ) -> RateSample {
        let (none, interval) = (Nanos::ZERO, interval);
        RateSample {
            prior_delivered, delivered, interval, send_elapsed: none, ack_elapsed: none, lost,
            tx_in_flight, is_app_limited,
        }
    }
}

fn told() -> impl Strategy<Value = Told> {
    let now = Instant::ZERO;
    let nxt = SeqNum(0);
    let counted = prop::option::of(number());
    let ack = (number(), number(), counted, number(), prop::option::of(rate()), any::<u64>());
    let lost = (any::<u32>(), number(), number(), number(), any::<bool>());
    prop_oneof![
        2 => (number(), any::<bool>())
            .prop_map(|(in_flight, app_limited)| Told::Sent { in_flight, app_limited }),
        8 => ack.prop_map(|(acked, lost, marked, in_flight, rate, rtt)| Told::Ack {
            acked, lost, marked, in_flight, rate, rtt: rtt >> (rtt % 64), full: rtt % 2 == 0
        }),
        3 => lost.prop_map(|(start, segs, lost, tx_in_flight, is_app_limited)| {
            let (start, sent_at) = (SeqNum(start), Instant::ZERO);
            let end = start + 1000;
            Told::Lost(LostRange {
                start, end, segs, sent_at, delivered: 0, lost, tx_in_flight, is_app_limited
            })
        }),
        3 => prop_oneof![
            number().prop_map(|in_flight| Event::Recovery { in_flight }),
            number().prop_map(move |in_flight| Event::Rto { now, nxt, in_flight }),
            (0_u16..9000).prop_map(Event::Mss),
            Just(Event::Resend { now, nxt }),
            Just(Event::Recovered),
            Just(Event::Undo),
            (number(), any::<bool>()).prop_map(move |(in_flight, is_app_limited)| {
                Event::TailLoss(TailLoss { now, delivered: 0, in_flight, is_app_limited })
            }),
            Just(Event::Cwr(CwrSign::Echo)),
            Just(Event::Congestion { now, flight_size: 1 }),
        ].prop_map(Told::Event),
    ]
}

fn sent(now: Instant, in_flight: u32, app_limited: bool) -> Sent {
    Sent {
        now,
        departs: now,
        last_sent: now,
        mss: 1000,
        srtt: Nanos::from_millis(10),
        delivered: 0,
        segs: 1,
        prior_in_flight: in_flight,
        in_flight: in_flight.saturating_add(1),
        app_limited,
        again: false,
        first_again: 0,
    }
}

fn ack(now: Instant, mss: u16, total_delivered: u32, told: &Told) -> AckSample {
    let Told::Ack { acked, lost, marked, in_flight, rate, rtt, .. } = *told else {
        unreachable!("it is an ACK")
    };
    AckSample {
        now,
        rtt: Some(Nanos::from_nanos(rtt)).filter(|rtt| !rtt.is_zero()),
        srtt: Nanos::ZERO,
        una: SeqNum(0),
        nxt: SeqNum(0),
        mss,
        paced: true,
        total_delivered,
        delivered: acked,
        lost,
        marked: marked.unwrap_or(0),
        marks_counted: marked.is_some(),
        marked_bytes: 0,
        in_flight,
        grows: true,
        rate,
    }
}

proptest! {
    #[test]
    fn the_window_and_the_rate_stay_within_bounds(
        steps in prop::collection::vec((told(), span(), 1_u16..9000), 1..200),
    ) {
        let mut window = Window::new(10);
        let mut now = Instant::from_millis(1000);
        let mut bbr = Bbr::new(&mut window, &sent(now, 0, false), 7);
        let mut delivered = 0_u32;
        let mut mss = 1000;
        for (told, passes, new_mss) in steps {
            now += passes.min(Nanos::from_secs(20));
            match told {
                Told::Sent { in_flight, app_limited } => {
                    bbr.on_sent(&mut window, &sent(now, in_flight, app_limited));
                }
                Told::Ack { acked, full, .. } => {
                    delivered = delivered.wrapping_add(acked);
                    mss = if acked % 50 == 49 { new_mss } else { mss };
                    bbr.on_ack(&mut window, &ack(now, mss, delivered, &told), full);
                    let free = !bbr.conserves_packets();
                    prop_assert!(!free || window.cwnd() >= MIN_PIPE_CWND);
                    let quantum = window.allowed.send_quantum.map_or(0, |quantum| quantum.get());
                    prop_assert!(quantum >= 2 * u32::from(mss));
                }
                Told::Lost(range) => bbr.on_lost(&window, &Lost { now, delivered, range }),
                Told::Event(event) => bbr.on_event(&mut window, event),
            }
            prop_assert!((1..=MAX_CWND).contains(&window.cwnd()));
            let model = bbr.model(window.cwnd());
            prop_assert!(model.state != BbrState::Drain || bbr.full_pipe.is_reached());
            prop_assert!(bbr.take_changes(window.cwnd()).count() <= super::MOST_CHANGES);
        }
    }
}
