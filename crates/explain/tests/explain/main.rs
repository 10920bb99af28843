//! Captures, made here packet by packet, and what is found in them.

mod builder;
mod causes;
mod connections;
mod corpus;
mod findings;
mod formats;
mod hostile;
mod judgement;
mod sizes;
mod spoiled;
mod tunnels;
mod writer;
