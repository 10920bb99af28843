//! `plimsoll run`: a command whose packets meet our stack, as an ordinary user.

pub(crate) mod attach;
pub(crate) mod attacks;
pub(crate) mod calls;
pub(crate) mod programs;
pub(crate) mod reasons;
pub(crate) mod rules;
pub(crate) mod top;
pub(crate) mod ways;
pub(crate) mod weather;

use anyhow::{Context, Result, ensure};

use crate::harness::behind::{LATER, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::{FAR, NEAR};

pub(crate) const CASES: &[Case] = &[
    Case::light("run::ends_as_the_command_does", statuses),
    Case::light("run::bytes_go_both_ways", bytes),
    Case::light("run::errors_are_those_of_the_host", errors),
    Case::light("run::data_left_at_the_end_goes_out", left),
    Case::light("run::an_answer_before_a_reset_arrives", answer),
    Case::light("run::published_ports_lead_inside", ports),
    Case::light("run::the_host_s_loopback_is_opened_by_name", loopback),
    Case::light("run::children_keep_the_network", children),
    Case::light("run::the_command_has_no_right_over_us", rights),
];

fn statuses() -> Result<()> {
    let world = World::new()?;
    let cases: [(&[&str], i32); 7] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["/not-there"], 127),
        (&["/etc/passwd"], 126),
        (&[], 125),
    ];
    for (command, status) in cases {
        let ended = world.ended(&[], command)?;
        ensure!(
            ended.status.code() == Some(status),
            "{command:?} gave {:?}, not {status}: {}",
            ended.status,
            ended.said
        );
    }
    let same = world.ended(&[], &["sh", "-c", "id -u; id -g; cat /etc/resolv.conf"])?;
    ensure!(same.stdout.starts_with("65534\n65534\nnameserver 10.0.2.3\n"), "{}", same.stdout);
    // A signal for the program is the command's.
    let sleeps = &["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"];
    let mut process = Process::spawn("plimsoll run", &mut world.run(&[], sleeps)?)?;
    process.wait_line(LATER, |line| line == "ready")?;
    process.signal(rustix::process::Signal::TERM)?;
    let ended = process.wait(LATER)?;
    ensure!(ended.status.code() == Some(9), "{:?}: {}", ended.status, ended.said);
    Ok(())
}

fn bytes() -> Result<()> {
    let world = World::new()?;
    let address = format!("{FAR}:7");
    let mut echo =
        Process::spawn("echo", &mut world.hosts.far.program(&["peer", "echo", &address])?)?;
    echo.wait_line(LATER, |line| line == "ready")?;
    let tests = world.scratch.file("tests");
    let tests = tests.to_string_lossy();
    for mtu in ["1500", "65520"] {
        let check = [&*tests, "peer", "echo-check", &address, "--bytes", "30000000"];
        let ended = world.ended(&["-m", mtu], &check)?;
        ensure!(ended.status.success(), "MTU {mtu}: {}", ended.said);
    }
    Ok(())
}

/// A server of Python's at port 9 of the far host.
fn server(world: &World, script: &str) -> Result<Process> {
    let script = format!(
        "import socket, time
s = socket.create_server(('{FAR}', 9)); print('ready', flush=True)
{script}"
    );
    let mut command = world.hosts.far.command("python3");
    let mut process = Process::spawn("server", command.args(["-c", &script]))?;
    process.wait_line(LATER, |line| line == "ready")?;
    Ok(process)
}

fn left() -> Result<()> {
    let world = World::new()?;
    let slow = "c, _ = s.accept(); time.sleep(1); count = 0
while True:
    data = c.recv(65536)
    if not data: break
    count += len(data)
print(count)";
    let server = server(&world, slow)?;
    let send = format!(
        "import socket; c = socket.create_connection(('{FAR}', 9)); c.setblocking(False)
count = 0
try:
    while True: count += c.send(bytes(65536))
except BlockingIOError: print(count)"
    );
    let ended = world.ended(&[], &["python3", "-c", &send])?;
    ensure!(ended.status.success(), "{}", ended.said);
    let taken = server.success(LATER)?;
    let taken = taken.stdout.trim_start_matches("ready\n").to_owned();
    ensure!(taken == ended.stdout, "{taken} of {} bytes arrived", ended.stdout);
    Ok(())
}

fn answer() -> Result<()> {
    let world = World::new()?;
    // Closing with unread data sends a reset.
    let early = "c, _ = s.accept(); c.recv(9); c.sendall(b'too large'); time.sleep(0.5); c.close()";
    let server = server(&world, early)?;
    let script = format!(
        "import socket, time; c = socket.create_connection(('{FAR}', 9)); c.settimeout(5)
try:
    for _ in range(40): c.sendall(bytes(65536)); time.sleep(0.05)
except OSError: pass
print(c.recv(99))"
    );
    let said = world.python(&script)?;
    ensure!(said == "b'too large'\n", "{said}");
    server.success(LATER).map(drop)
}

