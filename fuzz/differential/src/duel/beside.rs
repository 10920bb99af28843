//! A difference, and what else differs.

/// Two engines that did not do the same.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The number of the step, counted from 0.
    pub step: usize,
    /// What differs: a call, a packet, a figure, a counter.
    pub what: String,
    /// What the one did that does as the script says.
    pub plain: String,
    /// What the other did.
    pub otherwise: String,
    /// What else differs, in words.
    pub beside: String,
}
