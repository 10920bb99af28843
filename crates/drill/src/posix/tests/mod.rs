//! Calls over two stacks on virtual time.

mod connecting;
mod fast_open;
mod harness;
mod moving;
mod options;
mod receiving;
mod sending;
mod strange;
mod waiting;
