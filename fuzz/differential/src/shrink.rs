//! Runs scripts, and makes one that differs shorter.

use crate::duel::{Difference, Duel, Stop};
use crate::reach::Reach;
use crate::script::Script;

/// Runs that shortening a script may take.
const MAX_TRIES: usize = 3000;

/// What a run looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// Differences.
    Differences,
    /// Panics that both share, too.
    Failures,
}

/// Runs a script on both connections. Returns how they differ, if they do.
pub fn run(
    script: &Script,
    looking: Looking,
    reach: &mut Reach,
    trace: Option<&mut Vec<String>>,
) -> Option<Difference> {
    match Duel::new(&script.setup, reach, trace).run(script) {
        Err(Stop::Differ(difference)) => Some(*difference),
        Err(Stop::Fail(failure)) if looking == Looking::Failures => Some(*failure),
        _ => None,
    }
}

/// The shortest script found that still differs, and how it does.
pub fn shrink(script: &Script, looking: Looking) -> (Script, Difference) {
    let mut reach = Reach::default();
    shrink_by(script, &mut |script| run(script, looking, &mut reach, None))
}

/// As [`shrink`], with another idea of what it is to differ.
fn shrink_by(
    script: &Script,
    differs: &mut dyn FnMut(&Script) -> Option<Difference>,
) -> (Script, Difference) {
    let mut best = script.clone();
    let Some(mut difference) = differs(&best) else {
        unreachable!("only a script that differs is made shorter");
    };
    let kind =
        |found: &Difference| found.what.starts_with("panic") || found.plain == found.otherwise;
    let wanted = kind(&difference);
    let mut tries = 0;
    let mut differs = |script: &Script| {
        tries += 1;
        let found = (tries < MAX_TRIES).then(|| differs(script)).flatten();
        found.filter(|found| kind(found) == wanted)
    };
    if difference.step < best.steps.len() {
        best.steps.truncate(difference.step + 1);
    }
    loop {
        let before = best.clone();
        let mut size = best.steps.len().div_ceil(2);
        while size > 0 {
            drop_each(&mut best, &mut difference, size, |s| &mut s.steps, &mut differs);
            size /= 2;
        }
        drop_each(&mut best, &mut difference, 1, |s| &mut s.setup.settings, &mut differs);
        drop_each(&mut best, &mut difference, 1, |s| &mut s.setup.options, &mut differs);
        if best == before {
            return (best, difference);
        }
    }
}

/// Leaves out every `size` items in a row of a list without which the script still differs.
fn drop_each<T: Clone>(
    best: &mut Script,
    difference: &mut Difference,
    size: usize,
    list: fn(&mut Script) -> &mut Vec<T>,
    differs: &mut impl FnMut(&Script) -> Option<Difference>,
) {
    let mut at = list(best).len();
    while at > 0 {
        let start = at.saturating_sub(size);
        let mut shorter = best.clone();
        list(&mut shorter).drain(start..at);
        if let Some(found) = differs(&shorter) {
            *best = shorter;
            *difference = found;
        }
        at = start;
    }
}

/// What a reader needs to see of a script that differs.
pub fn report(script: &Script, looking: Looking) -> String {
    let (script, difference) = shrink(script, looking);
    format!("{}\n{}", listing(&script), said(&difference))
}

/// A script with everything that happens in it.
pub fn listing(script: &Script) -> String {
    let mut lines = vec![format!("{:#?}", script.setup)];
    run(script, Looking::Failures, &mut Reach::default(), Some(&mut lines));
    shortened(&lines).join("\n")
}

/// Of many packets in a row the first few.
fn shortened(lines: &[String]) -> Vec<String> {
    const SHOWN: usize = 6;
    let mut out = Vec::new();
    let mut in_row = 0;
    for line in lines {
        in_row = if line.contains("  > ") { in_row + 1 } else { 0 };
        if in_row <= SHOWN {
            out.push(line.clone());
        } else if in_row == SHOWN + 1 {
            out.push("               ...".to_string());
        }
    }
    out
}

/// A difference in words.
pub fn said(difference: &Difference) -> String {
    let Difference { what, plain, otherwise, beside, .. } = difference;
    format!(
        "difference: {what}\n  plain: {plain}\n  otherwise: {otherwise}\n  also differ:{beside}"
    )
}

#[cfg(test)]
mod tests;
