//! What the fuzz targets share: worlds that are driven by arbitrary input and judged by oracles.

// The steps of inputs are named after the calls that they stand for.
#![allow(missing_docs)]

pub mod channel;
pub mod drill;
pub mod engine;
pub mod explain;
pub mod hello;
pub mod names;
pub mod stack;
pub mod udp;
pub mod wire;

use arbitrary::{Arbitrary, Unstructured};

/// Makes an input of bytes, as libFuzzer does, and judges it.
pub type Target = fn(&[u8]);

/// The fuzz targets by name.
pub const TARGETS: [(&str, Target); 9] = [
    ("channel", |bytes| with(bytes, |input| channel::run(&input))),
    ("drill", |bytes| with(bytes, |input| drill::run(&input))),
    ("engine", |bytes| with(bytes, |input| engine::run(&input))),
    ("explain", explain::run),
    ("hello", hello::run),
    ("names", names::run),
    ("stack", |bytes| with(bytes, |input| stack::run(&input))),
    ("udp", |bytes| with(bytes, |input| udp::run(&input))),
    ("wire", |bytes| with(bytes, wire::run)),
];

/// Judges the input that `bytes` are, if they are one.
fn with<'a, T: Arbitrary<'a>>(bytes: &'a [u8], run: impl FnOnce(T)) {
    if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(bytes)) {
        run(input);
    }
}

/// Prints a step if `PLIMSOLL_FUZZ_TRACE` is set.
#[macro_export]
macro_rules! trace {
    ($($argument:tt)*) => {
        if $crate::tracing() {
            eprintln!($($argument)*);
        }
    };
}

/// Whether steps are to be printed.
pub fn tracing() -> bool {
    static ON: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("PLIMSOLL_FUZZ_TRACE").is_some())
}
