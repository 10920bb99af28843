//! UDP sockets under arbitrary packets and calls; see `plimsoll_worlds::udp`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_worlds::udp;

fuzz_target!(|input: udp::Input| udp::run(&input));
