//! A stack on a channel device under packets with fields that contradict each other; see
//! `plimsoll_worlds::channel`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::channel;

fuzz_target!(|input: channel::Input| channel::run(&input));
