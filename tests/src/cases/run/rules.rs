//! `plimsoll run` with rules: a table of destinations and their outcomes.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::FAR;

pub(crate) const CASES: &[Case] = &[
    Case { limit: Duration::from_secs(60), ..Case::light("run::rules_decide", decide) },
    Case::light("run::what_a_run_has_needed_runs_it_again", learn),
    Case::light("run::rules_cover_the_sockets_that_lead_round_them", sockets),
    Case::light("run::a_wrong_rule_ends_it_before_the_command", wrong),
];

const SCRIPT: &str = include_str!("rules.py");

/// Options, and calls with their outcomes.
type Row = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const TABLE: &[Row] = &[
    (
        &["--net-allow=good.example.com:443", "--net-allow=two.example.com:80,443"],
        &[
            ("tcp 198.51.100.2 443 tls=good.example.com", "EHOSTUNREACH"), // never looked up
            ("tcp good.example.com 443 tls=good.example.com", "ok"),
            ("tcp GOOD.example.com 443 tls=Good.Example.Com", "ok"),
            ("tcp 198.51.100.2 443 tls=good.example.com", "ok"), // now it is
            ("tcp ::ffff:198.51.100.2 443 tls=good.example.com", "ok"),
            ("tcp good.example.com 443 cut=good.example.com", "ok"),
            ("tcp good.example.com 443 cut=bad.example.com", "ECONNRESET"),
            ("tcp good.example.com 443 tls=bad.example.com", "ECONNRESET"), // wrong server name
            ("tcp good.example.com 443 alert=good.example.com", "ECONNRESET"),
            ("tcp good.example.com 443 half=good.example.com", "ECONNRESET"),
            ("tcp good.example.com 443 ech=good.example.com", "ok"),
            ("tcp good.example.com 443 ech=bad.example.com", "ECONNRESET"),
            ("tcp good.example.com 443 tls", "ok"), // no server name: the lookup decides
            ("tcp good.example.com 443 http", "ok"),
            ("tcp two.example.com 443 tls=good.example.com", "ok"), // several names on one address
            ("tcp good.example.com 80 http", "ok"),                 // two.example.com was looked up
            ("tcp good.example.com 22 first", "EHOSTUNREACH"),
            ("udp good.example.com 443", "EHOSTUNREACH"), // QUIC
            ("dns bad.example.com", "no name"),
            ("dns x.good.example.com", "no name"),
            ("tcp 198.51.100.3 443 tls=good.example.com", "EHOSTUNREACH"), // an address in a packet
            ("tcp 198.51.100.3 53 dns", "EHOSTUNREACH"),                   // DNS over TCP
            ("tcp 198.51.100.3 853 tls=good.example.com", "EHOSTUNREACH"), // DNS over TLS
            ("udp 198.51.100.3 53", "EHOSTUNREACH"),
            ("tcp 169.254.169.254 80 http", "EHOSTUNREACH"),
            ("tcp host.plimsoll 22 first", "ECONNREFUSED"),
        ],
    ),
    (
        &["--net-allow=*.example.com", "--net-allow=*.wild.example.org:22"],
        &[
            ("tcp alias.example.com 443 tls=alias.example.com", "ok"), // by a CNAME
            ("dns target.other.net", "no name"),
            ("tcp a.wild.example.org 22 first", "ok"),
            ("dns wild.example.org", "no name"),
            ("tcp inner.example.com 80 http", "EHOSTUNREACH"), // rebinding
            ("tcp mapped.example.com 80 http", "EHOSTUNREACH"),
            ("tcp meta.example.com 80 http", "EHOSTUNREACH"),
            ("tcp near.example.com 22 http", "EHOSTUNREACH"),
        ],
    ),
    (
        &["--net-allow=inner.example.com+private:80", "--net-allow=meta.example.com+private"],
        &[
            ("tcp inner.example.com 80 http", "ok"),
            ("tcp inner.example.com 443 http", "EHOSTUNREACH"),
            ("tcp meta.example.com 80 http", "EHOSTUNREACH"),
        ],
    ),
    (
        &["--net-allow=10.0.0.0/8:80", "--net-allow=udp://198.51.100.2:53"],
        &[
            ("tcp 10.9.9.9 80 http", "ok"),
            ("tcp ::ffff:10.9.9.9 80 tls=bad.example.com", "ok"), // an address needs no name
            ("tcp 10.9.9.9 443 http", "EHOSTUNREACH"),
            ("udp 198.51.100.2 53", "ok"),
            ("udp 198.51.100.2 443", "EHOSTUNREACH"),
            ("tcp 198.51.100.2 53 dns", "EHOSTUNREACH"),
            ("dns good.example.com", "no name"),
        ],
    ),
    (
        &["--net-allow=public", "--net-deny=bad.example.com", "--net-deny=198.51.100.5"],
        &[
            ("tcp good.example.com 8080 http", "ok"),
            ("udp good.example.com 443", "ok"),
            ("tcp 10.9.9.9 80 http", "EHOSTUNREACH"),
            ("dns bad.example.com", "no name"),
            ("tcp 198.51.100.3 443 tls=bad.example.com", "ECONNRESET"),
            ("tcp 198.51.100.3 443 tls=good.example.com", "ok"),
            ("tcp a.wild.example.org 22 first", "EHOSTUNREACH"),
            ("tcp 198.51.100.3 22 first", "ok"),
        ],
    ),
    (
        &["--net-allow=none", "--deny-as=refused"],
        &[("tcp 198.51.100.2 80 http", "EHOSTUNREACH"), ("dns good.example.com", "no name")],
    ),
];

