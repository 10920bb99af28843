//! See `plimsoll_differential::program`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(plimsoll_differential::program(&words))
}
