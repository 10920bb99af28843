//! The engine; under construction.
