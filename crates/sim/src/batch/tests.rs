use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::link::{ANY_PACKETS, QueueConfig};

const BASE: &str = r#"
limit = "20s"
host = [{ name = "a" }, { name = "b" }]

[[link]]
between = ["a", "b"]
forward.rate = "10mbit"
forward.delay = "10ms"
forward.queue = { codel = { bytes = 9000, target = "5ms", interval = "100ms" } }

[[flow]]
from = "a"
to = "b"
up = 300000
down = 0
"#;

const GRID: &str = r#"
scenario = "base.toml"
seeds = "0..2"
points = 50

[grid]
rate = ["5mbit", "20mbit"]
loss = [0, 0.02]
buffer = ["0.5bdp", "2bdp"]
'host[*].sysctl."net.ipv4.tcp_sack"' = ["0", "1"]
"#;

/// A directory of its own, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path =
            std::env::temp_dir().join(format!("plimsoll-batch-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("base.toml"), BASE).unwrap();
        Place(path)
    }

    fn plan(&self, text: &str) -> Result<Plan, ScenarioError> {
        let file = self.0.join("plan.toml");
        fs::write(&file, text).unwrap();
        Plan::load(&file)
    }

    /// The refusal of a plan without the name of the directory.
    fn refused(&self, text: &str) -> String {
        let error = self.plan(text).unwrap_err().to_string();
        error.replace(&format!("{}{}", self.0.display(), std::path::MAIN_SEPARATOR), "")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_grid_has_every_combination_in_the_order_of_the_file() {
    let place = Place::new("grid");
    let plan = place.plan(GRID).unwrap();
    assert_eq!((plan.cells(), plan.seeds(), plan.points()), (16, 0..2, 50));
    assert_eq!(plan.values(0), ["5mbit", "0", "0.5bdp", "0"]);
    assert_eq!(plan.values(1), ["5mbit", "0", "0.5bdp", "1"]);
    assert_eq!(plan.values(15), ["20mbit", "0.02", "2bdp", "1"]);
    let last = plan.scenario(15).unwrap();
    let link = &last.link[0].forward;
    assert_eq!(link.rate, Some(20_000_000));
    assert_eq!(link.loss, crate::link::Loss::Independent(0.02));
    // The product of 20 Mbit/s and 20 ms, twice; the discipline stays.
    assert_eq!(link.queue, QueueConfig::codel(100_000));
    assert!(last.host.iter().all(|host| host.sysctl["net.ipv4.tcp_sack"] == "1"));
    assert_eq!(last.faults_until, last.limit);
    // A file without a grid is one cell.
    assert_eq!(place.plan("scenario = \"base.toml\"").unwrap().cells(), 1);
}

#[test]
fn results_do_not_depend_on_the_workers_and_join_again() {
    let place = Place::new("join");
    let plan = place.plan(GRID).unwrap();
    let whole = measure(&plan, 0..4, 1, |_| ()).unwrap();
    let again = measure(&plan, 0..4, 2, |_| ()).unwrap();
    assert_eq!(whole, again);
    let parts = [2..4, 0..2].map(|cells| measure(&plan, cells, 1, |_| ()).unwrap());
    assert_eq!(Results::join(parts).unwrap(), whole);
    // By seeds as well.
    let seeds = [1..2, 0..1].map(|seeds| plan.clone().with_seeds(seeds).unwrap());
    let parts = seeds.map(|plan| measure(&plan, 0..4, 1, |_| ()).unwrap());
    assert_eq!(Results::join(parts.clone()).unwrap(), whole);
    let [late, early] = parts;
    assert_eq!(Results::join([early, late]).unwrap(), whole);
    let mut other = whole.clone();
    other.cells[0].runs[0].trace = "0".to_owned();
    assert!(Results::join([whole.clone(), other]).unwrap_err().contains("two different runs"));
    let mut other = whole.clone();
    other.keys.pop();
    assert!(Results::join([whole.clone(), other]).unwrap_err().contains("other keys"));
    // The grid is the same, and the scenario is not.
    fs::write(place.0.join("base.toml"), BASE.replace("300000", "200000")).unwrap();
    let other = measure(&place.plan(GRID).unwrap(), 4..5, 1, |_| ()).unwrap();
    assert!(Results::join([whole.clone(), other]).unwrap_err().contains("more than the seeds"));
    fs::write(place.0.join("base.toml"), format!("# The same.\n{BASE}")).unwrap();
    let same = place.plan(&GRID.replace("0..2", "2..3")).unwrap();
    let same = measure(&same, 0..1, 1, |_| ()).unwrap();
    assert_eq!(Results::join([whole, same]).unwrap().cells[0].runs.len(), 3);
    assert!(Results::join([]).is_err());
}

#[test]
fn figures_are_those_of_the_path() {
    let place = Place::new("figures");
    let plan = place.plan(GRID).unwrap();
    let results = measure(&plan, 1..8, 2, |_| ()).unwrap();
    let clean = &results.cells[2];
    assert_eq!(clean.values, ["5mbit", "0", "2bdp", "1"]);
    let run = &clean.runs[0];
    assert!(run.finished && run.violation.is_none());
    // Up to 5 Mbit/s less headers, and at least a good part of it after slow start.
    assert!((2_500_000..4_870_000).contains(&run.goodput_bits_per_s), "{run:?}");
    assert_eq!(run.flow_goodput_bits_per_s, [run.goodput_bits_per_s]);
    assert!(run.segments >= 300_000 / 1460 && run.queue_delay_us.p95 > 1_000);
    let lossy = &results.cells[6];
    assert_eq!(lossy.values, ["5mbit", "0.02", "2bdp", "1"]);
    assert!(lossy.runs[0].dropped > 0 && lossy.runs[0].retransmitted > 0);
    assert!(lossy.median(RunFigures::retransmitted_share) > 0.0);
    let (link, way, bytes) = clean.fullest_queue().unwrap();
    assert_eq!((link, way), (0, crate::scenario::Way::Forward));
    assert!(bytes.iter().any(|&bytes| bytes > 10_000) && bytes.len() <= 50);
}

#[test]
fn worse_results_are_told_apart() {
    let place = Place::new("compare");
    let plan = place.plan(GRID).unwrap();
    let a = measure(&plan, 0..3, 1, |_| ()).unwrap();
    let same = compare(&a, &a, 0.0).unwrap();
    assert!(same.holds() && same.cells.len() == 3);
    assert!(same.cells.iter().all(|cell| cell.goodput.ratio() == Some(1.0)));
    let mut b = a.clone();
    b.cells[1].runs.iter_mut().for_each(|run| run.goodput_bits_per_s /= 2);
    b.cells[2].runs.iter_mut().for_each(|run| run.queue_delay_us.p95 += 900);
    b.cells.remove(0);
    let worse = compare(&a, &b, 0.1).unwrap();
    assert_eq!((worse.worse().count(), worse.only_a.len(), worse.holds()), (1, 1, false));
    let cell = worse.worse().next().unwrap();
    assert!(cell.goodput.worse && !cell.retransmitted.worse);
    assert!((cell.goodput.ratio().unwrap() - 0.5).abs() < 0.01);
    assert_eq!(compare(&b, &a, 0.1).unwrap().only_b.len(), 1);
    b.cells[0].runs[0].violation = Some("x".to_owned());
    assert_eq!(compare(&a, &b, 9.0).unwrap().worse().next().unwrap().new_violations, 1);
    b.cells.clear();
    assert!(compare(&a, &b, 0.1).unwrap_err().contains("nothing to compare"));
    b.keys.clear();
    assert!(compare(&a, &b, 0.1).unwrap_err().contains("other keys"));
}

#[test]
fn a_stack_that_stops_halfway_is_worse() {
    let place = Place::new("stops");
    let plan = place.plan("scenario = \"base.toml\"\nseeds = \"0..2\"").unwrap();
    let a = measure(&plan, 0..1, 1, |_| ()).unwrap();
    let mut b = a.clone();
    b.cells[0].runs[1].finished = false;
    let worse = compare(&a, &b, 9.0).unwrap();
    assert_eq!((worse.cells[0].fewer_finished, worse.holds()), (1, false));
    assert!(compare(&b, &a, 9.0).unwrap().holds());
}

#[test]
fn only_runs_of_the_same_seed_are_compared() {
    let place = Place::new("seeds");
    let plan = place.plan("scenario = \"base.toml\"\nseeds = \"0..3\"").unwrap();
    let a = measure(&plan, 0..1, 1, |_| ()).unwrap();
    let mut b = a.clone();
    // A slow run of a seed that the other lacks is not compared; it is told.
    b.cells[0].runs[2].seed = 7;
    b.cells[0].runs[2].goodput_bits_per_s = 1;
    b.cells[0].runs[2].finished = false;
    let other = compare(&a, &b, 0.0).unwrap();
    let cell = &other.cells[0];
    assert_eq!((cell.compared, &cell.only_a[..], &cell.only_b[..]), (2, &[2][..], &[7][..]));
    assert!(!cell.is_worse() && !other.holds(), "{cell:?}");
    b.cells[0].runs.pop();
    assert!(compare(&b, &a, 0.0).unwrap().holds());
    // A run that broke an invariant has no part in the medians.
    b.cells[0].runs[1].goodput_bits_per_s = 1;
    b.cells[0].runs[1].violation = Some("x".to_owned());
    let cell = &compare(&a, &b, 0.0).unwrap().cells[0];
    assert_eq!((cell.compared, cell.new_violations, cell.goodput.worse), (1, 1, false));
}

#[test]
fn faults_last_until_the_limit_that_the_grid_sets() {
    let place = Place::new("limit");
    let grid = "scenario = \"base.toml\"\n[grid]\nlimit = [\"10s\", \"60s\"]\n";
    let plan = place.plan(grid).unwrap();
    for (cell, seconds) in [(0, 10), (1, 60)] {
        let scenario = plan.scenario(cell).unwrap();
        let limit = plimsoll_tcp::Duration::from_secs(seconds);
        assert_eq!((scenario.limit, scenario.faults_until), (limit, limit));
    }
    let both = place.plan(&format!("{grid}faults_until = [\"5s\"]\n")).unwrap();
    let scenario = both.scenario(1).unwrap();
    assert_eq!(scenario.faults_until, plimsoll_tcp::Duration::from_secs(5));
}

#[test]
fn a_connection_that_times_out_is_not_finished_and_breaks_nothing() {
    let place = Place::new("timeout");
    let grid = "scenario = \"base.toml\"\n[grid]\nlimit = [\"300s\"]\nloss = [1]\n";
    let results = measure(&place.plan(grid).unwrap(), 0..1, 1, |_| ()).unwrap();
    let run = &results.cells[0].runs[0];
    assert_eq!((run.finished, run.violation.as_deref(), run.segments), (false, None, 0));
}

#[test]
fn a_buffer_in_bytes_lifts_the_bound_of_packets() {
    let place = Place::new("buffer");
    let (from, to) = (BASE.find("{ codel").unwrap(), BASE.find("\n\n[[flow]]").unwrap());
    let queue = "{ drop-tail = { bytes = 9000, packets = 4, mark_above = 3000 } }";
    let base = format!("{}{queue}{}", &BASE[..from], &BASE[to..]);
    fs::write(place.0.join("base.toml"), base).unwrap();
    let grid = "scenario = \"base.toml\"\n[grid]\nbuffer = [\"50kB\"]\n";
    let scenario = place.plan(grid).unwrap().scenario(0).unwrap();
    let QueueConfig::DropTail { bytes, packets, mark_above } = scenario.link[0].forward.queue
    else {
        panic!("the discipline stays");
    };
    assert_eq!((bytes, packets, mark_above), (50_000, ANY_PACKETS, 3000));
}

#[test]
fn flows_are_those_of_the_scenario_again_and_again() {
    let place = Place::new("flows");
    let grid = "scenario = \"base.toml\"\n[grid]\nflows = [1, 3]\n";
    let plan = place.plan(grid).unwrap();
    let flows = |cell| plan.scenario(cell).unwrap().flow;
    assert_eq!((flows(0).len(), flows(1).len()), (1, 3));
    assert!(flows(1).iter().all(|flow| *flow == flows(0)[0]));
    let results = measure(&plan, 0..2, 1, |_| ()).unwrap();
    assert_eq!(results.cells[1].runs[0].flow_goodput_bits_per_s.len(), 3);
    assert!(results.cells[1].runs[0].finished);
    for wrong in ["0", "201", "\"many\""] {
        let error = place.refused(&grid.replace("[1, 3]", &format!("[{wrong}]")));
        assert!(error.contains("plan.toml:3: grid.flows") && error.contains("1 to 200"), "{error}");
    }
}

#[test]
fn keys_of_faults_are_refused_where_faults_are_listed() {
    let place = Place::new("listed");
    fs::write(place.0.join("base.toml"), format!("only_listed = true\n{BASE}")).unwrap();
    for key in ["loss", "\"link[0].forward.duplicate\"", "'link[*].forward.loss.independent'"] {
        let error = place.refused(&format!("scenario = \"base.toml\"\n[grid]\n{key} = [0.1]\n"));
        assert!(
            error.contains("plan.toml:3: grid.") && error.contains("lists its faults"),
            "{error}"
        );
    }
    let others = "scenario = \"base.toml\"\n[grid]\nrate = [\"1mbit\"]\n";
    assert_eq!(place.plan(others).unwrap().cells(), 1);
}

#[test]
fn wrong_plans_say_where() {
    let place = Place::new("wrong");
    for (from, to, refusal) in [
        ("0..2", "2..2", "plan.toml:3: seeds: '2..2' is empty"),
        ("points = 50", "points = 50000", "plan.toml:4: points: 50000 points; write at most"),
        ("points", "dots", "plan.toml:4: dots: unknown field"),
        ("rate = [\"5mbit\"", "rate = [\"5furlong\"", "plan.toml:7: grid.rate: unknown unit"),
        ("[0, 0.02]", "[]", "plan.toml:8: grid.loss: an empty list"),
        ("[0, 0.02]", "0.02", "plan.toml:8: grid.loss: this is not a list"),
        ("[0, 0.02]", "[0, 2]", "plan.toml:8: grid.loss: '2' is not between"),
        ("\"2bdp\"", "\"2bpd\"", "plan.toml:9: grid.buffer: unknown unit"),
        ("tcp_sack", "tcp_sacks", "in cell 0 (rate = 5mbit"),
        ("host[*]", "host[9]", "plan.toml:10: grid.'host[9].sysctl.\"net.ipv4.tcp_sack\"': the sc"),
        ("'host[*]", "'hosts[*]", "is no key of a grid; write one of rate, delay"),
        ("base.toml", "no.toml", "no.toml: cannot be read"),
        ("scenario = \"base.toml\"", "", "plan.toml: scenario: a plan needs one; write the name"),
        ("\"base.toml\"", "3", "plan.toml:2: scenario: write the name"),
        ("points = 50", "bottleneck = 1", "there is no link 1 (bottleneck); there are 1"),
    ] {
        assert!(GRID.contains(from), "{from}");
        let error = place.refused(&GRID.replace(from, to));
        assert!(error.contains(refusal), "{to}: {error}");
    }
    let many = format!("{GRID}\"flow[0].up\" = [{}]\n", "1, ".repeat(10_000));
    assert!(place.refused(&many).contains("160000 cells"));
    let plan = place.plan(GRID).unwrap();
    for (seeds, refusal) in [
        (3..3, "seeds: 3..3 has no seed"),
        (Range { start: 9, end: 3 }, "seeds: 9..3 has no seed; write an end above 9"),
        (0..u64::MAX / 4 + 2, "runs; at most 10000000 fit into one plan"),
        (0..625_001, "16 cells with 625001 seeds each"),
    ] {
        let error = plan.clone().with_seeds(seeds).unwrap_err().to_string();
        assert!(error.contains(refusal), "{error}");
    }
    assert_eq!(plan.clone().with_seeds(5..625_005).unwrap().seeds(), 5..625_005);
    let error = measure(&plan, 3..17, 1, |_| ()).unwrap_err();
    assert!(error.to_string().contains("the grid has 0..16"), "{error}");
    assert_eq!(error.file().and_then(Path::file_name).unwrap(), "plan.toml");
    fs::write(place.0.join("base.toml"), format!("faults_until = \"9s\"\n{BASE}colour = 1\n"))
        .unwrap();
    assert!(place.refused(GRID).starts_with("base.toml:17: flow[0].colour: unknown field"));
}
