//! How often each atomic instruction of a program was executed, by callgrind and objdump.
//!
//! Callgrind writes a count for every instruction, by object file and address. objdump says which
//! instructions lock the bus or order all memory, addr2line where in the source they come from. The
//! counts are exact and do not depend on what else the machine does.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

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
    for (object, counts) in counts(&text) {
        places.extend(in_object(&object, &counts)?);
    }
    places.sort_by(|a, b| (b.count, &a.frames).cmp(&(a.count, &b.frames)));
    Ok((said, places))
}

/// How often each address was executed, by object file.
fn counts(text: &str) -> BTreeMap<String, HashMap<u64, u64>> {
    let mut objects: BTreeMap<String, HashMap<u64, u64>> = BTreeMap::new();
    let mut object = String::new();
    let mut of_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name.trim().into();
        } else if line.starts_with("calls=") {
            // The next line holds what the called function cost, which is counted there.
            of_call = true;
        } else if let Some((address, count)) = cost(line)
            && !std::mem::take(&mut of_call)
        {
            *objects.entry(object.clone()).or_default().entry(address).or_default() += count;
        }
    }
    objects
}

/// The address of an instruction, and its count, from a line of costs.
fn cost(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.strip_prefix("0x")?.split_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    // Between them is the line of the source.
    Some((address, fields.nth(1)?.parse().ok()?))
}

fn in_object(object: &str, counts: &HashMap<u64, u64>) -> Result<Vec<Place>> {
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
        if let Some(&count) = counts.get(&address) {
            found.push((address, kind, instruction.trim().to_string(), count));
        }
    }
    let mut frames = frames(object, found.iter().map(|found| found.0))?;
    let place = |(address, kind, instruction, count)| {
        let frames = frames.remove(&address).unwrap_or_default();
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

/// The source of addresses, inlined functions included.
fn frames(object: &str, addresses: impl Iterator<Item = u64>) -> Result<HashMap<u64, Vec<String>>> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-i", "-f", "-C", "-e", object]);
    command.args(addresses.map(|address| format!("{address:#x}")));
    let out = shell::output(&mut command, LIMIT);
    let out = out.context("addr2line is needed (apt-get install binutils)")?;
    let out = out.context("addr2line did not end in time")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    let mut current = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(address) = line.strip_prefix("0x") {
            current = u64::from_str_radix(address, 16).ok();
        } else if let (Some(address), Some(place)) = (current, lines.next()) {
            found.entry(address).or_default().push(frame(line, place));
        }
    }
    Ok(found)
}

/// `crates/x/src/y.rs:12 name`, without type parameters.
fn frame(function: &str, place: &str) -> String {
    let place = place.split(" (").next().unwrap_or(place);
    let at = ["/crates/", "/bench/", "/library/"].iter().find_map(|folder| place.find(folder));
    let place = at.map_or(place, |at| &place[at + 1..]);
    let function = function.split('<').next().unwrap_or(function);
    format!("{place} {function}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_calls_are_not_counted_twice() {
        let text = "ob=/a\nfn=x\n0x10 5 2\ncalls=1 0x20 0\n0x14 6 99\n0x10 5 3\nob=/b\n0x10 1 7\n";
        let counts = counts(text);
        assert_eq!(counts["/a"], HashMap::from([(0x10, 5)]));
        assert_eq!(counts["/b"], HashMap::from([(0x10, 7)]));
    }

    #[test]
    fn atomic_instructions_are_known() {
        assert_eq!(kind("lock cmpxchg %ecx,0x60(%rdx)"), Some(Kind::Locked));
        assert_eq!(kind("xchg   %eax,(%rcx)"), Some(Kind::Locked));
        assert_eq!(kind("xchg   %ax,%ax"), None);
        assert_eq!(kind("lock orl $0x0,-0x40(%rsp)"), Some(Kind::Fence));
        assert_eq!(kind("mfence"), Some(Kind::Fence));
        assert_eq!(kind("mov    %eax,(%rcx)"), None);
    }

    #[test]
    fn frames_are_short() {
        let place = "/a/b/crates/stack/src/stack/poll.rs:12 (discriminator 3)";
        assert_eq!(frame("lock<alloc::Box<T>>", place), "crates/stack/src/stack/poll.rs:12 lock");
    }
}
