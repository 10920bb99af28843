//! The number of connections in each state, counted where it changes: a query costs the same with
//! ten connections and with a million.

use plimsoll_tcp::{State, Writer};

/// Places of [`place`].
pub(crate) const STATE_COUNT: usize = State::Closed as usize + 1;

/// Counts up and down; the sum over all writers is the number of connections.
pub(super) type StateWriter = Writer<STATE_COUNT>;

/// The place of a state.
pub(crate) const fn place(state: State) -> usize {
    state as usize
}
