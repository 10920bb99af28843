//! State that an idle connection does not need.
//!
//! A [`Lease`] holds a value in its own memory, from the first change on until it is freed. Without
//! that memory it reads as a blank value that all connections share. So an idle connection costs
//! one word, and code that uses the value need not distinguish the cases.
//!
//! Taking a lease allocates. Code that runs for every packet must therefore check
//! [`leased`](Lease::leased) where it would only change a blank value into another one. The
//! connection's owner frees leases when the connection has not been in use for a while
//! (`Connection::releases_at`), so that a connection in a request-response exchange keeps them.

use core::fmt;
use core::ops::{Deref, DerefMut};

use plimsoll_buf::Leased;

/// A type with a blank value.
pub(crate) trait Blank: Sized + 'static {
    /// A new one.
    fn new_blank() -> Self;

    /// The one that is read in place of one that there is not.
    fn blank() -> &'static Self;
}

/// Implements [`Blank`] for a type by a constant expression.
macro_rules! blank {
    ($type:ty, $new:expr) => {
        impl crate::lease::Blank for $type {
            fn new_blank() -> Self {
                $new
            }

            fn blank() -> &'static Self {
                static BLANK: $type = $new;
                &BLANK
            }
        }
    };
}

pub(crate) use blank;

/// See the module.
pub(crate) struct Lease<T>(Option<Leased<T>>);

impl<T: Blank> Lease<T> {
    pub(crate) const fn new() -> Lease<T> {
        Lease(None)
    }

    /// The value to be changed, if there is one.
    #[inline]
    pub(crate) fn leased(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Whether there is its own value.
    pub(crate) fn is_leased(&self) -> bool {
        self.0.is_some()
    }

    /// From now on it is blank.
    pub(crate) fn give_back(&mut self) {
        self.0 = None;
    }

    /// Bytes of heap held, without those held by the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.is_leased() { size_of::<T>() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn take() -> Leased<T> {
        Leased::new(T::new_blank())
    }
}

impl<T: Blank + fmt::Debug> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Blank> Deref for Lease<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => T::blank(),
        }
    }
}

impl<T: Blank> DerefMut for Lease<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(Self::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    blank!([u64; 4], [7; 4]);

    #[test]
    fn the_first_change_takes_it() {
        let mut lease: Lease<[u64; 4]> = Lease::new();
        assert_eq!((lease[2], lease.is_leased(), lease.heap_bytes()), (7, false, 0));
        assert!(lease.leased().is_none());
        lease[2] = 9;
        assert_eq!((*lease, lease.heap_bytes()), ([7, 7, 9, 7], 32));
        assert!(lease.leased().is_some());
        lease.give_back();
        assert_eq!((*lease, lease.is_leased()), ([7; 4], false));
        assert_eq!(size_of::<Lease<[u64; 4]>>(), size_of::<usize>());
    }
}
