//! What callgrind wrote with `--dump-instr=yes`, by address.

use std::collections::{BTreeMap, HashMap};

/// What is counted, in the order of the costs: `Ir` are instructions.
pub(crate) fn events(text: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("events:"));
    line.unwrap_or_default().split_whitespace().map(String::from).collect()
}

/// What the instruction at each address cost, by object file. Zeros at the end may be missing.
pub(crate) fn by_address(text: &str) -> BTreeMap<String, HashMap<u64, Vec<u64>>> {
    let mut objects: BTreeMap<String, HashMap<u64, Vec<u64>>> = BTreeMap::new();
    let mut object = String::new();
    let mut of_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name.trim().into();
        } else if line.starts_with("calls=") {
            // The next line holds what the called function cost, which is counted there.
            of_call = true;
        } else if let Some((address, cost)) = cost(line)
            && !std::mem::take(&mut of_call)
        {
            let sum = objects.entry(object.clone()).or_default().entry(address).or_default();
            sum.resize(sum.len().max(cost.len()), 0);
            sum.iter_mut().zip(cost).for_each(|(sum, cost)| *sum += cost);
        }
    }
    objects
}

/// The address of an instruction, and its costs, from a line of costs.
fn cost(line: &str) -> Option<(u64, Vec<u64>)> {
    let mut fields = line.strip_prefix("0x")?.split_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    // Between them is the line of the source.
    let costs: Vec<u64> = fields.skip(1).map_while(|field| field.parse().ok()).collect();
    (!costs.is_empty()).then_some((address, costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_calls_are_not_counted_twice() {
        let text = "events: Ir Dr\nob=/a\nfn=x\n0x10 5 2\ncalls=1 0x20 0\n0x14 6 99 4\n0x10 5 3 1\n\
            ob=/b\n0x10 1 7\n";
        let costs = by_address(text);
        assert_eq!(costs["/a"], HashMap::from([(0x10, vec![5, 1])]));
        assert_eq!(costs["/b"], HashMap::from([(0x10, vec![7])]));
        assert_eq!(events(text), ["Ir", "Dr"]);
    }
}
