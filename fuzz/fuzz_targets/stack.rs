//! A stack on a test device under arbitrary packets and calls; see `plimsoll_worlds::stack`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::stack;

fuzz_target!(|input: stack::Input| stack::run(&input));
