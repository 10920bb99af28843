//! The first bytes of a client; see `plimsoll_worlds::hello`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::hello;

fuzz_target!(|data: &[u8]| hello::run(data));
