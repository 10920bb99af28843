//! Workloads between two stacks, and what they cost.
//!
//! # Theory of operation
//!
//! A [`workload::Workload`] runs on one or two sides, each a stack of its own: bulk data one way,
//! or transactions. It is carried by event loops ([`event_loop`], [`tasks`], [`requester`]) or by
//! blocking threads, and is measured between two moments by counters, CPU time and context switches
//! ([`usage`]). What comes out has one vocabulary ([`figures`]) in every command of the program.
//!
//! Everything runs in real time on real threads. What it does not do: start other processes, or
//! model a cost.
#![forbid(unsafe_code)]

pub mod event_loop;
pub mod figures;
pub mod progress;
pub mod requester;
pub mod show;
pub mod tasks;
pub mod usage;
pub mod workload;
