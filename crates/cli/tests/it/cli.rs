//! The program as people meet it: exit codes, messages, documents.
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn plimsoll(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(line.split_whitespace()).output().unwrap()
}

fn failure(line: &str, code: i32) -> String {
    let output = plimsoll(line);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{line}: {text}");
    text
}

fn document(line: &str) -> Value {
    let output = plimsoll(line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The vocabulary that every document with figures has.
const FIGURES: [&str; 16] = [
    "throughput_bits_per_s",
    "transactions_per_s",
    "packets_per_transaction",
    "octets_per_packet",
    "wire_segments",
    "super_segments",
    "acks_per_gigabyte",
    "acks_per_s",
    "cpu_seconds",
    "cpu_ns_per_transaction",
    "voluntary_context_switches",
    "involuntary_context_switches",
    "context_switches_per_transaction",
    "backlog_drops",
    "latency_us",
    "counters",
];

fn has_figures(document: &Value) {
    for name in FIGURES {
        assert!(document.get(name).is_some(), "{name} is missing");
    }
    assert!(document["counters"]["IpOutRequests"].as_u64().unwrap() > 0);
    assert!(document["cpu_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(document["backlog_drops"], 0);
}

#[test]
fn an_experiment_is_the_same_every_time() {
    let run = || document("lab tso-trim --full --pairs 2 --json -");
    let all = run();
    assert_eq!(all, run());
    let [first] = all.as_array().unwrap().as_slice() else { panic!("{all}") };
    let names = "experiment seed knob pinned published pairs before after best ratio headline \
                 verdict run shown set_aside";
    for name in names.split(' ') {
        assert!(!first[name].is_null(), "{name} is missing");
    }
    assert_eq!(first.as_object().unwrap().len(), 16, "these, and the kernel's, which is null");
    assert_eq!(first["pairs"].as_array().unwrap().len(), 12, "two of each case");
    assert_eq!(first["before"]["data_segments"], 9055);
    assert!(first["after"]["data_segments"].as_u64().unwrap() <= 7247);
    assert!(first["before"]["cpu_seconds"].is_null(), "costs are not taken on a virtual clock");
    let verdict = &first["verdict"];
    assert_eq!(verdict["reached"], true, "{verdict}");
    assert_eq!(verdict["not_reproduced"], json!([]));
    for column in ["before", "after", "best"] {
        for figure in FIGURES {
            assert!(first[column].get(figure).is_some(), "{column}: {figure} is missing");
        }
    }
}

#[test]
fn experiments_in_real_time() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!(
        "lab tso-split --full --pairs 1 -l 0.1 --flows 2 --json - --pcap-dir {}",
        dir.path().display()
    );
    let reports = document(&line);
    let [split] = reports.as_array().unwrap().as_slice() else { panic!("{reports}") };
    let packets = |column: &str| split[column]["packets_per_transaction"].as_f64().unwrap();
    assert!(packets("before") > packets("after"), "{split}");
    assert_eq!(split["before"]["case"], "memory, 2 flows");
    assert!(split["pinned"]["cpus"].is_string());
    for figure in FIGURES {
        assert!(split["after"].get(figure).is_some(), "{figure} is missing");
    }
    let capture = dir.path().join("tso-split-memory-2-flows-after.pcapng");
    assert!(std::fs::metadata(capture).unwrap().len() > 1000);
}

#[test]
fn experiments_on_receiving() {
    let line = "lab pure-ack ack-defer --full --pairs 1 -l 0.1 --flows 1 --json -";
    let reports = document(line);
    let [pure, defer] = reports.as_array().unwrap().as_slice() else { panic!("{reports}") };
    assert_eq!((&pure["seed"], &defer["seed"]), (&"002".into(), &"004".into()));
    let cases = pure["after"]["cases"].as_object().unwrap();
    assert!(cases.contains_key("prequeue off, 1 flow") && cases.contains_key("spinning, 1 flow"));
    for column in ["before", "after", "best"] {
        // A transaction is at least one sleep, unless the client spins.
        let switches = pure[column]["voluntary_switches_per_transaction"].as_f64().unwrap();
        assert!(switches > 0.5, "{column}: {switches}");
        assert!(pure[column]["cpu_seconds"].as_f64().unwrap() > 0.0);
        assert!(defer[column]["acks_per_gigabyte"].as_f64().unwrap() > 0.0);
        assert_eq!(defer[column]["backlog_drops"], 0, "a window holds what it offers");
        for figure in FIGURES {
            assert!(defer[column].get(figure).is_some(), "{column}: {figure} is missing");
        }
    }
    let acks = |column: &str| defer[column]["acks_per_gigabyte"].as_f64().unwrap();
    assert!(acks("after") < acks("before"), "{} {}", acks("before"), acks("after"));
    let drops = "memory, zero copy, backlog as of 2023, 1 flow";
    for column in ["before", "after"] {
        assert!(defer[column]["cases"][drops]["backlog_drops_per_s"].is_number(), "{defer}");
    }
}

#[test]
fn experiments_are_listed_and_captured() {
    let list = String::from_utf8(plimsoll("lab --help").stdout).unwrap();
    assert!(list.contains("tso-trim"), "{list}");
    assert!(failure("lab tso-trimming", 2).contains("known: "));
    let dir = tempfile::tempdir().unwrap();
    let line = format!(
        "lab tso-trim --full --details --pairs 1 --pcap-dir {}",
        dir.path().join("x").display()
    );
    let text = String::from_utf8(plimsoll(&line).stdout).unwrap();
    for part in ["9055 -> 7246", "pinned: plimsoll.tcp_sndbuf_raw", "the published gain", "loses"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let capture = dir.path().join("x/tso-trim-bulk-empty-trim-after.pcapng");
    assert!(std::fs::metadata(capture).unwrap().len() > 1 << 20);
}

#[test]
fn usage_errors() {
    for (line, part) in [
        ("", "Usage"),
        ("sail", "unrecognized subcommand"),
        ("stream --speed 3", "--speed"),
        ("stream -m 0", "at least 1 byte"),
        ("stream --link-rate 10furlongs", "10gbit"),
        ("serve echo:7", "--device is missing"),
        ("serve --device tun:t echo:7", "--address is missing"),
        ("serve --device tun:t --address 192.0.2.2/24", "SERVICE"),
        ("stream --device tun:t --address 192.0.2.2/24", "--to"),
        ("get http://192.0.2.1/", "--device is missing"),
        ("get 192.0.2.1", "http://"),
    ] {
        let text = failure(line, 2);
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn run_time_errors() {
    let line = "serve --device tun:t --address 192.0.2.2/24 http:80:/does/not/exist";
    assert!(failure(line, 1).contains("/does/not/exist"));
    assert!(failure("nstat --pid 2147483647", 1).contains("there is no process 2147483647"));
    let other = failure(&format!("nstat --pid {}", std::process::id()), 1);
    assert!(other.contains("is not a plimsoll that runs a stack"), "{other}");
    let text = failure("stream -n 1 --sysctl net.ipv4.tcp_sock=1", 2);
    assert_eq!(text.matches("net.ipv4.tcp_sock: no such setting").count(), 1, "{text}");
    assert!(failure("stream -n 1 --pcap /does/not/exist.pcapng", 1).contains("exist.pcapng"));
}

#[test]
fn stream_in_one_process() {
    let extras = ["", "--reverse", "--threads", "--reverse --threads", "--offload off --mtu 1280"];
    let buffered = ["-m 100 --write-buffer 16KiB", "-m 100 --write-buffer 16KiB --threads"];
    let shared = ["--shared", "--shared --reverse", "--shared --threads"];
    for extra in extras.into_iter().chain(buffered).chain(shared) {
        let text = document(&format!("stream -n 1MiB -P 2 --json - {extra}"));
        has_figures(&text);
        assert_eq!(text["bytes"], 2 << 20, "{extra}");
        assert_eq!(text["flows"], 2);
        assert_eq!(text["shared"], extra.contains("--shared"));
        assert!(text["throughput_bits_per_s"].as_f64().unwrap() > 0.0);
        assert!(text["transactions_per_s"].is_null());
        assert!(text["latency_us"].is_null());
        assert!(text["wire_segments"].as_u64().unwrap() >= (2 << 20) / 65_535);
    }
}

#[test]
fn transactions_in_one_process() {
    for (command, extra) in [("rr", ""), ("rr", "--threads"), ("crr", ""), ("crr", "--threads")] {
        let text = document(&format!("{command} -r 100,3000 -n 20 -P 3 --json - {extra}"));
        has_figures(&text);
        assert_eq!(text["transactions"], 60, "{command} {extra}");
        assert!(text["packets_per_transaction"].as_f64().unwrap() >= 1.0);
        assert!(text["latency_us"]["p50"].as_f64().unwrap() > 0.0);
        assert!(text["throughput_bits_per_s"].is_null());
    }
}

#[test]
fn a_bad_link() {
    let line = "stream -n 256KiB --loss 2% --reorder 1% --duplicate 1% --delay 100us --json -";
    assert_eq!(document(line)["bytes"], 256 << 10);
    let line = "stream -n 256KiB --fault loss=0.02,reorder=0.02,seed=3 --json -";
    assert_eq!(document(line)["bytes"], 256 << 10);
    let line = "stream -n 256KiB --link-rate 1gbit --json -";
    assert_eq!(document(line)["bytes"], 256 << 10);
}

#[test]
fn idle_connections() {
    let text = document("idle -n 300 --json -");
    assert_eq!(text["connections"], 300);
    assert!(text["client_bytes_per_connection"].as_f64().unwrap() > 0.0);
    assert!(text["server_bytes_per_connection"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_table_for_people() {
    let output = plimsoll("rr -n 10");
    let text = String::from_utf8(output.stdout).unwrap();
    for label in ["transactions/s", "latency", "packets out", "octets/packet", "CPU", "switches"] {
        assert!(text.contains(label), "{label}: {text}");
    }
}

#[test]
fn capture_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng");
    let line = format!("stream -n 64KiB --json - --pcap {}", path.display());
    document(&line);
    let data = std::fs::read(path).unwrap();
    // The magic number of a section header block.
    assert_eq!(&data[..4], &[0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(data.len() > 64 << 10);
}

#[cfg(feature = "manual")]
#[test]
fn manual_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let output = plimsoll(&format!("man {}", dir.path().display()));
    assert!(output.status.success());
    let page = std::fs::read_to_string(dir.path().join("plimsoll-serve.1")).unwrap();
    assert!(page.contains("SERVICE"));
    for shell in ["bash", "zsh", "fish"] {
        let output = plimsoll(&format!("completions {shell}"));
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("plimsoll"));
    }
    let help = String::from_utf8(plimsoll("--help").stdout).unwrap();
    for command in ["stream", "rr", "crr", "idle", "serve", "get", "nstat", "sysctl", "ss", "qdisc"]
    {
        assert!(help.contains(&format!("  {command} ")), "{command}: {help}");
    }
}

#[test]
fn settings_and_counters_are_explained() {
    let text = |line: &str| String::from_utf8(plimsoll(line).stdout).unwrap();
    let setting = text("sysctl --explain tcp_autocorking");
    assert_eq!(setting.lines().next(), Some("net.ipv4.tcp_autocorking"));
    assert!(setting.contains("default 1; takes 0 or 1") && setting.contains("set_autocork"));
    let counter = text("nstat --explain AutoCork");
    assert!(counter.starts_with("TcpExtTCPAutoCorking\n    Packets that were held"), "{counter}");
    assert!(failure("sysctl --explain tcp_sack=0", 1).contains("changes nothing"));
    assert!(failure("nstat --explain Nonsense", 1).contains("Nonsense"));
}

#[test]
fn a_running_process_answers() {
    let runtime = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(line.split_whitespace()).env("XDG_RUNTIME_DIR", runtime.path());
        command
    };
    let mut child =
        run("stream -l 600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ask = |line: &str| run(&format!("{line} --pid {}", child.id())).output().unwrap();
    // The first question may come before the socket is there.
    let first = loop {
        let output = ask("nstat --json IpOutRequests");
        if output.status.success() {
            break output;
        }
        std::thread::yield_now();
    };
    let stacks: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(stacks[0]["stack"], "client");
    let text = |line: &str| String::from_utf8(ask(line).stdout).unwrap();
    let explained = String::from_utf8(plimsoll("nstat --explain").stdout).unwrap();
    let names = |stack: &Value| stack["values"].as_array().cloned().unwrap_or_default();
    let all: Value = serde_json::from_str(&text("nstat -z --json")).unwrap();
    assert!(names(&all[0]).len() > 100);
    for pair in names(&all[0]) {
        let name = pair[0].as_str().unwrap();
        assert!(explained.lines().any(|line| line == name), "{name} is not explained");
    }
    assert!(text("ss -a").contains("LISTEN"));
    let unknown = ask("nstat nosuch");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no counter has nosuch"));
    // The reader of the answer may close the pipe before it comes.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let line = format!("nstat --pid {}", child.id());
    let status = run(&line).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(text("sysctl net.ipv4.tcp_sack").contains("net.ipv4.tcp_sack = 1"));
    assert!(text("sysctl net.ipv4.tcp_sack=0").contains("net.ipv4.tcp_sack = 0"));
    assert!(text("qdisc").contains("qdisc pfifo dev "));
    assert!(text("qdisc set link0 fq limit 99").starts_with("qdisc fq dev link0 root limit 99p"));
    let stacks: Value = serde_json::from_str(&text("qdisc show link0 --json")).unwrap();
    assert_eq!(stacks[0]["qdiscs"][0]["kind"], "fq");
    assert_eq!(ask("qdisc link0 sfq").status.code(), Some(1));
    let refused = ask("sysctl net.ipv4.tcp_sock");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no such setting"));
    child.kill().unwrap();
    child.wait().unwrap();
}

const SCRIPT: &str = "
 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
+0 write(4, ..., 1500) = 1500
";

#[test]
fn drill_runs_files_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("topic");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("a.pkt"), format!("{SCRIPT}+0 > P. 1:1501(1500) ack 1\n")).unwrap();
    std::fs::write(inner.join("notes.txt"), "no script").unwrap();
    let path = folder.path().display();
    let output = plimsoll(&format!("drill {path} --segments"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("passed  ") && text.contains("S. 0 0\nP. 1 1500\n"), "{text}");
    assert!(text.ends_with("\n1 script: 1 passed, 0 failed, 0 skipped, 0 in error\n"), "{text}");

    std::fs::write(inner.join("b.pkt"), format!("{SCRIPT}+0 > . 1:1501(1500) ack 1\n")).unwrap();
    std::fs::write(inner.join("c.pkt"), "0 nonsense\n").unwrap();
    let (json, junit) = (folder.path().join("j.json"), folder.path().join("j.xml"));
    let line =
        format!("drill {path} --jobs 3 --json {} --junit {}", json.display(), junit.display());
    let output = plimsoll(&line);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "all has been said already");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("3 scripts: 1 passed, 1 failed, 0 skipped, 1 in error\n"), "{text}");
    let list: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let of = |at: usize, name: &str| list[at][name].clone();
    assert_eq!(["passed", "failed", "error"], [0, 1, 2].map(|at| of(at, "status")));
    assert!(of(0, "cause").is_null() && of(0, "ms").as_f64().unwrap() >= 0.0);
    assert!(of(1, "cause").as_str().unwrap().contains("line 10: the flags are P. instead of ."));
    assert!(of(1, "file").as_str().unwrap().ends_with("b.pkt"));
    assert!(std::fs::read_to_string(&junit).unwrap().contains("tests=\"3\" failures=\"1\""));

    let (once, again) = (plimsoll(&format!("drill {path}")), plimsoll(&format!("drill {path}")));
    assert_eq!(once.stdout, again.stdout, "the same text every time");
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(text.contains("^^^^") && text.contains("packets so far:"), "{text}");

    // The reader may close the pipe after the first line; the status reports the result anyway.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.arg("drill").arg(&inner).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
}

#[test]
fn drill_refuses_wrong_options() {
    assert!(failure("drill", 2).contains("FILE|DIR"));
    assert!(failure("drill /nonexistent/x.pkt", 1).contains("/nonexistent/x.pkt"));
    assert!(failure("drill x.pkt --ip_version=ipv5", 2).contains("ipv5"));
    assert!(failure("drill x.pkt --local-ip=2001:db8::1", 2).contains("--local_ip"));
    assert!(failure("drill x.pkt --json - --junit -", 2).contains("standard output"));
    let empty = tempfile::tempdir().unwrap();
    assert!(failure(&format!("drill {}", empty.path().display()), 1).contains("no script"));
}

/// The effect of the rule for tails is found in a capture, and the page and JSON are written. The
/// capturing program does not end by Ctrl-C, as it is not in the foreground.
#[test]
fn interrupts_end_a_capture_that_does_not_end() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["explain", "-"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Frames of an unknown link, more than a pipe holds: some of them are read when all are
    // written, and interrupts are waited for by then.
    let mut capture = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 147].to_vec();
    (0..100_000).for_each(|_| capture.extend([1, 1, 4, 4, 0]));
    let capture: Vec<u8> = capture.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&capture).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let interrupt = || rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    interrupt();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("Ctrl-C once more"), "{line}");
    interrupt();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("standard input"), "{text}");
    drop(input);
}

#[test]
fn a_capture_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (capture, page) = (path("split.pcapng"), path("split.html"));
    let rr = "rr -r 4096,4096 -n 200 --sysctl plimsoll.tcp_tso_tail=split --json - --pcap";
    document(&format!("{rr} {capture}"));
    let report = document(&format!("explain {capture} --json - --html {page}"));
    assert_eq!(report["flows"][0]["findings"][0]["kind"], "tail_sent_apart", "{report}");
    assert_eq!((&report["format"], &report["skipped"]["broken"]), (&"pcapng".into(), &0.into()));
    assert!(std::fs::read_to_string(page).unwrap().contains("sent apart"));
    let html = plimsoll(&format!("explain {capture} --html -")).stdout;
    assert_eq!(html, std::fs::read(path("split.html")).unwrap());
    assert!(failure(&format!("explain {capture} --html - --json -"), 2).contains("only one of"));
    let text = String::from_utf8(plimsoll(&format!("explain {capture}")).stdout).unwrap();
    assert!(text.contains("plimsoll.tcp_tso_tail = nagle"), "{text}");
    let piped = |input: &Path, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["explain", "-"]).args(words).stdin(File::open(input).unwrap());
        command.output().expect("the program runs")
    };
    let out = piped(Path::new(&capture), &["--json", "-"]);
    let mut same: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(same["file"], "standard input");
    same["file"] = report["file"].clone();
    assert_eq!(same, report);
    let says = |words: &str| failure(&format!("explain {words}"), 1);
    assert!(says("Cargo.toml").contains("Cargo.toml: this is not a capture but text"));
    assert!(says(&dir.path().to_string_lossy()).contains("Is a directory"));
    let (zip, cut) = (path("split.gz"), path("cut.pcapng"));
    std::fs::write(&zip, [0x1f, 0x8b, 8, 0]).unwrap();
    assert!(says(&zip).contains("gzip -dc"));
    let whole = std::fs::read(&capture).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 3]).unwrap();
    assert!(document(&format!("explain {cut} --json -"))["note"].is_string());
    let out = piped(Path::new("/dev/null"), &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("standard input: it is empty"));
}

