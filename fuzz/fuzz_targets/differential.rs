//! Two connections under one script, of which one does otherwise what must not matter; see
//! `plimsoll_differential`. With `--seeds A..B` it runs scripts by number instead of fuzzing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.iter().any(|word| word == "--seeds" || word == "--show") {
            std::process::exit(plimsoll_differential::program(&words).into());
        }
    },
    |bytes: &[u8]| plimsoll_differential::judge(bytes)
);
