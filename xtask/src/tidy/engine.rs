//! Rules about the shape of the engine and about what every crate says of itself.

use super::Finding;
use super::lexer::{line_of, matching};
use super::source::Source;

/// Calls of an application that change a connection. Everything else that changes one is an input
/// (`handle`) or an effect (`poll_*`), so that the signature list tells how the machine is run.
const APPLICATION: &[&str] = &[
    "write",
    "write_urgent",
    "read",
    "read_shared",
    "read_urgent",
    "shutdown",
    "shutdown_read",
    "close",
    "abort",
    "set_option",
    "take_error",
    "take_report",
    "write_with",
    "write_corked",
    "write_shared",
    "write_buffered",
    "begin_fast_open",
    "set_write_pending",
    "report_syn_data",
    "adopt",
];

/// How many lines the documentation of a crate has at least: what it is for, its limits, its parts,
/// what it does not do.
const CRATE_DOC: usize = 10;

pub(crate) fn check(source: &Source, findings: &mut Vec<Finding>) {
    connection_methods(source, findings);
    crate_doc(source, findings);
}

/// A public method of `Connection` that takes `&mut self` belongs to one of three families.
fn connection_methods(source: &Source, findings: &mut Vec<Finding>) {
    if !source.path.starts_with("crates/tcp/src/") {
        return;
    }
    for (start, _) in source.code.match_indices("impl Connection {") {
        let end = matching(&source.code, start + "impl Connection ".len());
        let block = &source.code[start..end];
        for (at, _) in block.match_indices("pub fn ") {
            let rest = &block[at + "pub fn ".len()..];
            let name = rest.split(['(', '<']).next().unwrap_or("");
            let arguments = rest.split_once('(').map_or("", |(_, tail)| tail.trim_start());
            let known =
                name == "handle" || name.starts_with("poll_") || APPLICATION.contains(&name);
            if arguments.starts_with("&mut self") && !known && !source.is_test(start + at) {
                let what = format!(
                    "`Connection::{name}` changes a connection but is none of handle, poll_*, {}",
                    APPLICATION.join(", ")
                );
                findings.push(Finding::new(&source.path, line_of(&source.code, start + at), &what));
            }
        }
    }
}

/// The documentation of a crate opens with its theory of operation.
fn crate_doc(source: &Source, findings: &mut Vec<Finding>) {
    if !(source.path.starts_with("crates/") && source.path.ends_with("/src/lib.rs")) {
        return;
    }
    let lines = source.text.lines().take_while(|line| line.starts_with("//!")).count();
    if lines < CRATE_DOC {
        let what = format!("the crate says {lines} lines about itself, {CRATE_DOC} are the least");
        findings.push(Finding::new(&source.path, 1, &what));
    }
}
