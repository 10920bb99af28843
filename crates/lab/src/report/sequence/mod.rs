//! Sequence diagrams of packets, drawn from captures.

mod picture;
mod stretch;
mod why;

pub(crate) use picture::{Look, picture, title};
pub(crate) use stretch::{Kind, Packet, choose};