/// The number of each error, with and without `run`.
fn errors() -> Result<()> {
    let world = World::new()?;
    let script = format!(
        "
import errno, socket
def tcp(address, port):
    s = socket.socket(); s.settimeout(5)
    try:
        s.connect((address, port)); return 'connected'
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def udp(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
    s.connect((address, port)); s.send(b'x')
    try:
        s.recv(9); return 'answered'
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
print(tcp('{FAR}', 9), tcp('203.0.113.1', 9), udp('{FAR}', 9))
print(tcp('{NEAR}', 9), tcp('169.254.169.254', 80), tcp('10.0.2.2', 9))
"
    );
    let said = world.python(&script)?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        lines
            == ["ECONNREFUSED ENETUNREACH ECONNREFUSED", "EHOSTUNREACH EHOSTUNREACH ECONNREFUSED"],
        "{said}"
    );
    Ok(())
}

fn ports() -> Result<()> {
    let world = World::new()?;
    let server = "import socket
s = socket.create_server(('', 8080)); print('ready', flush=True)
for _ in range(2):
    c, peer = s.accept(); print(peer[0], flush=True); c.sendall(c.recv(9)); c.close()";
    let second = format!("{NEAR}:7008:8080");
    let publish = ["-p", "7007:8080", "-p", &second];
    let mut inside = world.run(&publish, &["python3", "-c", server])?;
    let mut inside = Process::spawn("plimsoll run", &mut inside)?;
    inside.wait_line(LATER, |line| line == "ready")?;
    // A second one with the same port ends before its command starts.
    let taken = world.ended(&publish, &["echo", "started"])?;
    ensure!(taken.status.code() == Some(125) && taken.stdout.is_empty(), "{}", taken.said);
    ensure!(taken.said.contains("cannot publish 127.0.0.1:7007"), "{}", taken.said);
    for (from, address, port) in
        [(&world.hosts.near, "127.0.0.1", 7007), (&world.hosts.far, NEAR, 7008)]
    {
        let ask = format!(
            "import socket; c = socket.create_connection(('{address}', {port}))
c.sendall(b'ahoy'); assert c.recv(9) == b'ahoy' and c.recv(9) == b''"
        );
        Process::spawn("client", from.command("python3").args(["-c", &ask]))?.success(LATER)?;
    }
    // The host's loopback is not the command's, which sees the gateway in its place.
    let ended = inside.success(LATER)?;
    ensure!(ended.stdout == format!("ready\n10.0.2.2\n{FAR}\n"), "{}", ended.said);
    Ok(())
}

fn loopback() -> Result<()> {
    let world = World::new()?;
    let mut command = world.hosts.near.program(&["peer", "echo", "127.0.0.1:7"])?;
    let mut echo = Process::spawn("echo", &mut command)?;
    echo.wait_line(LATER, |line| line == "ready")?;
    let script = "import socket; c = socket.create_connection(('host.plimsoll', 7), 5)
c.sendall(b'ahoy'); print(c.recv(9))";
    let command = ["python3", "-c", script];
    let open = world.ended(&["--host-loopback"], &command)?;
    ensure!(open.stdout == "b'ahoy'\n", "{}", open.said);
    let closed = world.ended(&[], &command)?;
    ensure!(closed.said.contains("ConnectionRefusedError"), "{}", closed.said);
    Ok(())
}

fn children() -> Result<()> {
    let world = World::new()?;
    let late = "(sleep 1; echo late) & echo soon";
    let ended = world.ended(&[], &["sh", "-c", late])?;
    ensure!(ended.stdout == "soon\nlate\n", "{}", ended.said);
    let ended = world.ended(&["--no-wait"], &["sh", "-c", late])?;
    ensure!(ended.stdout == "soon\n", "{}", ended.said);
    Ok(())
}

fn rights() -> Result<()> {
    let world = World::new()?;
    let script = "ps -e | wc -l; ip link set plimsoll0 down 2>&1 | head -1; \
                  umount /etc/resolv.conf 2>&1 | head -1; kill -9 1; echo alive";
    let ended = world.ended(&[], &["sh", "-c", script])?;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let processes: u32 = lines.first().context("no lines")?.trim().parse()?;
    ensure!(processes < 10, "it sees {processes} processes");
    ensure!(ended.stdout.contains("not permitted"), "{}", ended.stdout);
    ensure!(ended.stdout.ends_with("alive\n"), "{}", ended.said);
    Ok(())
}
