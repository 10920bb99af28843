//! `plimsoll sim`: each of its commands, as people meet it.
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Runs `plimsoll sim` in `dir`.
fn sim(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(dir).arg("sim").args(line.split_whitespace()).output().unwrap()
}

/// The output of a command that ends with `code`.
fn printed(dir: &Path, line: &str, code: i32) -> String {
    let output = sim(dir, line);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, errors) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}: {out}{errors}");
    if code == 0 { out } else { out + &errors }
}

const SCENARIO: &str = r#"
limit = "60s"
faults_until = "10s"
host = [{ name = "a" }, { name = "b" }]

[[link]]
between = ["a", "b"]
forward.rate = "10mbit"
forward.delay = "10ms"
forward.loss = { independent = 0.02 }
forward.queue = { drop-tail = { bytes = 20000, packets = 1000 } }

[[flow]]
from = "a"
to = "b"
up = 300000
down = 1000
"#;

const PLAN: &str = r#"
scenario = "lossy.toml"
points = 40

[grid]
rate = ["5mbit", "10mbit"]
controller = ["cubic", "reno"]
"#;

fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lossy.toml"), SCENARIO).unwrap();
    fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    dir
}

#[test]
fn a_run_is_recorded_and_replayed() {
    let place = place();
    let dir = place.path();
    let run = printed(dir, "run lossy.toml --seed 3 --record run.toml --pcap out", 0);
    assert!(run.contains("301000 bytes") && !run.contains(" 0 faults"), "{run}");
    assert!(dir.join("out/a.pcapng").metadata().unwrap().len() > 100_000);
    assert!(fs::read_to_string(dir.join("run.toml")).unwrap().contains("[record]\nseed = 3"));
    // With captures, which have steps of their own.
    assert_eq!(printed(dir, "replay run.toml --pcap again", 0), run);
    let again = printed(dir, "replay run.toml --seed 3", 0);
    assert_eq!(again.lines().last(), run.lines().last());
    let refused = printed(dir, "replay run.toml --seed 4", 2);
    assert!(refused.contains("run.toml: this is the record of seed 3, not of seed 4"), "{refused}");
    let refused = printed(dir, "replay lossy.toml", 2);
    assert!(refused.contains("lossy.toml: this scenario has no [record] table"), "{refused}");
    let refused = printed(dir, "replay out/a.pcapng", 2);
    assert!(refused.contains("out/a.pcapng: this is not a text file"), "{refused}");
    // A changed file is no longer that run.
    let text = fs::read_to_string(dir.join("run.toml")).unwrap();
    fs::write(dir.join("run.toml"), text.replace("up = 300000", "up = 200000")).unwrap();
    let output = sim(dir, "replay run.toml");
    assert!(String::from_utf8(output.stderr).unwrap().contains("not those of the recorded run"));
}

#[test]
fn a_wrong_scenario_is_told_with_file_line_and_key() {
    let place = place();
    let dir = place.path();
    fs::write(dir.join("bad.toml"), SCENARIO.replace("to = \"b\"", "to = \"c\"")).unwrap();
    let refused = printed(dir, "run bad.toml", 2);
    let expected = "bad.toml:15: flow[0].to: there is no host 'c'; there are: a, b";
    assert!(refused.contains(expected), "{refused}");
    let refused = printed(dir, "run none.toml", 1);
    assert!(refused.contains("cannot read none.toml"), "{refused}");
}

