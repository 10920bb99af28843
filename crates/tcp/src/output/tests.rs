//! Traces of what leaves, and when.
