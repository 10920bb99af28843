//! A deterministic network simulator in which the Plimsoll stack runs as it is.
//!
//! Hosts are real stacks ([`plimsoll_stack::Stack`]) in run-to-completion mode: no thread, and the
//! time is a number. Between them are [links](link) with a rate, a delay and a queue, routers and
//! [middleboxes](scenario::Middlebox). All random numbers come from one seed: the same seed gives
//! the same run, packet by packet.
//!
//! # Theory of operation
//!
//! A [`Scenario`] says what is there and what happens to it. It is a TOML file, or
//! [`draw`](draw()) makes one from a seed. [`run`] runs it, in two phases: while there are faults,
//! and without, when everything has to finish. After every step invariants are checked: the bytes
//! of each stream are those that were written, what hosts send stays within windows, acknowledges
//! only what was sent and never goes back, each link accounts for its packets, memory is bounded,
//! and every connection ends. In builds with debug assertions the engine checks its own as well.
//!
//! What the links do to packets is recorded by what the packets are ([`fault::PacketId`]), so that
//! a run that failed can be run again with the list alone, and [shrunk](shrink()) to the few faults
//! that matter. A [swarm](swarm()) runs many scenarios and says which
//! [rare branches](coverage::Reached) it has reached. A [batch] measures a scenario over a grid of
//! rates, delays, losses, buffers and controllers. [Programs](program) of users run on the hosts of
//! a scenario, too.
//!
//! ```
//! use plimsoll_sim::{RunConfig, draw, run};
//!
//! let outcome = run(&draw(7), 7, &RunConfig::default())?;
//! assert!(outcome.violation.is_none(), "{outcome:?}");
//! # Ok::<(), plimsoll_sim::ScenarioError>(())
//! ```

mod app;
pub mod batch;
pub mod coverage;
pub mod draw;
pub mod fault;
pub mod journal;
pub mod link;
mod middlebox;
pub mod program;
mod rng;
pub mod scenario;
mod sender;
pub mod shrink;
mod stream;
pub mod swarm;
pub mod units;
mod watch;
mod world;

pub use draw::draw;
pub use rng::Rng;
pub use scenario::{Scenario, ScenarioError};
pub use shrink::shrink;
pub use swarm::swarm;
pub use world::{
    Direction, FlowOutcome, FlowSeries, LinkOutcome, Outcome, QueueSeries, RunConfig, Series,
    Violation, run, run_programs,
};
