//! Scenario files that are wrong: every refusal names line and key, what is wrong, what to write.
use std::path::Path;

use plimsoll_sim::{Scenario, ScenarioError};

/// A scenario with everything in it.
const WHOLE: &str = r#"limit = "120s"
faults_until = "5s"

[[host]]
name = "a"
sysctl = { "net.ipv4.tcp_sack" = "1" }

[[host]]
name = "b"

[[router]]
name = "r"

[[link]]
between = ["a", "r"]
forward = { rate = "10mbit", delay = "20ms", loss = { independent = 0.01 } }

[[link]]
between = ["r", "b"]
backward = { queue = { codel = { bytes = 60000, target = "5ms", interval = "100ms" } } }
forward = { mtu = 1400 }

[[flow]]
from = "a"
to = "b"
up = 1000000
down = 1000
client = { write = 1000 }

[[event]]
at = "2s"
partition = { link = 0, way = "forward", for = "3s" }

[[event]]
at = "3s"
clock = { host = "a", by = "1s" }

[[fault]]
[fault.packet]
link = 0
way = "forward"
flow = 0
kind = "data"
seq = 0
len = 1000
nth = 0
[fault.fate]
lose = true
"#;

fn refused(from: &str, to: &str) -> ScenarioError {
    assert_eq!(WHOLE.matches(from).count(), 1, "{from}");
    Scenario::parse(&WHOLE.replace(from, to)).expect_err(to)
}

#[test]
fn the_whole_is_right() {
    Scenario::parse(WHOLE).unwrap();
}

/// What is replaced, by what; line and key of the refusal, and a part of it.
const CONTRADICTIONS: [(&str, &str, usize, &str, &str); 29] = [
    ("limit = \"120s\"", "limit = \"0s\"", 1, "limit", "600s"),
    ("until = \"5s\"", "until = \"500s\"", 2, "faults_until", "behind limit"),
    ("name = \"b\"", "name = \"a\"", 9, "host[1].name", "two of the name 'a'"),
    ("name = \"b\"", "name = \"\"", 9, "host[1].name", "write name = \"host1\""),
    ("name = \"b\"", "name = \"../b\"", 9, "host[1].name", "write up to 40 of a-z"),
    ("name = \"r\"", "name = \"b\"", 12, "router[0].name", "two of the name 'b'"),
    (
        "tcp_sack\" = \"1\"",
        "tcp_sack\" = \"7\"",
        6,
        "host[0].sysctl.\"net.ipv4.tcp_sack\"",
        "give ",
    ),
    ("tcp_sack", "tcp_sacks", 6, "host[0].sysctl.\"net.ipv4.tcp_sacks\"", "no such setting"),
    ("between = [\"a\", \"r\"]", "between = [\"c\", \"r\"]", 15, "link[0].between[0]", "a, b, r"),
    ("between = [\"a\", \"r\"]", "between = [\"r\", \"r\"]", 15, "link[0].between", "both ends"),
    ("between = [\"a\", \"r\"]", "between = [\"b\", \"r\"]", 4, "host[0]", "no link ends at 'a'"),
    ("independent = 0.01", "independent = 1.5", 16, "link[0].forward.loss", "from 0 to 1"),
    ("mtu = 1400", "mtu = 68", 21, "link[1].forward.mtu", "576"),
    ("target = \"5ms\"", "target = \"5s\"", 20, "link[1].backward.queue.target", "shorter"),
    ("to = \"b\"", "to = \"c\"", 25, "flow[0].to", "'c'; there are: a, b"),
    ("to = \"b\"", "to = \"r\"", 25, "flow[0].to", "no host 'r'"),
    ("to = \"b\"", "to = \"a\"", 25, "flow[0].to", "talk with itself"),
    ("write = 1000 ", "write = 0 ", 28, "flow[0].client.write", "at least 1"),
    ("write = 1000 ", "write = 99999999 ", 28, "flow[0].client.write", "at most 16777216"),
    ("at = \"2s\"", "at = \"6s\"", 31, "event[0].at", "behind faults_until"),
    ("link = 0, way", "link = 2, way", 32, "event[0].partition.link", "write 0 to 1"),
    ("for = \"3s\"", "for = \"0s\"", 32, "event[0].partition.for", "nothing happens"),
    ("{ host = \"a\", by", "{ host = \"r\", by", 36, "event[1].clock.host", "there are: a, b"),
    ("by = \"1s\"", "by = \"0s\"", 36, "event[1].clock.by", "no time"),
    ("by = \"1s\"", "by = \"1h\"", 36, "event[1].clock.by", "behind limit"),
    ("[fault.packet]\nlink = 0", "[fault.packet]\nlink = 9", 40, "fault[0].packet.link", "0 to 1"),
    ("way = \"forward\"\n", "way = \"both\"\n", 41, "fault[0].packet.way", "forward or backward"),
    ("flow = 0", "flow = 1", 42, "fault[0].packet.flow", "there are 1"),
    ("lose = true", "lose = false", 47, "fault[0].fate", "lose = true"),
];

