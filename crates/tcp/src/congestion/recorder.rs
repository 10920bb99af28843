//! A controller for tests: it records all its inputs, and follows NewReno. Its inputs are all that
//! an algorithm with a model of the path needs.

extern crate std;

use std::vec::Vec;

use super::{AckSample, Event, Lost, Sent, Window, newreno};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Input {
    Sent(Sent),
    Ack(AckSample),
    Lost(Lost),
    Event(Event),
}

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Vec<Input>);

impl Recorder {
    pub(super) fn on_sent(&mut self, sent: &Sent) {
        self.0.push(Input::Sent(*sent));
    }

    pub(super) fn on_ack(&mut self, window: &mut Window, sample: &AckSample, grows: bool) {
        self.0.push(Input::Ack(*sample));
        if grows {
            newreno::on_ack(window, sample.delivered);
        }
    }

    pub(super) fn on_lost(&mut self, lost: &Lost) {
        self.0.push(Input::Lost(*lost));
    }

    pub(super) fn on_event(&mut self, event: Event) {
        self.0.push(Input::Event(event));
    }

    pub(super) fn take(&mut self) -> Vec<Input> {
        core::mem::take(&mut self.0)
    }
}