/// A world with its servers.
fn world() -> Result<(World, Process, String)> {
    let world = World::new()?;
    let far = &world.hosts.far;
    for address in ["198.51.100.3/24", "198.51.100.4/24", "198.51.100.5/24", "10.9.9.9/32"] {
        far.ip(&format!("address add {address} dev v1"))?;
    }
    world.hosts.near.ip(&format!("route add 10.9.9.9/32 via {FAR}"))?;
    fs::write(world.scratch.file("resolv.conf"), format!("nameserver {FAR}\n"))?;
    let path = world.scratch.file("rules.py");
    fs::write(&path, SCRIPT)?;
    let path = path.to_string_lossy().into_owned();
    let mut serve = far.command(PYTHON);
    let mut servers = Process::spawn("servers", serve.args([&path, "serve"]))?;
    servers.wait_line(LATER, |line| line == "ready")?;
    Ok((world, servers, path))
}

fn decide() -> Result<()> {
    let (world, _servers, path) = world()?;
    let mut wrong = Vec::new();
    for (options, calls) in TABLE {
        let mut command = vec![PYTHON, &path];
        command.extend(calls.iter().map(|(call, _)| call));
        let ended = world.ended(options, &command)?;
        ensure!(ended.status.success(), "{options:?}: {}", ended.said);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        ensure!(lines.len() == calls.len(), "{options:?}: {}", ended.said);
        for ((call, outcome), line) in calls.iter().zip(lines) {
            if line != format!("{call}: {outcome}") {
                wrong.push(format!("{options:?}: {line}, not {outcome}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn learn() -> Result<()> {
    let (world, _servers, path) = world()?;
    // The user writes there.
    let folder = world.folder("learnt")?;
    let file = folder.join("rules").to_string_lossy().into_owned();
    let calls = [
        "tcp good.example.com 443 tls=two.example.com",
        "tcp inner.example.com 80 http",
        "tcp 198.51.100.3 22 first",
        "udp 198.51.100.2 53",
        "dns a.wild.example.org",
    ];
    let mut command = vec![PYTHON, &path];
    command.extend(calls);
    let first = world.ended(&["--learn", &file], &command)?;
    ensure!(first.status.success() && !first.stdout.contains(": E"), "{}", first.said);
    let learnt = fs::read_to_string(&file)?;
    for rule in
        ["good.example.com:443\n", "inner.example.com+private:80\n", "two.example.com:443\n"]
    {
        ensure!(learnt.contains(rule), "{rule} is missing in:\n{learnt}");
    }
    let again = world.ended(&["--net-allow", &format!("@{file}")], &command)?;
    ensure!(again.stdout == first.stdout, "{}\n{learnt}", again.said);
    // Any less is refused, with the rule that would allow it.
    let less = world.ended(&["--net-allow", "good.example.com:443"], &command)?;
    for line in [
        "refused the lookup of inner.example.com: no rule allows it; --net-allow",
        "refused tcp 198.51.100.3:22: no rule allows it; --net-allow '198.51.100.3:22' would",
        "no rule allows the server name two.example.com; --net-allow 'two.example.com:443' would",
    ] {
        ensure!(less.said.contains(line), "{line} is missing in:\n{}", less.said);
    }
    Ok(())
}

fn sockets() -> Result<()> {
    let world = World::new()?;
    let path = world.scratch.file("rules.py");
    fs::write(&path, SCRIPT)?;
    let path = path.to_string_lossy().into_owned();
    // ssh-agent, a container engine, the bus, and the user's systemd, as its programs find them.
    for (place, variable, before) in [
        ("agent", "SSH_AUTH_SOCK", ""),
        ("engine", "DOCKER_HOST", "unix://"),
        ("bus", "DBUS_SESSION_BUS_ADDRESS", "unix:path="),
        ("runtime/systemd", "XDG_RUNTIME_DIR", ""),
    ] {
        let socket = world.folder(place)?.join("private");
        let _listener = UnixListener::bind(&socket)?;
        std::os::unix::fs::chown(&socket, Some(65534), Some(65534))?;
        let is_folder = variable == "XDG_RUNTIME_DIR";
        let named = if is_folder { world.path("runtime") } else { world.path(place) + "/private" };
        let call = format!("unix {}", socket.display());
        let command = [PYTHON, &path, &call];
        let covered = if is_folder { "ENOENT" } else { "ECONNREFUSED" };
        for (options, expected) in [
            (&[][..], "ok"),
            (&["--net-allow=none"], covered),
            (&["--net-allow=none", "--keep-sockets"], "ok"),
        ] {
            let mut run = world.run(options, &command)?;
            run.env(variable, format!("{before}{named}"));
            let found = Process::spawn("plimsoll run", &mut run)?.success(LATER)?.stdout;
            ensure!(found == format!("{call}: {expected}\n"), "{variable} {options:?}: {found}");
        }
    }
    Ok(())
}

fn wrong() -> Result<()> {
    let world = World::new()?;
    for (rule, said) in [("*.com", "column 3: 'com' is a public suffix"), ("@/nowhere", "/nowhere")]
    {
        let ended = world.ended(&["--net-allow", rule], &["echo", "started"])?;
        ensure!(ended.status.code() == Some(2) && ended.stdout.is_empty(), "{}", ended.said);
        ensure!(ended.said.contains(said), "{}", ended.said);
    }
    Ok(())
}
