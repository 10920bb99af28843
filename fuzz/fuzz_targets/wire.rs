//! Every parser under arbitrary bytes; see `plimsoll_worlds::wire`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::wire;

fuzz_target!(|input: (u8, &[u8])| wire::run(input));
