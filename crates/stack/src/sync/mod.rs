//! What threads hand to each other where a mutex would not do.
//!
//! Beside `device/sys` this is the only folder of the crate with `unsafe` code. Each type here is
//! small, says why its `unsafe` is right, and is held by loom models.

mod parking;
pub(crate) mod socket_lock;
mod token;

pub(crate) use token::{Held, Token};
