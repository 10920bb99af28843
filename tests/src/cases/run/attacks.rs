//! A hostile command behind `plimsoll run`. The attackers have more rights than a command has: they
//! send raw packets from its network namespace.

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::harness::behind::{LATER, PYTHON, World};
use crate::harness::netns::Namespace;
use crate::harness::process::{Process, descendants, resident};
use crate::harness::runner::Case;
use crate::harness::veth::{FAR, NEAR};

pub(crate) const CASES: &[Case] = &[Case::light("run::attacks_stay_inside", attacks)];

/// Bytes of memory that the gateway may hold under attack.
const MEMORY: f64 = 256e6;

/// Reports what arrives at the far host from anyone but the near one, until it is ended.
const GUARD: &str = "import signal, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800)); s.bind(('v1', 0))
foreign, all = set(), 0
signal.signal(signal.SIGTERM, lambda *_: (print(all, sorted(foreign), flush=True), sys.exit()))
print('ready', flush=True)
while True:
    packet, where = s.recvfrom(99)
    if where[2] == 4: continue
    all += 1; source = socket.inet_ntoa(packet[12:16])
    if source != sys.argv[1]: foreign.add(source)";

/// Reports datagrams and connections at the near host's own addresses, until it is ended.
const HOST: &str = "import select, signal, socket, sys
sockets, count = [], 0
for address in ('127.0.0.1', sys.argv[1], '::1'):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM); s.bind((address, 4000)); sockets.append(s)
    s = socket.socket(family); s.bind((address, 4000)); s.listen(); sockets.append(s)
