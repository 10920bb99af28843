//! What the types of a connection may take. They grow only on purpose: a million connections pay
//! for every byte of the first four, and each packet is moved some times.
#![cfg(target_pointer_width = "64")]

use std::collections::BTreeMap;

/// Most bytes of each type.
const BUDGET: [(&str, usize); 10] = [
    ("Connection", 1280),
    ("SendSide", 736),
    ("RecvSide", 232),
    ("Flight", 488),
    ("Controller", 72),
    ("Scoreboard", 88),
    ("TimerTable", 80),
    ("SentRange", 56),
    ("Segment", 168),
    ("Transmit", 208),
];

#[test]
fn types_keep_to_their_budgets() {
    let sizes: BTreeMap<&str, usize> = plimsoll_tcp::type_sizes().iter().copied().collect();
    assert_eq!(sizes.len(), BUDGET.len(), "each type has a budget: {sizes:?}");
    let over = BUDGET.iter().filter(|(name, most)| sizes[name] > *most);
    let over: Vec<_> = over.map(|&(name, most)| (name, sizes[name], most)).collect();
    assert!(over.is_empty(), "types, their bytes, and what is allowed: {over:?}");
}
