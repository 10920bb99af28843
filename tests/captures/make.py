#!/usr/bin/env python3
"""Takes the captures that the test `corpus` of crates/explain reads.

    make.py [--into FOLDER] [SCENARIO...]      as root; all scenarios without a name
    make.py --list

Each scenario runs a server and a client in two network namespaces of its own, on the kernel's
sockets, and captures at both ends with tcpdump. The path between them is a veth pair, or the one of
path.py. Programs of Debian that are missing are named; the packages are

    tcpdump redis-server redis-tools nginx-light curl iperf3 rsync openssh-server openssh-client
    postgresql memcached

What each capture is expected to say is in expected.tsv beside the captures. A capture that was
taken anew has to be looked at before it replaces one that is committed: the machine may have been
busy.
"""

import argparse
import contextlib
import dataclasses
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CAPTURES = HERE.parent.parent / "crates/explain/tests/captures"
CLIENT, SERVER = "198.51.100.1", "198.51.100.2"
# Bytes of each packet: Ethernet, IPv4 and TCP with all options.
SNAPLEN = 94
# Seconds after which whatever still runs is ended.
PATIENCE = 60


@dataclasses.dataclass
class Scenario:
    """A server, a client, and what is between them."""

    name: str
    # Shell commands; {work} is an empty folder, {server} an address.
    server: str
    client: str
    # Words of path.py; a veth pair if there are none.
    path: str = ""
    # Packets that are kept of each end.
    packets: int = 300
    # The ends whose captures are kept.
    ends: str = "client server"
    # Settings of both kernels, as PATH=VALUE below /proc/sys.
    settings: tuple = ()


def programs(name, script, rounds, both="", serve="", connect="", **more):
    """A scenario of programs.py."""
    command = f"{sys.executable} {HERE}/programs.py"
    return Scenario(
        name,
        f"{command} serve {script} {rounds} {both} {serve}",
        f"{command} connect {script} {rounds} {both} {connect}",
        **more,
    )


def far(delay, words="--offloads"):
    """A path whose round trip takes this long, in ms."""
    return f"--delay {delay / 2} {words}"


NGINX = """
mkdir -p {work}/www {work}/logs; cd {work}
head -c 700000 /dev/zero > www/large; head -c 9000 /dev/zero > www/small
echo 'user root; daemon off; pid {work}/pid; error_log {work}/logs/error; events {{}}
http {{ access_log off; client_body_temp_path {work}/b; proxy_temp_path {work}/p;
fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
server {{ listen {server}:80; root {work}/www; }} }}' > conf
nginx -e {work}/logs/error -c {work}/conf & echo ready; wait
"""
LARGE = "curl -sSo /dev/null http://{server}/large"
SMALL = "curl -sS " + " ".join(["-o /dev/null http://{server}/small"] * 12)

REDIS = """
redis-server --bind {server} --protected-mode no --save '' --dir {work} > /dev/null &
sleep 1; echo ready; wait
"""
REDIS_CLIENT = "redis-benchmark -h {server} -c 1 -n 30 -t set,get -q"
REDIS_PIPE = "redis-benchmark -h {server} -c 1 -n 400 -P 16 -t set,get -q"

MEMCACHED = "memcached -l {server} -u root & sleep 1; echo ready; wait"
MEMCACHED_CLIENT = """bash -c 'exec 3<>/dev/tcp/{server}/11211
for n in $(seq 40); do printf "set key 0 0 5\\r\\nvalue\\r\\n" >&3; read -r line <&3
printf "get key\\r\\n" >&3; read -r line <&3; read -r line <&3; read -r line <&3; done'"""

SSHD = """
mkdir -p {work}/keys /run/sshd
ssh-keygen -qt ed25519 -N '' -f {work}/keys/host; ssh-keygen -qt ed25519 -N '' -f {work}/keys/user
cp {work}/keys/user.pub {work}/keys/authorized
$(which sshd) -D -e -f /dev/null -p 22 -h {work}/keys/host -o PermitRootLogin=yes -o StrictModes=no \
  -o AuthorizedKeysFile={work}/keys/authorized -o UsePAM=no -o ListenAddress={server} \
  -o Subsystem='sftp internal-sftp' &
sleep 1; echo ready; wait
"""
SSH_WORDS = (
    "-i {work}/keys/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
)
SSH = (
    "(for n in $(seq 25); do echo echo $n; sleep 0.23; done) | ssh -tt " + SSH_WORDS
    + " root@{server} cat > /dev/null"
)
SCP = (
    "head -c 2000000 /dev/urandom > {work}/file; scp -q " + SSH_WORDS
    + " {work}/file root@{server}:{work}/copy"
)

