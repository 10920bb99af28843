//! One or two connections under arbitrary segments, application calls, options, path events and
//! time; see `plimsoll_worlds::engine`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::engine;

fuzz_target!(|input: engine::Input| engine::run(&input));
