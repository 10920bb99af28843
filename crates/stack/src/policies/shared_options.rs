//! Options that many connections have in common. Most sockets of a program have the same ones: they
//! hold them once.

use std::sync::{Arc, Mutex};

use plimsoll_tcp::Options;

use crate::sync::lock;

/// The options that a connection was last opened with.
#[derive(Debug, Default)]
pub(crate) struct SharedOptions(Mutex<Arc<Options>>);

impl SharedOptions {
    /// `options`, shared with the last connections if they had the same.
    pub(crate) fn share(&self, options: Options) -> Arc<Options> {
        let mut last = lock(&self.0);
        if **last != options {
            *last = Arc::new(options);
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_options_are_held_once() {
        let shared = SharedOptions::default();
        let nodelay = Options::default().nodelay(true);
        let (first, second) = (shared.share(nodelay.clone()), shared.share(nodelay.clone()));
        assert!(Arc::ptr_eq(&first, &second) && *first == nodelay);
        let other = shared.share(Options::default());
        assert!(!Arc::ptr_eq(&first, &other) && *other == Options::default());
    }
}