RSYNCD = """
mkdir -p {work}/tree; for n in $(seq 40); do head -c $((n * 700)) /dev/urandom > {work}/tree/$n; done
echo 'uid = root
use chroot = no
[tree]
path = {work}/tree' > {work}/conf
rsync --daemon --no-detach --address {server} --config {work}/conf & sleep 0.5; echo ready; wait
"""
RSYNC = "rsync -a rsync://{server}/tree/ {work}/copy"

IPERF_SERVER = "iperf3 -s -1 -B {server} --forceflush"
IPERF = "sleep 0.5; iperf3 -c {server} -t 2"

POSTGRES = """
chown postgres {work}; bin=$(ls -d /usr/lib/postgresql/*/bin)
run() {{ setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }}
run $bin/initdb -D {work}/data -A trust > /dev/null
echo 'host all all 198.51.100.0/24 trust' >> {work}/data/pg_hba.conf
run $bin/postgres -D {work}/data -k {work} -h {server} & sleep 3
run createdb -h {work} bench; run pgbench -q -i -h {work} bench 2> /dev/null
echo ready; wait
"""
PGBENCH = "pgbench -n -S -c 1 -t 40 -h {server} -U postgres bench"
PGROWS = """psql -qAt -h {server} -U postgres bench -c "select repeat('x', 100) from generate_series(1, 20000)" > /dev/null"""

# A client that writes its request in two pieces, and waits for the answer.
PIECES = "c200,c400,s300,C60"
# A server that writes header and body apart.
HEADER_BODY = "c100,s150,s900,C60"
# A server that flushes its header, and thinks.
THINKS = "c100,s150,S20-120,s900"
# Two ends that talk, of which the server sends its second answer in two pieces at once.
CHAT = "c40,C10-400,s50,S10-300,c30,s20,s25,C200-300"
# A short request and its answer.
TALK = "c100,s1000"
# A server that serves nothing.
IDLE = "echo ready; exec sleep 100"
# So many writes of 64 KB, and one byte back.
BULK = "c65536x{},s1"


def scenarios():
    yield from real_programs()
    yield from healthy()
    yield from defects()
    yield from connections()
    yield from sizes()
    yield from other_stacks()


def real_programs():
    for name, path in (("near", ""), ("40ms", far(40))):
        yield Scenario(f"curl-{name}", NGINX, LARGE, path, 250)
        yield Scenario(f"curl-keepalive-{name}", NGINX, SMALL, path, 250)
        yield Scenario(f"redis-{name}", REDIS, REDIS_CLIENT, path, 180)
        yield Scenario(f"memcached-{name}", MEMCACHED, MEMCACHED_CLIENT, path, 180)
        yield Scenario(f"pgbench-{name}", POSTGRES, PGBENCH, path, 180)
        yield Scenario(f"postgres-rows-{name}", POSTGRES, PGROWS, path, 400)
        yield Scenario(f"ssh-{name}", SSHD, SSH, path, 250)
        yield Scenario(f"scp-{name}", SSHD, SCP, path, 500)
        yield Scenario(f"rsync-{name}", RSYNCD, RSYNC, path, 250)
        yield Scenario(f"iperf3-{name}", IPERF_SERVER, IPERF, path, 500)
    yield Scenario("redis-pipeline-near", REDIS, REDIS_PIPE, "", 180)
    yield Scenario("iperf3-wire-20ms", IPERF_SERVER, IPERF, far(20, ""), 600)
    yield Scenario("curl-wire-40ms", NGINX, LARGE, far(40, ""), 700)
    yield Scenario("scp-loss-40ms", SSHD, SCP, far(40, "--loss 0.01"), 1500, "client")


