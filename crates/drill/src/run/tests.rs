//! Whole scripts: those that pass, and what is said of those that do not.

use crate::report::{Report, Status};
use crate::suite::{Options, run_text};

/// Runs a script with options `--name=value`.
fn run_with(options: &[(&str, Option<&str>)], text: &str) -> Report {
    let options = options.iter();
    let options =
        options.map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
    let options = Options { options, ..Options::default() };
    run_text("test.pkt", text, None, &options)
}

fn run(text: &str) -> Report {
    run_with(&[], text)
}

#[track_caller]
fn passes(text: &str) {
    let report = run(text);
    assert_eq!(report.status, Status::Passed, "{}", report.text);
}

/// The status and all parts of the message.
#[track_caller]
fn fails(text: &str, status: Status, parts: &[&str]) {
    let report = run(text);
    assert_eq!(report.status, status, "{}", report.text);
    for part in parts {
        assert!(report.text.contains(part), "no `{part}` in:\n{}", report.text);
    }
}

/// A connection with descriptor 4, no options but the MSS.
const ACCEPTED: &str = "
 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.01 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
";

fn accepted(rest: &str) -> String {
    format!("{ACCEPTED}{rest}")
}

#[test]
fn a_whole_connection() {
    passes(&accepted(
        "+0 write(4, ..., 2500) = 2500
         +0 > P. 1:2501(2500) ack 1
         +.01 < . 1:1001(1000) ack 2501 win 32792
         +0 read(4, ..., 4096) = 1000
         +0 > . 2501:2501(0) ack 1001
         +0 %{ assert tcpi_state == TCP_ESTABLISHED; n = tcpi_snd_mss }%
         +0 %{ assert n == 1000, n }%
         +0 close(4) = 0
         +0 > F. 2501:2501(0) ack 1001
         +.01 < F. 1001:1001(0) ack 2502 win 32792
         +0 > . 2502:2502(0) ack 1002",
    ));
}

#[test]
fn numbers_are_relative_and_timestamps_are_translated() {
    passes(
        " 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
         +0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
         +0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
         +0 > S 77:77(0) <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 10>
         +.1 < S. 900:900(0) ack 78 win 5792 <mss 1000,sackOK,TS val 700 ecr 100,nop,wscale 7>
         +0 > . 1:1(0) ack 1 <nop,nop,TS val 200 ecr 700>
         +0 write(3, ..., 1000) = 1000
         +0 > P. 1:1001(1000) ack 1 <nop,nop,TS val 200 ecr 700>
         +.1 < . 1:1(0) ack 1 win 257 <nop,nop,TS val 800 ecr 200,nop,nop,sack 501:1001>",
    );
    fails(
        &accepted("+.1 < . 1:1(0) ack 1 win 257 <nop,nop,TS val 800 ecr 200>"),
        Status::Error,
        &["the timestamp 200 cannot be echoed"],
    );
}

#[test]
fn sleeping_calls() {
    passes(&accepted("+0...0.2 read(4, ..., 10) = 10\n+.2 < P. 1:11(10) ack 1 win 32792"));
    fails(
        &accepted("+0...0.5 read(4, ..., 10) = 10\n+.2 < P. 1:11(10) ack 1 win 32792"),
        Status::Failed,
        &["the call's return was expected at 0.510000 but happened at 0.210000"],
    );
    fails(&accepted("+0 read(4, ..., 10) = 10"), Status::Failed, &["sleeps although"]);
    fails(
        &accepted("+0...0.2 read(4, ..., 10) = 10"),
        Status::Failed,
        &["still sleeps at the end"],
    );
    fails(
        &accepted("+0...2 read(4, ..., 10) = 10\n+.1...2 read(4, ..., 10) = 10"),
        Status::Error,
        &["while another one sleeps"],
    );
}

#[test]
fn results_and_out_arguments() {
    passes(&accepted(
        "+0 getsockopt(4, SOL_SOCKET, SO_ERROR, [0], [4]) = 0
         +0 ioctl(4, SIOCINQ, [0]) = 0
         +0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLOUT}], 1, 0) = 1
         +0 epoll_create(1) = 5
         +0 epoll_ctl(5, EPOLL_CTL_ADD, 4, {events=EPOLLIN|EPOLLOUT, fd=4}) = 0
         +0 epoll_wait(5, {events=EPOLLOUT, fd=4}, 1, 0) = 1
         +0 write(4, NULL, 10) = -1 EFAULT (Bad address)
         +0 close(5) = 0",
    ));
    let wrong = |line: &str, parts: &[&str]| fails(&accepted(line), Status::Failed, parts);
    wrong("+0 listen(4, 1) = 7", &["listen() returned", "instead of 7"]);
    wrong("+0 ioctl(4, SIOCINQ, [5]) = 0", &["gives 0 instead of 5"]);
    wrong("+0 getsockopt(4, SOL_SOCKET, SO_ERROR, [3], [4]) = 0", &["0 instead of 3"]);
    wrong(
        "+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1",
        &["POLLOUT instead of POLLIN"],
    );
    wrong("+0 read(4, ..., 10) = -1 EBADF (no)", &[]);
}

