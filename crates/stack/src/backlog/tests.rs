//! Tests of the backlog.
