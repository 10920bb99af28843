//! What threads hand to each other where the types of the standard library do not say enough. Each
//! file is one hand-over, small, with models that loom runs.

#![allow(unsafe_code, reason = "a thing is shared under a protocol that the compiler cannot check")]

mod token;

pub(crate) use token::{Held, Token};
