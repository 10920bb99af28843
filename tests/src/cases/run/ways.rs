//! The ways to a running `plimsoll run`: published ports, the control socket, names, the choice of
//! a network; and input that ends it before its command starts.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::{FAR, NEAR};

pub(crate) const CASES: &[Case] = &[
    Case::light("run::ports_change_while_it_runs", ports),
    Case::light("run::the_command_does_not_reach_the_control_socket", control),
    Case::light("run::the_gateway_is_confined", confined),
    Case::light("run::processes_may_be_shared", shared_processes),
    Case::light("run::names_of_the_host_are_answered", names),
    Case::light("run::another_network_is_chosen", network),
    Case::light("run::bad_input_ends_before_the_command", bad_input),
];

/// Answers datagrams at port 5353 with the visitor's address.
const MIRROR: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 5353)); print('ready', flush=True)
while True:
    data, visitor = s.recvfrom(99); s.sendto(repr(visitor).encode(), visitor)";

fn ports() -> Result<()> {
    let world = World::new()?;
    let first = format!("{NEAR}:7053:5353/udp");
    let inside = world.started(&["-p", &first], &[PYTHON, "-c", MIRROR])?;
    let pid = inside.id().to_string();
    let second = format!("{NEAR}:7054:5353/udp");
    let ask = |words: &[&str]| world.ask(&[&["port", "--pid", &pid], words].concat());
    ensure!(ask(&["--add", &second])?.stdout == format!("{first}\n{second}\n"));
    ensure!(ask(&["--remove", &first])?.stdout == format!("{second}\n"));
    let again = ask(&["--remove", &first])?;
    ensure!(again.said.contains("is not published"), "{}", again.said);
    let taken = ask(&["--add", &second])?;
    ensure!(taken.said.contains("another program has that port"), "{}", taken.said);
    // Two visitors, each of which the command sees as it is.
    let visit = format!(
        "import socket
for _ in range(2):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('{FAR}', 0)); s.settimeout(9)
    for _ in range(2):
        s.sendto(b'x', ('{NEAR}', 7054))
        assert s.recv(99) == repr(s.getsockname()).encode()"
    );
    let mut visitor = world.hosts.far.command(PYTHON);
    Process::spawn("visitor", visitor.args(["-c", &visit]))?.success(LATER)?;
    let sockets = world.ask(&["ss", "--pid", &pid])?;
    ensure!(sockets.stdout.contains("10.0.2.15:5353"), "{}", sockets.said);
    let counters = world.ask(&["nstat", "--pid", &pid, "UdpInDatagrams"])?;
    ensure!(counters.stdout.contains("UdpInDatagrams"), "{}", counters.said);
    inside.signal(rustix::process::Signal::TERM)?;
    inside.wait(LATER).map(drop)
}

fn control() -> Result<()> {
    let world = World::new()?;
    let program = world.scratch.file("plimsoll").to_string_lossy().into_owned();
    let script = "ls -A /tmp/plimsoll-65534 | wc -l; \"$0\" ss; echo $?";
    let ended = world.ended(&[], &["sh", "-c", script, &program])?;
    ensure!(ended.stdout == "0\n1\n", "{}", ended.said);
    // A path to the socket that the folder's cover does not hide, as if it had been passed in.
    let inside = world.started(&[], &["sh", "-c", "echo ready; exec sleep 30"])?;
    let commands = crate::harness::process::descendants(inside.id())?;
    let last = commands.last().context("the command has a process")?.to_string();
    let socket = format!("/tmp/plimsoll-65534/{}.sock", inside.id());
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b'{\"op\":\"ss\"}\\n'); print(len(s.recv(9)))";
    // In the namespaces of the command except that of mounts.
    let mut enter = Command::new("nsenter");
    enter.args(["--user", "--pid", "--preserve-credentials", "--target", &last]);
    enter.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON]);
    let refused = Process::spawn("peer", enter.args(["-c", ask, &socket]))?.wait(LATER)?;
    ensure!(!refused.said.starts_with('9'), "{}", refused.said);
    let mut outside = world.directly(&[PYTHON, "-c", ask, &socket]);
    let answered = Process::spawn("peer", &mut outside)?.wait(LATER)?;
    ensure!(answered.stdout == "9\n", "{}", answered.said);
    inside.signal(rustix::process::Signal::TERM)?;
    inside.wait(LATER).map(drop)
}

