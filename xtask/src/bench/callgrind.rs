//! How often each atomic instruction of a program was executed, by callgrind and objdump.
//!
//! Callgrind writes a count for every instruction, by object file and address. objdump says which
//! instructions lock the bus or order all memory, addr2line where in the source they come from. The
//! counts are exact and do not depend on what else the machine does.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::frames::{frames, without_types};
use crate::{callgrind, shell};

/// The longest that one run of a tool may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// An atomic instruction that was executed.
pub(super) struct Place {
    pub(super) count: u64,
    pub(super) kind: Kind,
    pub(super) instruction: String,
    /// Source files with lines and functions, the innermost first.
    pub(super) frames: Vec<String>,
}

/// What an atomic instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A read-modify-write with the bus locked: `lock` something, or `xchg` with memory.
    Locked,
    /// A full fence: `mfence`, or a locked `or` of nothing with the stack.
    Fence,
}

/// Runs a program under callgrind, which counts while inside functions whose names match `toggle`.
/// Returns what the program printed, and the atomic instructions, most frequent first.
pub(super) fn atomics(
    program: &Path,
    words: &[&str],
    toggle: &str,
    out: &Path,
) -> Result<(String, Vec<Place>)> {
    let (said, text) = callgrind::run(program, words, toggle, &["--dump-instr=yes"], out)?;
    let mut places = Vec::new();
    for (object, costs) in callgrind::by_address(&text) {
        places.extend(in_object(&object, &costs)?);
    }
    places.sort_by(|a, b| (b.count, &a.frames).cmp(&(a.count, &b.frames)));
    Ok((said, places))
}

fn in_object(object: &str, costs: &HashMap<u64, Vec<u64>>) -> Result<Vec<Place>> {
    if !Path::new(object).is_file() {
        return Ok(Vec::new());
    }
    let words = ["--disassemble", "--no-show-raw-insn", object];
    let out = shell::output(Command::new("objdump").args(words), LIMIT);
    let out = out.context("objdump is needed (apt-get install binutils)")?;
    let out = out.context("objdump did not end in time")?;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        let Some(kind) = kind(instruction) else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        if let Some(&count) = costs.get(&address).and_then(|costs| costs.first()) {
            found.push((address, kind, instruction.trim().to_string(), count));
        }
    }
    let mut frames = frames(object, found.iter().map(|found| found.0))?;
    let place = |(address, kind, instruction, count)| {
        let frames = frames.remove(&address).unwrap_or_default();
        let frames = frames.iter().map(|frame| without_types(frame)).collect();
        Place { count, kind, instruction, frames }
    };
    Ok(found.into_iter().map(place).collect())
}

/// What an instruction is, in the words of objdump, if it is atomic.
fn kind(instruction: &str) -> Option<Kind> {
    let instruction = instruction.trim();
    let on_stack = instruction.ends_with("(%rsp)");
    if instruction.starts_with("mfence") || (instruction.starts_with("lock or") && on_stack) {
        return Some(Kind::Fence);
    }
    let exchange = instruction.starts_with("xchg") && instruction.contains('(');
    (exchange || instruction.starts_with("lock ")).then_some(Kind::Locked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_instructions_are_known() {
        assert_eq!(kind("lock cmpxchg %ecx,0x60(%rdx)"), Some(Kind::Locked));
        assert_eq!(kind("xchg   %eax,(%rcx)"), Some(Kind::Locked));
        assert_eq!(kind("xchg   %ax,%ax"), None);
        assert_eq!(kind("lock orl $0x0,-0x40(%rsp)"), Some(Kind::Fence));
        assert_eq!(kind("mfence"), Some(Kind::Fence));
        assert_eq!(kind("mov    %eax,(%rcx)"), None);
    }
}
