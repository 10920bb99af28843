//! Tests of TIME-WAIT.
