//! A stack on a test device under arbitrary packets and calls; see `plimsoll_fuzz::stack`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::stack;

fuzz_target!(|input: stack::Input| stack::run(&input));
