//! What the fuzz targets share: worlds that are driven by arbitrary input and judged by oracles.

pub mod channel;
pub mod drill;
pub mod engine;
pub mod explain;
pub mod stack;
pub mod udp;

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