#[test]
fn contradictions_name_line_and_key_and_what_to_write() {
    for (from, to, line, key, part) in CONTRADICTIONS {
        let error = refused(from, to);
        let shown = error.to_string();
        assert_eq!((error.line(), error.key()), (Some(line), key), "{to}: {shown}");
        assert!(error.reason().contains(part), "{to}: {shown}");
        assert_eq!(shown, format!("line {line}: {key}: {}", error.reason()));
    }
}

#[test]
fn hosts_that_talk_need_a_path() {
    let text = WHOLE.replace("between = [\"r\", \"b\"]", "between = [\"s\", \"b\"]");
    let text = text.replace("name = \"r\"", "name = \"r\"\n\n[[router]]\nname = \"s\"");
    let error = Scenario::parse(&text).unwrap_err();
    assert_eq!(error.key(), "flow[0].to");
    assert!(error.reason().contains("no links lead from 'a' to 'b'"), "{error}");
    // A host forwards nothing.
    let text = WHOLE.replace("between = [\"r\", \"b\"]", "between = [\"a\", \"b\"]");
    let error = Scenario::parse(&text).unwrap_err();
    assert!(error.reason().contains("put a router between"), "{error}");
}

#[test]
fn what_is_no_scenario_says_where() {
    for (from, to, line, key, part) in [
        ("delay", "latency", 16, "link[0].forward.latency", "unknown field `latency`"),
        ("\"20ms\"", "\"20\"", 16, "link[0].forward.delay", "20ms"),
        ("\"10mbit\"", "\"0\"", 16, "link[0].forward.rate", "1bit"),
        ("\"10mbit\"", "\"fast\"", 16, "link[0].forward.rate", "number"),
        ("codel =", "red =", 20, "link[1].backward.queue.red", "codel"),
        ("up = 1000000", "up = \"much\"", 26, "flow[0].up", "u64"),
        ("up = 1000000\n", "", 23, "flow[0]", "missing field `up`"),
        ("partition", "partion", 32, "event[0].partion", "unknown field `partion`"),
        ("\"forward\", for", "\"left\", for", 32, "event[0].partition.way", "forward"),
        ("for = \"3s\"", "during = \"3s\"", 32, "event[0].partition.during", "for"),
        ("at = \"2s\"\n", "", 30, "event[0]", "at = "),
        ("clock = { host = \"a\", by = \"1s\" }\n", "", 34, "event[1]", "write partition or"),
        ("kind = \"data\"", "kind = \"date\"", 43, "fault[0].packet.kind", "data"),
        ("lose = true", "loose = true", 48, "fault[0].fate.loose", "lose"),
    ] {
        let error = refused(from, to);
        let shown = error.to_string();
        assert_eq!((error.line(), error.key()), (Some(line), key), "{to}: {shown}");
        assert!(error.reason().contains(part), "{to}: {shown}");
    }
    let two = refused("clock = {", "stall = { host = \"a\", for = \"1s\" }\nclock = {");
    assert!(two.reason().contains("make two events"), "{two}");
    let none = Scenario::parse("limit = ").unwrap_err();
    assert_eq!(none.line(), Some(1), "{none}");
}

#[test]
fn the_file_is_named() {
    let error = refused("to = \"b\"", "to = \"c\"").in_file(Path::new("x/lossy.toml"));
    assert!(error.to_string().starts_with("x/lossy.toml:25: flow[0].to: there is"), "{error}");
    assert_eq!(error.file(), Some(Path::new("x/lossy.toml")));
}

#[test]
fn a_packet_is_listed_once() {
    let fault = &WHOLE[WHOLE.find("[[fault]]").unwrap()..];
    let error = Scenario::parse(&format!("{WHOLE}{fault}")).unwrap_err();
    assert_eq!(error.key(), "fault[1].packet");
    assert!(error.reason().contains("twice"), "{error}");
}

#[test]
fn both_applications_do_not_wait() {
    let text = WHOLE.replace("write = 1000 }", "answers = true }\nserver = { answers = true }");
    let error = Scenario::parse(&text).unwrap_err();
    assert_eq!((error.line(), error.key()), (Some(29), "flow[0].server.answers"));
}

#[test]
fn a_record_has_the_trace_of_its_run() {
    let record = |trace: &str, listed: &str| {
        let head =
            format!("only_listed = {listed}\nrecord = {{ seed = 3, trace = \"{trace}\" }}\n");
        Scenario::parse(&(head + WHOLE))
    };
    record("0123456789abcdef", "true").unwrap();
    let error = record("0123", "true").unwrap_err();
    assert_eq!((error.line(), error.key()), (Some(2), "record.trace"));
    assert!(error.reason().contains("'0123' is no trace"), "{error}");
    assert_eq!(record("0123456789abcdef", "false").unwrap_err().key(), "only_listed");
}

#[test]
fn buffers_fit_into_memory_together() {
    let flow = "\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nup = 1\ndown = 1\n\
                client = { write = 16777216 }\nserver = { read = 16777216 }\n";
    let error = Scenario::parse(&format!("{WHOLE}{}", flow.repeat(9))).unwrap_err();
    assert!(error.reason().contains("256 MiB"), "{error}");
    Scenario::parse(&format!("{WHOLE}{}", flow.repeat(7))).unwrap();
}
