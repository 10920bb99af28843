//! Setters for structs that may get more fields.

/// Gives a struct with public fields a method for each that sets it and returns the struct. Other
/// crates need them, because they cannot write a `#[non_exhaustive]` struct out.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $name {
            $(
                #[doc = concat!(
                    "Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