#[test]
fn a_swarm_says_what_it_did() {
    let place = place();
    let dir = place.path();
    let whole = printed(dir, "swarm --runs 4 -j 2 -v", 0);
    assert!(whole.contains("4 runs, 0 failed") && whole.contains("runs and "), "{whole}");
    assert!(whole.contains("TcpRetransSegs") && whole.contains("worst thousand"), "{whole}");
    assert!(whole.contains("never reached: "), "four runs do not reach everything: {whole}");
    let part = printed(dir, "swarm --seeds 0..1 --twice", 0);
    assert!(part.contains("1 runs, 0 failed"), "{part}");
    printed(dir, "swarm --runs 1 --all-reached", 1);
    for (line, part) in [
        ("swarm --seeds 7..7", "'7..7' is empty, because its end, 7, is not included; try 7..8"),
        ("swarm --seeds 7", "'7' is not a range; try 0..1000"),
        ("swarm --runs 0", "'0' is not a whole number from 1"),
    ] {
        let refused = printed(dir, line, 2);
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_failing_run_shrinks_to_a_file_that_replays() {
    let place = place();
    let dir = place.path();
    // It cannot finish in its time.
    let text = SCENARIO.replace("\"60s\"", "\"1s\"").replace("\"10s\"", "\"1s\"");
    fs::write(dir.join("late.toml"), text.replace("up = 300000", "up = 30000000")).unwrap();
    let failed = printed(dir, "run late.toml --seed 5", 1);
    assert!(failed.contains("FAILED") && failed.contains("every flow finishes"), "{failed}");
    let shrunk = printed(dir, "shrink late.toml --seed 5 --budget 30 -o small.toml --pcap out", 0);
    assert!(shrunk.contains("plimsoll sim replay small.toml"), "{shrunk}");
    assert!(dir.join("out/a.pcapng").exists());
    let replayed = printed(dir, "replay small.toml", 1);
    assert!(replayed.contains("every flow finishes"), "{replayed}");
    let none = printed(dir, "shrink lossy.toml --seed 5 -o none.toml", 1);
    assert!(none.contains("does not fail"), "{none}");
}

#[test]
fn a_batch_is_written_three_ways_and_its_parts_join() {
    let place = place();
    let dir = place.path();
    let all = "batch plan.toml --seeds 0..2 --json all.json --csv all.csv --html all.html";
    let table = printed(dir, all, 0);
    assert!(table.contains("goodput Mbit/s") && table.contains("2 of 2"), "{table}");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    // Other threads, the same bytes.
    printed(dir, &all.replace("all.", "again.").replace("--json", "-j 3 --json"), 0);
    for kind in ["json", "csv"] {
        assert_eq!(read(&format!("all.{kind}")), read(&format!("again.{kind}")));
    }
    let document: Value = serde_json::from_str(&read("all.json")).unwrap();
    assert_eq!(document["keys"], serde_json::json!(["rate", "controller"]));
    assert_eq!(document["cells"][3]["values"], serde_json::json!(["10mbit", "reno"]));
    assert!(document["cells"][0]["runs"][1]["goodput_bits_per_s"].as_u64().unwrap() > 100_000);
    let csv = read("all.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 9, "{csv}");
    assert!(lines[0].starts_with("cell,rate,controller,seed,finished,"), "{csv}");
    assert!(lines[8].starts_with("3,10mbit,reno,1,true,"), "{csv}");
    let page = read("all.html");
    for part in
        ["<svg", "pacing rate", "queue", "id=\"cell-3\"", "in flight", "<use href=\"#c3-4\""]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "the page needs nothing else");
    // A job array: parts by cells and by seeds, put together again in one file or in several.
    printed(dir, "batch plan.toml --seeds 0..2 --cells 0..3 --json one.json", 0);
    printed(dir, "batch plan.toml --seeds 0..1 --cells 3..4 --json two.json", 0);
    printed(dir, "batch plan.toml --seeds 1..2 --cells 3..4 --json three.json", 0);
    fs::write(dir.join("both.json"), read("two.json") + &read("one.json")).unwrap();
    printed(dir, "merge both.json three.json --json joined.json --html joined.html", 0);
    assert_eq!(read("joined.json"), read("all.json"));
    assert_eq!(printed(dir, "batch plan.toml --csv - --seeds 0..2", 0), csv);
    for (line, part) in [
        ("batch plan.toml --cells 4..9", "plan.toml:5: grid: there are no cells 4..9"),
        (
            "batch plan.toml --seeds 0..4611686018427387905",
            "--seeds: 4 cells with 4611686018427387905",
        ),
        ("batch plan.toml --json - --csv -", "only one of --json, --csv and --html"),
        ("batch lossy.toml", "lossy.toml:3: faults_until: unknown field `faults_until`"),
        ("merge plan.toml", "plan.toml: expected value at line 2 column 1; results are what"),
        ("merge empty.json", "empty.json is empty"),
    ] {
        fs::write(dir.join("empty.json"), "").unwrap();
        let refused = printed(dir, line, 2);
        assert!(refused.contains(part), "{line}: {refused}");
    }
}

#[test]
fn two_batches_are_compared() {
    let place = place();
    let dir = place.path();
    printed(dir, "batch plan.toml --json a.json", 0);
    let same = printed(dir, "compare a.json a.json --tolerance 0", 0);
    assert!(same.contains("x1.000") && same.contains("0 of 4 cells are worse"), "{same}");
    // The same cells, with more loss and half of the rate.
    let text = SCENARIO.replace("0.02", "0.2");
    fs::write(dir.join("lossy.toml"), text).unwrap();
    printed(dir, "batch plan.toml --json b.json --cells 0..3", 0);
    let worse = printed(dir, "compare a.json b.json --tolerance 10%", 1);
    assert!(worse.contains("worse: goodput, retransmissions"), "{worse}");
    assert!(worse.contains("only in the first: rate = 10mbit, controller = reno"), "{worse}");
    assert!(worse.contains("3 of 3 cells are worse by more than 10 %"), "{worse}");
    fs::write(
        dir.join("other.toml"),
        PLAN.replace("controller", "\"flow[0].v6\"").replace("[\"cubic\", \"reno\"]", "[true]"),
    )
    .unwrap();
    printed(dir, "batch other.toml --json c.json", 0);
    let refused = printed(dir, "compare a.json c.json", 2);
    assert!(refused.contains("the grids have other keys"), "{refused}");
    let refused = printed(dir, "compare a.json lossy.toml", 2);
    assert!(refused.contains("lossy.toml: "), "{refused}");
}

/// The example of the documentation.
#[test]
fn the_documented_scenario_and_plan_run() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulator.md"))
            .unwrap();
    let mut examples =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::write(dir.join("lossy.toml"), examples.next().unwrap()).unwrap();
    fs::write(dir.join("plan.toml"), examples.next().unwrap()).unwrap();
    let run = printed(dir, "run lossy.toml --seed 3 --record run.toml", 0);
    assert!(run.contains("5001000 bytes"), "{run}");
    let batch = printed(dir, "batch plan.toml --cells 0..1 --seeds 0..1", 0);
    assert!(batch.contains("1 of 1"), "{batch}");
}
