//! Tests of the input path.