def healthy():
    for rtt in (0, 40):
        path = far(rtt) if rtt else ""
        name = f"{rtt}ms" if rtt else "near"
        yield programs(f"thinks-nodelay-{name}", THINKS, 30, "--nodelay", path=path)
        yield programs(f"request-answer-{name}", "c120,s2000,C30", 30, path=path)
        yield programs(f"every-40ms-{name}", "c80,C40", 40, "--nodelay", path=path)
        yield programs(f"every-40ms-nagle-{name}", "c80,C45", 40, path=path)


    yield programs(
        "thinks-twice-nodelay-70ms", "c300,s90,S5-200,s400,S10-90,s2000,C10-50", 25, "--nodelay",
        path=far(70),
    )
    yield programs("timer-nodelay-30ms", "c60,C10-90", 60, "--nodelay", path=far(30))


def defects():
    for rtt in (0, 20, 50, 100):
        path = far(rtt) if rtt else ""
        name = f"{rtt}ms" if rtt else "near"
        yield programs(f"request-in-pieces-{name}", PIECES, 20, path=path)
        yield programs(f"header-and-body-{name}", HEADER_BODY, 20, path=path)
    for rtt in (0, 40):
        path = far(rtt) if rtt else ""
        name = f"{rtt}ms" if rtt else "near"
        yield programs(f"writes-of-100-{name}", "c100x3000,s1", 1, "--nodelay", path=path)
        yield programs(
            f"records-of-1400-{name}", "c1400x700,s1", 1, "--nodelay", path=path, packets=500
        )
        yield programs(
            f"slow-reader-{name}", BULK.format(8), 1, path=path,
            serve="--chunk 8192 --pause 40 --rcvbuf 32768",
        )
    yield programs(
        "small-buffer-100ms", BULK.format(5), 1, serve="--rcvbuf 8192", path=far(100), packets=400
    )
    yield programs(
        "small-buffer-wire-100ms", BULK.format(8), 1, serve="--rcvbuf 16384", path=far(100, ""),
        packets=500,
    )
    yield programs(
        "behind-reader-40ms", BULK.format(12), 1, serve="--chunk 16384 --pause 15 --rcvbuf 131072",
        path=far(40), packets=400,
    )
    yield programs(
        "reads-of-4096-30ms", "s65536x10,c1", 1, connect="--chunk 4096 --pause 12", path=far(30),
        packets=400,
    )
    yield programs(
        "header-and-large-body-30ms", "c100,s200,s23000,C40", 20, path=far(30)
    )
    yield programs("two-small-writes-30ms", CHAT, 15, "--nodelay", path=far(30))
    yield programs("loss-20ms", BULK.format(20), 1, path=far(20, "--loss 0.02"), packets=1200)
    yield programs(
        "bottleneck-20ms", BULK.format(16), 1, path=far(20, "--rate 8e6 --queue 20000"), packets=900
    )


def connections():
    """Connections that open late or not at all, or end in a reset."""
    yield programs("syn-lost-40ms", TALK, 3, path=far(40, "--lose-syns 2"))
    yield programs("syn-ack-lost-40ms", TALK, 3, path=far(40, "--lose-syn-acks 2"))
    yield programs("accept-late-40ms", TALK, 3, "--fill 1", "--backlog 0 --late 2", path=far(40))
    yield programs(
        "accept-queue-40ms", TALK, 3, "--fill 1", "--backlog 0 --late 2", "--together", path=far(40)
    )
    fail = f"{sys.executable} {HERE}/programs.py fail"
    yield Scenario(
        "unanswered-40ms", IDLE, f"{fail} 198.51.100.9 2", far(40), ends="client",
        settings=("net/ipv4/tcp_syn_retries=2",),
    )
    yield Scenario("refused-40ms", IDLE, fail + " {server} 50", far(40))
    yield programs("unread-40ms", TALK, 3, serve="--leave", connect="--extra 3000", path=far(40))


def sizes():
    """Paths that take smaller packets than both ends do."""
    small = "--largest 1400"
    # A request, a large answer, and a request again.
    answer = "c100,s30000,c100"
    yield programs(
        "black-hole-40ms", answer, 1, path=far(40, small), packets=120,
        settings=("net/ipv4/tcp_mtu_probing=1",),
    )
    yield programs(
        "black-hole-unnoticed-40ms", answer, 1, "--patience 4", path=far(40, small), packets=120
    )
    yield programs(
        "path-mtu-reported-40ms", answer, 2, path=far(40, small + " --reports"), packets=120
    )


def other_stacks():
    """What other stacks than Linux do, made by the path as Linux does not do it."""
    # With the 40 ms by which Linux delays an ACK they are 250, as of lwIP.
    yield programs(
        "acks-250ms-late-40ms", PIECES, 12, path=far(40, "--late-acks 210"), ends="client"
    )


