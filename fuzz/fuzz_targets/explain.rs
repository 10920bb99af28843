//! Captures, right and wrong; see `plimsoll_worlds::explain`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::explain;

fuzz_target!(|data: &[u8]| explain::run(data));