signal.signal(signal.SIGTERM, lambda *_: (print(count, flush=True), sys.exit()))
print('ready', flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        count += 1; s.recv(99) if s.type == socket.SOCK_DGRAM else s.accept()";

/// Raw packets by number: random bytes, random IP packets, and whole ones with spoofed sources to
/// the host's own addresses, to groups, to the name server and to everywhere.
const RAW: &str = "import random, socket, struct, sys
random.seed(1); near = sys.argv[1]
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
def send(packet):
    kind = 0x86dd if packet[:1] and packet[0] >> 4 == 6 else 0x800
    try: s.sendto(packet, ('plimsoll0', kind))
    except OSError: pass
def total(data):
    data += b'\\0' * (len(data) % 2); n = sum(struct.unpack('>%dH' % (len(data) // 2), data))
    n = (n & 0xffff) + (n >> 16); return ~(n + (n >> 16)) & 0xffff
def ip4(source, to, protocol, body, fragment=0):
    head = struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(body), random.randrange(65536), fragment,
                       64, protocol, 0) + socket.inet_aton(source) + socket.inet_aton(to)
    return head[:10] + struct.pack('>H', total(head)) + head[12:] + body
targets = ['127.0.0.1', near, '0.0.0.0', '255.255.255.255', '224.0.0.1', '10.0.2.2', '10.0.2.3',
           '169.254.169.254', '198.51.100.2', '203.0.113.9']
for number in range(40000):
    size = random.randrange(1, 200); noise = random.randbytes(size)
    source = random.choice(['10.0.2.15', '127.0.0.1', near, '198.51.100.2', '203.0.113.77'])
    to = random.choice(targets)
    port = random.choice([53, 4000, random.randrange(1, 65536)])
    kind = number % 8
    if kind == 0: send(noise)
    elif kind == 1: send(bytes([0x45]) + noise)
    elif kind == 2: send(bytes([0x60]) + noise + bytes(40))
    elif kind == 3: send(ip4(source, to, random.choice([1, 2, 17, 6, 47, 132, 255]), noise))
    elif kind == 4:
        body = struct.pack('>HHHH', random.randrange(1, 65536), port, 8 + size, 0) + noise
        send(ip4(source, to, 17, body))
    elif kind == 5:
        head = struct.pack('>HHIIBBHHH', random.randrange(1, 65536), port, number, 0, 0x50, 2,
                           65535, 0, 0)
        addresses = socket.inet_aton(source) + socket.inet_aton(to)
        check = total(addresses + struct.pack('>HH', 6, 20) + head)
        send(ip4(source, to, 6, head[:16] + struct.pack('>H', check) + head[18:]))
    elif kind == 6: send(ip4(source, to, 17, noise + bytes(8), 0x2000 | random.randrange(8192)))
    else:
        body = struct.pack('>BBHHH', 8, 0, 0, number & 0xffff, number & 0xffff) + noise
        send(ip4(source, to, 1, body[:2] + struct.pack('>H', total(body)) + body[4:]))
print('sent')";

/// Datagrams of an ordinary program to many ports: each is a flow.
const FLOWS: &str = "import socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(20)]
for s in sockets:
    s.setblocking(False)
    for port in range(10000, 15000):
        try: s.sendto(b'x', ('198.51.100.2', port))
        except OSError: pass
print('sent')";

fn attacks() -> Result<()> {
    let world = World::new()?;
    let guard = |script, ns: &Namespace, words: &[&str]| -> Result<Process> {
        let mut process =
            Process::spawn("guard", ns.command(PYTHON).args(["-c", script]).args(words))?;
        process.wait_line(LATER, |line| line == "ready")?;
        Ok(process)
    };
    let far = guard(GUARD, &world.hosts.far, &[NEAR])?;
    let host = guard(HOST, &world.hosts.near, &[NEAR])?;
    let mut echo = Process::spawn(
        "echo",
        &mut world.hosts.far.program(&["peer", "echo", &format!("{FAR}:7")])?,
    )?;
    echo.wait_line(LATER, |line| line == "ready")?;
    let fifo = world.scratch.file("go");
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o644));
    mknodat(CWD, &fifo, kind, mode, 0).context("a pipe")?;
    let script =
        "echo ready; read line < \"$2\"; exec \"$0\" peer echo-check \"$1\" --bytes 1000000";
    let tests = world.scratch.file("tests").to_string_lossy().into_owned();
    let (address, pipe) = (format!("{FAR}:7"), fifo.to_string_lossy().into_owned());
    let command = ["sh", "-c", script, &tests, &address, &pipe];
    let mut inside = Process::spawn("plimsoll run", &mut world.run(&[], &command)?)?;
    inside.wait_line(LATER, |line| line == "ready")?;
    let processes = descendants(inside.id())?;
    let guest = Namespace::of_process(*processes.last().context("the command has a process")?)?;
    for (script, words) in [(RAW, &[NEAR][..]), (FLOWS, &[])] {
        let mut attacker = guest.command(PYTHON);
        Process::spawn("attacker", attacker.args(["-c", script]).args(words))?.success(LATER)?;
    }
    for kind in ["syn", "udp", "fragments"] {
        let words =
            ["peer", "spray", &address, "--kind", kind, "--rate", "50000", "--seconds", "1"];
        Process::spawn("spray", &mut guest.program(&words)?)?.success(LATER)?;
    }
    let held = resident(&inside.id().to_string(), "VmHWM:")?;
    ensure!(held < MEMORY, "the gateway held {held} bytes");
    // The command is still served, and so is the host.
    let check = ["peer", "echo-check", &address, "--bytes", "1000000"];
    Process::spawn("the host", &mut world.hosts.near.program(&check)?)?.success(LATER)?;
    std::fs::write(&fifo, "go\n")?;
    inside.success(LATER)?;
    let end = |process: Process| -> Result<String> {
        process.signal(rustix::process::Signal::TERM)?;
        Ok(process.wait(LATER)?.stdout)
    };
    let seen = end(far)?;
    ensure!(seen.ends_with(" []\n"), "packets of other sources left: {seen}");
    let reached = end(host)?;
    ensure!(reached == "ready\n0\n", "the host's own addresses were reached: {reached}");
    Ok(())
}
