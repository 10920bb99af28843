//! Messages for the gateway's name server; see `plimsoll_worlds::names`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::names;

fuzz_target!(|data: &[u8]| names::run(data));