fn confined() -> Result<()> {
    let world = World::new()?;
    let inside = world.started(&["--verbose"], &["sh", "-c", "echo ready; exec sleep 30"])?;
    let tasks = format!("/proc/{}/task", inside.id());
    let mut count = 0;
    for task in std::fs::read_dir(&tasks).context("the gateway's threads")? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            ensure!(status.contains(line), "without '{line}':\n{status}");
        }
        count += 1;
    }
    ensure!(count >= 2, "it has {count} threads");
    ensure!(inside.said().contains("no capability is left"), "{}", inside.said());
    inside.signal(rustix::process::Signal::TERM)?;
    inside.wait(LATER).map(drop)
}

fn shared_processes() -> Result<()> {
    let world = World::new()?;
    let script = "test -d /proc/$1 && echo seen; (sleep 0.2; echo late) & exit 3";
    let own = std::process::id().to_string();
    let ended = world.ended(&["--share-pid"], &["sh", "-c", script, "sh", &own])?;
    ensure!(ended.stdout == "seen\nlate\n" && ended.status.code() == Some(3), "{}", ended.said);
    Ok(())
}

fn names() -> Result<()> {
    let world = World::new()?;
    std::fs::write(world.scratch.file("hosts"), format!("{FAR} far.test\n"))?;
    std::fs::write(world.scratch.file("resolv.conf"), format!("nameserver {FAR}\n"))?;
    // The C library reads /etc/hosts itself, so these ask the name server.
    let script = "import socket
def ask(name):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    query = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + labels + b'\\0\\0\\1\\0\\1'
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(9)
    s.connect(('10.0.2.3', 53)); s.send(query); answer = s.recv(999)
    return socket.inet_ntoa(answer[-4:]), answer[3] & 15
for name in ['host.plimsoll', 'far.test', 'HOST.Plimsoll']: print(*ask(name))
print(ask('other.plimsoll')[1])";
    let ended = world.ended(&[], &[PYTHON, "-c", script])?;
    // The last one has the error "no such domain".
    let expected = format!("10.0.2.2 0\n{FAR} 0\n10.0.2.2 0\n3\n");
    ensure!(ended.stdout == expected, "{}", ended.said);
    Ok(())
}

fn network() -> Result<()> {
    let world = World::new()?;
    world.hosts.near.ip("addr add 10.0.2.77/24 dev v0")?;
    let ended = world.ended(&[], &["cat", "/etc/resolv.conf"])?;
    ensure!(ended.stdout.starts_with("nameserver 172.31.254.3\n"), "{}", ended.said);
    ensure!(ended.said.contains("the command's network is 172.31.254.0/24"), "{}", ended.said);
    Ok(())
}

fn bad_input() -> Result<()> {
    let world = World::new()?;
    let cases: [(&[&str], i32, &str); 7] = [
        (&["-m", "1000"], 2, "not a whole number from 1280 to 65520"),
        (&["-m", "70000"], 2, "not a whole number from 1280 to 65520"),
        (&["-p", "80"], 2, "[IP:]HOST:GUEST[/udp]"),
        (&["-p", "8080:80/sctp"], 2, "[IP:]HOST:GUEST[/udp]"),
        (&["-p", "192.0.2.200:8080:80"], 125, "cannot publish 192.0.2.200:8080"),
        (&["-p", "80:80"], 125, "ip_unprivileged_port_start"),
        (&["--pcap", "/not/there.pcapng"], 125, "/not/there.pcapng"),
    ];
    for (options, status, text) in cases {
        let ended = world.ended(options, &["echo", "started"])?;
        let is_right = ended.status.code() == Some(status) && ended.said.contains(text);
        ensure!(is_right && ended.stdout.is_empty(), "{options:?}: {}", ended.said);
    }
    // Without the device, and without the right to open it.
    let user = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" run -- echo started";
    for (prepare, text) in [
        ("mount -t tmpfs none /dev/net", "modprobe tun"),
        ("mount -t tmpfs none /dev/net; mknod -m 600 /dev/net/tun c 10 200", "accessible"),
    ] {
        let mut command = world.hosts.near.command("unshare");
        command.args(["--mount", "sh", "-c", &format!("{prepare}; cd /; {user}")]);
        command.arg(world.scratch.file("plimsoll"));
        let ended = Process::spawn("plimsoll run", &mut command)?.wait(LATER)?;
        let is_right = ended.status.code() == Some(125) && ended.said.contains(text);
        ensure!(is_right && ended.stdout.is_empty(), "{prepare}: {}", ended.said);
    }
    Ok(())
}
