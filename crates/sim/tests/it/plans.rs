//! The plans that the repository ships are plans.

use std::fs;
use std::path::Path;

use plimsoll_sim::batch::Plan;

#[test]
fn plans_of_the_repository_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans/nsperf");
    let mut cells = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let plan = Plan::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        cells.push((name, plan.cells()));
    }
    cells.sort();
    let expected = [
        ("bufferbloat", 8),
        ("coexist", 7),
        ("ecn_bulk", 16),
        ("random_loss", 26),
        ("shallow", 10),
    ];
    assert_eq!(cells, expected.map(|(name, cells)| (name.to_owned(), cells)));
}