@contextlib.contextmanager
def namespaces(scenario):
    """Two namespaces with addresses and the path between them."""
    names = [f"capture-{os.getpid()}-{end}" for end in ("client", "server")]
    path = None
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        device = "path0"
        if scenario.path:
            command = [sys.executable, HERE / "path.py", *names, *scenario.path.split()]
            path = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            if path.stdout.readline() != b"ready\n":
                sys.exit("the path does not come up")
        else:
            peer = ["peer", "name", device, "netns", names[1]]
            run("ip", "-n", names[0], "link", "add", device, "type", "veth", *peer)
        for name, address in zip(names, (CLIENT, SERVER)):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
            settings = ("net/ipv4/tcp_congestion_control=reno", *scenario.settings)
            for setting in settings:
                where, value = setting.split("=")
                shell = f"echo {value} > /proc/sys/{where}"
                run("ip", "netns", "exec", name, "sh", "-c", shell)
        yield names
    finally:
        if path:
            path.stdin.close()
            path.wait(PATIENCE)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def run(*words):
    subprocess.run(words, check=True)


def within(namespace, command):
    """A shell command in a namespace, in a process group of its own."""
    words = ["ip", "netns", "exec", namespace, "sh", "-c", command]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, start_new_session=True, **quiet)


def end(process):
    """Ends a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        for _ in range(100):
            process.poll()
            time.sleep(0.05)
            os.killpg(process.pid, 0)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tcpdump(namespace, file, packets):
    words = ["ip", "netns", "exec", namespace, "tcpdump", "--immediate-mode", "-i", "path0"]
    words += ["-n", "-U", "-Z", "root", "-s", str(SNAPLEN), "-c", str(packets), "-w", file]
    words += ["tcp or icmp or icmp6"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True)
    for line in process.stderr:
        if b"listening" in line:
            return process
    sys.exit("tcpdump does not start")


def take(scenario, into):
    """Runs a scenario, and leaves NAME.client.pcap and NAME.server.pcap in a folder."""
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(namespaces(scenario))
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="capture-"))
        os.chmod(work, 0o755)
        words = {"work": work, "server": SERVER}
        server = within(names[1], scenario.server.format(**words))
        stack.callback(end, server)
        if "iperf3" not in scenario.server and server.stdout.readline() != b"ready\n":
            sys.exit(f"{scenario.name}: the server does not start")
        dumps = []
        for name, which in zip(names, ("client", "server")):
            if which in scenario.ends:
                file = into / f"{scenario.name}.{which}.pcap"
                dumps.append(tcpdump(name, file, scenario.packets))
                stack.callback(end, dumps[-1])
        client = within(names[0], scenario.client.format(**words))
        stack.callback(end, client)
        client.communicate(timeout=PATIENCE)
        if client.returncode != 0:
            sys.exit(f"{scenario.name}: the client ended with {client.returncode}")
        time.sleep(0.5)
        for dump in dumps:
            end(dump)


def missing(chosen):
    """The programs that these scenarios need and that are not there."""
    needed = "ip tcpdump redis-server redis-benchmark nginx curl iperf3 rsync sshd scp psql"
    needed += " pgbench memcached setpriv"
    commands = "ip tcpdump " + " ".join(each.server + each.client for each in chosen)
    lacking = [name for name in needed.split() if name in commands and not shutil.which(name)]
    if "initdb" in commands and not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
        lacking.append("postgresql")
    return lacking


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--into", type=pathlib.Path, default=CAPTURES)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    known = {scenario.name: scenario for scenario in scenarios()}
    if args.list:
        return print("\n".join(known))
    unknown = [name for name in args.scenario if name not in known]
    if unknown:
        sys.exit(f"there is no scenario {', '.join(unknown)}; --list prints all")
    if os.geteuid() != 0:
        sys.exit("namespaces and captures need root")
    names = args.scenario or list(known)
    if lacking := missing(known[name] for name in names):
        sys.exit(f"these programs are missing: {', '.join(lacking)}; see the packages in --help")
    args.into.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names:
        print(name, flush=True)
        try:
            take(known[name], args.into)
        except (SystemExit, OSError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
    if failed:
        sys.exit(f"not taken: {', '.join(failed)}")


if __name__ == "__main__":
    main()
