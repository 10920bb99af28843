//! Captures, right and wrong; see `plimsoll_fuzz::explain`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::explain;

fuzz_target!(|data: &[u8]| explain::run(data));