/// Runs a command that must end by itself. One that hangs is killed.
fn bounded(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (tell, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match ended.recv_timeout(std::time::Duration::from_secs(100)) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            panic!("{words:?} hangs");
        }
    }
}

#[test]
fn a_connection_that_cannot_be_opened_ends_the_run() {
    let ports = "net.ipv4.ip_local_port_range=40000 40003";
    for more in [&["rr", "-n", "10"][..], &["stream", "-n", "10"], &["crr", "-n", "10"]] {
        for threads in [&[][..], &["--threads"]] {
            let words = [more, &["-P", "8", "--sysctl", ports], threads].concat();
            let output = bounded(&words);
            let text = String::from_utf8(output.stderr).unwrap();
            // Threads of crr may come one after the other, so that there are ports enough.
            if more[0] == "crr" && threads == ["--threads"] && output.status.success() {
                assert!(!text.contains("cannot connect"), "{words:?}: {text}");
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
            assert!(text.contains("widen net.ipv4.ip_local_port_range"), "{words:?}: {text}");
        }
    }
}

#[test]
fn a_link_that_loses_everything_ends_the_run() {
    let retries = "net.ipv4.tcp_syn_retries=1";
    let lost = ["--loss", "0.9999999", "--sysctl", retries];
    for more in [&["stream", "-l", "1"][..], &["rr", "-l", "1"], &["crr", "-l", "1"]] {
        for threads in [&[][..], &["--threads"]] {
            let words = [more, &lost, threads].concat();
            let output = bounded(&words);
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
            assert!(text.contains("nothing answered"), "{words:?}: {text}");
        }
    }
}

#[test]
fn what_cannot_be_written_is_said_before_the_run() {
    for command in ["stream -l 600", "rr -l 600", "crr -l 600", "idle -n 1000000"] {
        let text = failure(&format!("{command} --json /nonexistent/x.json"), 1);
        assert!(text.contains("cannot write /nonexistent/x.json"), "{command}: {text}");
    }
    let text = failure("stream -l 600 --pcap /nonexistent/x.pcapng", 1);
    assert!(text.contains("cannot write /nonexistent/x.pcapng"), "{text}");
}

/// The reader of a document may close it early.
#[test]
fn a_closed_pipe_is_no_failure() {
    for line in ["stream -n 1", "rr -n 1", "crr -n 1", "idle -n 10"] {
        for json in [&[][..], &["--json", "-"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            let output = command.args(line.split(' ')).args(json).stdout(writer).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{line} {json:?}: {text}");
        }
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_told_of() {
    let text = failure("stream -n 64KiB --pcap /dev/full", 1);
    assert!(text.contains("the capture /dev/full ends early"), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert_eq!(text.lines().count(), 1, "it is told of once: {text}");
}

#[test]
fn a_server_names_all_that_is_missing_and_what_is_there_twice() {
    let text = failure("serve", 2);
    for part in ["--device tun:plimsoll0", "--address 192.0.2.2/24", "echo:7"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tun = "serve --device tun:nothing0 --address 192.0.2.2/24";
    let text = failure(&format!("{tun} echo:7 rr:7:1"), 2);
    assert!(text.contains("port 7 is given to two services, echo and rr"), "{text}");
    let text = failure(&format!("{tun},192.0.2.2/25 echo:7"), 2);
    assert!(text.contains("--address has 192.0.2.2 twice"), "{text}");
}

#[test]
fn settings_that_cannot_be_are_explained() {
    let text = failure("stream -n 1 --sysctl net.ipv4.tcp_sak=1", 2);
    assert!(text.contains("tcp_sak") && text.contains("plimsoll sysctl --explain"), "{text}");
    let text = failure("idle -n 10 --sysctl net.ipv4.tcp_sak=1", 2);
    assert!(text.contains("plimsoll sysctl --explain"), "{text}");
    let text = failure("idle -n 1000 --sysctl net.core.somaxconn=10", 2);
    assert!(text.contains("net.core.somaxconn is 10") && text.contains("256 or more"), "{text}");
}
