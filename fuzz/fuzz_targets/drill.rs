//! Scripts of the packetdrill language, right and wrong; see `plimsoll_worlds::drill`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::drill;

fuzz_target!(|input: drill::Input| drill::run(&input));