#[test]
fn scripts_that_cannot_be_run() {
    let wrong = |line: &str, parts: &[&str]| fails(&accepted(line), Status::Error, parts);
    wrong("+0 mmap(4) = 0", &["mmap() is not known", "^^^^"]);
    wrong("+0 shutdown(4, SHUT_NOTHING) = 0", &["SHUT_NOTHING is not known"]);
    wrong("+0 shutdown(4) = 0", &["2 arguments, not 1"]);
    wrong("+0 read(4, ..., 100000000000) = 0", &["no length"]);
    wrong("+0 close(77) = 0", &["no descriptor 77"]);
    wrong("+0 `reboot`", &["reboot"]);
    wrong("+0 %{ import os }%", &["import"]);
    wrong("+0 < . 1:1(0) ack 1 win 9 <mss 1460,nop>", &["a multiple of 4"]);
    wrong("+0 < icmp unreachable no_such_code", &["no_such_code"]);
    wrong("+100000 close(4) = 0", &["longer than a day"]);
    wrong("0.02 close(4) = 0\n0.01 close(3) = 0", &["time goes backwards"]);
    fails("1 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3", Status::Error, &["time 0"]);
    fails("--nonsense=1\n", Status::Error, &["nonsense"]);
    fails("0 > . 1:1(0) ack 1", Status::Error, &["no socket"]);
}

#[test]
fn hostile_scripts_end() {
    let many = "+0 write(4, ..., 16000000) = -1\n".repeat(200);
    let report = run(&accepted(&many));
    assert_ne!(report.status, Status::Passed);
    let many = "+0 read(4, NULL, 0) = 0\n+0 recv(4, ..., 16000000, MSG_DONTWAIT) = -1 EAGAIN (n)\n";
    fails(&accepted(&many.repeat(100)), Status::Error, &["more bytes than anybody needs"]);
    let many = "+3600 ioctl(4, SIOCINQ, [0]) = 0\n".repeat(30);
    fails(&accepted(&many), Status::Error, &["longer than a day"]);
}

#[test]
fn wrong_packets_are_told() {
    let wrong = |line: &str, parts: &[&str]| fails(&accepted(line), Status::Failed, parts);
    let written = |line: &str| format!("+0 write(4, ..., 2000) = 2000\n{line}");
    wrong(
        &written("+0 > . 1:2001(2000) ack 1"),
        &[
            "the flags are P. instead of .",
            "expected: . 1:2001(2000) ack 1",
            "came:     P. 1:2001(2000) ack 1 win",
            "0.010000 < . 1:1(0) ack 1 win 32792",
            "test.pkt:10:4",
        ],
    );
    wrong(&written("+0 > P. 1:1001(1000) ack 1"), &["2000 bytes came instead of 1000"]);
    wrong(&written("+0 > P. 1:2001(2000) ack 2"), &["acknowledgement number is 1 instead of 2"]);
    wrong(&written("+0 > P. 1:2001(2000) ack 1 win 7"), &["the window is", "instead of 7"]);
    wrong(&written("+0 > P. 1:2001(2000) ack 1 <nop,nop,sackOK>"), &["the options are none"]);
    wrong(&written("+0 > [ce] P. 1:2001(2000) ack 1"), &["the ECN mark is 0 instead of 3"]);
    wrong(&written("+.1 > P. 1:2001(2000) ack 1"), &["expected at 0.110000 but happened at 0.010"]);
    wrong("+0 > P. 1:2001(2000) ack 1", &["no packet came"]);
    wrong("+0 %{ assert tcpi_snd_cwnd == 99, tcpi_snd_cwnd }%", &["tcpi_snd_cwnd is 10"]);
}

#[test]
fn merged_and_strict_segments() {
    let text = accepted("+0 write(4, ..., 2000) = 2000\n+0 > P. 1:2001(2000) ack 1");
    let cut = format!("`ethtool -K tun0 tso off gso off`\n{text}");
    passes(&cut);
    let strict = run_with(&[("strict_segments", None)], &cut);
    assert_eq!(strict.status, Status::Failed, "{}", strict.text);
    assert!(
        strict.text.contains("1000 bytes came in one segment instead of 2000"),
        "{}",
        strict.text
    );
    let whole = run_with(&[("strict_segments", None)], &text);
    assert_eq!(whole.status, Status::Passed, "{}", whole.text);
    assert_eq!(whole.segment_list(), "S. 0 0\nP. 1 2000\n");
}

#[test]
fn the_network_answers() {
    let text = " 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0...0.1 connect(3, ..., ...) = -1 EHOSTUNREACH (No route to host)
+0 > S 0:0(0) <...>
+.1 < icmp unreachable WHY [0:0(0)]";
    let options = [("define", Some("WHY=host_unreachable"))];
    let report = run_with(&options, text);
    assert!(!report.text.contains("not known"), "{}", report.text);
}

#[test]
fn ipv6_and_mapped() {
    for version in ["ipv6", "ipv4-mapped-ipv6"] {
        let mss = if version == "ipv6" { "mss 1440" } else { "mss 1460" };
        let text = ACCEPTED.replace("mss 1460", mss);
        let report = run_with(&[("ip_version", Some(version))], &text);
        assert_eq!(report.status, Status::Passed, "{}", report.text);
    }
}

#[test]
fn the_same_text_every_time() {
    let text = accepted("+0 write(4, ..., 2000) = 2000\n+0 > . 1:9(8) ack 1");
    assert_eq!(run(&text).text, run(&text).text);
}
