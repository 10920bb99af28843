//! Network namespaces for tests that need the host's kernel as their peer.

use std::process::Command;

const INSIDE: &str = "PLIMSOLL_TEST_NAMESPACE";

/// Runs `body` in a fresh network namespace. `name` is the path of the calling test.
pub(crate) fn isolated(name: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let me = std::env::current_exe().unwrap();
    let out = Command::new("unshare")
        .arg("--net")
        .arg(me)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    // The harness keeps what is printed here: a second "test ... ok" on standard output would be
    // counted as a second test.
    let said = String::from_utf8_lossy(&out.stdout);
    print!("{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "{name} names no test");
    assert!(out.status.success(), "{name} failed in its namespace");
}

/// Configures the namespace, as on a command line.
pub(crate) fn ip(args: &str) {
    let status = Command::new("ip").args(args.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {args}");
}
