//! A program's way out: its packets meet a Plimsoll stack, and that dials through the host's
//! sockets.
//!
//! # Theory of operation
//!
//! Three processes run a command. The *gateway* is the caller's own process and stays in
//! the caller's namespaces. The *inside* ([`inside`]) is the same program, started again: it makes
//! the user, network, mount and process namespaces and the TUN device, whose descriptors it passes
//! to the gateway over a socket pair ([`handover`]). *Process 1* ([`init`]) mounts `/proc`, starts
//! the command in a user namespace of its own, passes signals on to it, collects children, and
//! reports how the command ended.
//!
//! The gateway's stack takes packets to any address. A connection waits at the SYN gate until the
//! dial on the host's side has succeeded or failed, so the command gets the host's error ([`tcp`]).
//! A datagram to a new destination is a flow with a socket of the host ([`udp`]), and echo requests
//! have a ping socket ([`ping`]). Published [`ports`] lead the other way. Queries to the gateway's
//! name server go to the host's ([`names`]). [`policy`] judges every address immediately before it
//! is dialled, and the user's [`rules`] come after that.
//!
//! The control socket's questions about [`connections`] are answered by the loops that carry them.
//! With `--explain`, [`reasons`] has the times of each connection and reports why the command
//! waited.
//!
//! A loop ([`worker`], on a [`reactor`]) serves a queue of the stack and its sockets of the host;
//! there are several where there are processors for them. The first one ([`gateway`]) does more
//! than the others.
//!
//! With [`weather`] the command's packets cross links of the simulator in real time.
//!
//! Once it is set up, the gateway confines itself ([`confine`]).
//!
//! An existing namespace is served in the same way ([`attach`]).
//!
//! [`Gateway`] starts all this from a Rust program or test.
//!
//! Limits: it never changes the host's network, and needs no privilege.
#![forbid(unsafe_code)]

pub mod attach;
mod command;
pub mod config;
mod confine;
pub mod connections;
mod fronts;
mod gateway;
pub mod handover;
pub mod init;
pub mod inside;
mod mapping;
pub mod names;
pub mod network;
mod ping;
pub mod policy;
pub mod ports;
mod reactor;
mod reasons;
mod routing;
pub mod rules;
pub mod run;
mod tcp;
mod tcp_info;
mod udp;
pub mod weather;
mod worker;

use std::io::{self, Write as _};

pub use self::command::Gateway;

/// The name of the command's interface.
pub const INTERFACE: &str = "plimsoll0";

/// Writes a line to standard error for the user. A terminal or pipe that is closed loses it.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {text}");
}
