//! Unchanged programs as the command of `plimsoll run`, with their servers at the far host.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::dns;
use crate::harness::behind::{LATER, PYTHON, World, started};
use crate::harness::files::{digest, digest_of, expect_digest};
use crate::harness::process::{Ended, Process};
use crate::harness::runner::Case;
use crate::harness::veth::FAR;

pub(crate) const CASES: &[Case] = &[
    Case::light("run::curl_downloads_and_uploads", curl),
    Case::light("run::git_clones_and_pushes_over_ssh", git).needing("sshd"),
    Case::light("run::redis_benchmark_finishes", redis).needing("redis-server"),
    Case::light("run::pgbench_finishes", pgbench).needing("pg_ctlcluster").of_nightly(),
    Case { limit: Duration::from_secs(180), ..Case::light("run::static_go_program_fetches", go) }
        .needing("go")
        .of_nightly(),
    Case::light("run::iperf3_sends_both_ways", iperf3).needing("iperf3"),
    Case::light("run::ping_reaches_the_gateway", ping),
    Case::light("run::ping_reaches_hosts_beyond_the_gateway", ping_outside),
    Case::light("run::dig_asks_over_udp_and_tcp", dig).needing("dig"),
    Case::light("run::pip_downloads_a_package", pip).needing("/usr/bin/pip3"),
    Case::light("run::programs_need_no_more_than_their_rules", under_rules)
        .needing("/usr/bin/pip3"),
    Case::light("run::npm_and_cargo_need_no_more_than_their_rules", registries)
        .needing("npm")
        .of_nightly(),
    Case::light("run::apt_downloads_a_package", apt).needing("apt-get"),
    Case { limit: Duration::from_secs(180), ..Case::light("run::python_s_socket_tests", python) }
        .needing_module("test.test_socket")
        .of_nightly(),
];

/// The ordinary user of [`World`].
const USER: u32 = 65534;

/// A web server of Python's for files of its folder, which also takes uploads.
const WEB_SERVER: &str = "import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self):
        with open('uploaded', 'wb') as f:
            f.write(self.rfile.read(int(self.headers['Content-Length'])))
        self.send_response(201); self.send_header('Content-Length', '0'); self.end_headers()
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 8000), Handler)
print('ready', flush=True)
server.serve_forever()";

impl World {
    /// A folder of the scratch folder in which the user may write.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.scratch.file(name);
        fs::create_dir_all(&folder).context("making a folder")?;
        chown(&folder, Some(USER), Some(USER)).context("giving a folder away")?;
        Ok(folder)
    }

    /// The web server, for a folder of the scratch folder.
    pub(super) fn web(&self, folder: &str) -> Result<Process> {
        let mut command = self.hosts.far.command(PYTHON);
        command.args(["-c", WEB_SERVER, "0.0.0.0"]).current_dir(self.scratch.file(folder));
        started("web server", &mut command, "ready")
    }

    /// Runs a command inside and requires success.
    fn inside(&self, words: &[&str]) -> Result<Ended> {
        Process::spawn(words[0], &mut self.run(&[], words)?)?.success(LATER)
    }

    /// The same with a shell script, whose arguments follow.
    fn shell(&self, script: &str, words: &[&str]) -> Result<Ended> {
        self.inside(&[&["sh", "-ec", script, "sh"], words].concat())
    }

    /// A name server at the far host that the near host uses: it gives each name the address
    /// [`dns::ANSWER`], which is the far host's as well.
    pub(super) fn name_server(&self) -> Result<Process> {
        let address = std::net::Ipv4Addr::from(dns::ANSWER);
        self.hosts.far.ip(&format!("addr add {address}/24 dev v1"))?;
        self.write("resolv.conf", &format!("nameserver {FAR}\n"))?;
        let mut command = self.hosts.far.program(&["peer", "names", &format!("{FAR}:53")])?;
        started("name server", &mut command, "ready")
    }
}

fn curl() -> Result<()> {
    let world = World::new()?;
    world.folder("www")?;
    world.folder("work")?;
    let sum = world.scratch.generate("www/file", 8_000_000, 1)?;
    let sent = world.scratch.generate("sent", 8_000_000, 2)?;
    let _web = world.web("www")?;
    let url = format!("http://{FAR}:8000");
    let script = "curl -sS --fail -o \"$3\" \"$1/file\"; curl -sS --fail -T \"$2\" \"$1/\"
                  curl -sS -o /dev/null -w '%{http_code}\\n' \"$1/missing\"";
    let ended = world.shell(script, &[&url, &world.path("sent"), &world.path("work/got")])?;
    ensure!(ended.stdout.ends_with("404\n"), "{}", ended.said);
    expect_digest(&world.scratch.file("work/got"), &sum)?;
    expect_digest(&world.scratch.file("www/uploaded"), &sent)
}

/// An ssh server for root with a key of the user's, and the words of a client of it.
pub(super) fn ssh_server(world: &World) -> Result<(Process, String)> {
    let keys = world.folder("keys")?;
    for name in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(keys.join(name));
        Process::spawn("ssh-keygen", &mut command)?.success(LATER)?;
    }
    chown(keys.join("user"), Some(USER), Some(USER)).context("giving the key away")?;
    let host = fs::read_to_string(keys.join("host.pub")).context("the host's key")?;
    world.write("keys/known", &format!("[{FAR}]:2222 {host}"))?;
    let keys = world.path("keys");
    let config = format!(
        "ListenAddress {FAR}\nPort 2222\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\n\
         StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\n\
         PasswordAuthentication no\nAllowUsers root\n"
    );
    let config = world.write("sshd_config", &config)?;
    let shadow = world.write("shadow", "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n")?;
    // sshd needs a folder of its own in /run, and an account that is not locked.
    let script = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && \
                  mount --bind \"$1\" /etc/shadow && \
                  exec \"$(command -v sshd || echo /usr/sbin/sshd)\" -D -e -f \"$0\"";
    let words = ["unshare", "--mount", "sh", "-c", script, &config, &shadow];
    let server = world.far(&words, "Server listening")?;
    let client = format!(
        "ssh -F none -i {keys}/user -o UserKnownHostsFile={keys}/known -o BatchMode=yes \
         -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=none"
    );
    Ok((server, client))
}

fn git() -> Result<()> {
    let world = World::new()?;
    let (_server, ssh) = ssh_server(&world)?;
    world.folder("work")?;
    let sum = world.scratch.generate("old", 3_000_000, 1)?;
    world.scratch.generate("new", 3_000_000, 2)?;
    let name = "-c user.name=test -c user.email=test@example.org -c safe.directory=*";
    let make = format!(
        "cd \"$0\"; git init -q --bare repo.git; git init -q made; cd made; cp ../old .; \
         git add old; git {name} commit -q -m old; git push -q ../repo.git HEAD:refs/heads/main; \
         git -C ../repo.git symbolic-ref HEAD refs/heads/main"
    );
    let mut command = Command::new("sh");
    command.args(["-ec", &make]).arg(world.scratch.path());
    Process::spawn("git", &mut command)?.success(LATER)?;
    let script = format!(
        "cd \"$1/work\"; export HOME=$PWD GIT_SSH_COMMAND=\"$2\"
         git clone -q \"$3\" clone; cd clone; sha256sum < old; cp \"$1/new\" .; git add new
         git {name} commit -q -m new; git push -q origin HEAD:refs/heads/main; git rev-parse HEAD"
    );
    let url = format!("ssh://root@{FAR}:2222{}", world.path("repo.git"));
    let ended = world.shell(&script, &[&world.path(""), &ssh, &url])?;
    let mut lines = ended.stdout.lines();
    let cloned = lines.next().unwrap_or_default();
    ensure!(cloned.starts_with(&sum), "another file was cloned: {}", ended.said);
    let repo = world.path("repo.git");
    let mut command = Command::new("git");
    command.args(["-C", &repo, "-c", "safe.directory=*", "rev-parse", "main"]);
    let pushed = Process::spawn("git", &mut command)?.success(LATER)?;
    ensure!(lines.next() == pushed.stdout.lines().next(), "{}\n{}", ended.said, pushed.said);
    let mut command = Command::new("git");
    command.args(["-C", &repo, "-c", "safe.directory=*", "fsck", "--strict"]);
    Process::spawn("git", &mut command)?.success(LATER).map(drop)
}

fn redis() -> Result<()> {
    let world = World::new()?;
    let folder = world.path("");
    let server = ["redis-server", "--bind", FAR, "--port", "6379", "--protected-mode", "no"];
    let quiet = ["--save", "", "--appendonly", "no", "--dir", &folder];
    let _server = world.far(&[&server[..], &quiet].concat(), "Ready to accept connections")?;
    let tests = "ping_mbulk,set,get,lrange_100,mset";
    let benchmark = ["redis-benchmark", "-h", FAR, "-n", "3000", "-c", "20", "-d", "1000"];
    for pipeline in ["1", "16"] {
        let ended =
            world.inside(&[&benchmark[..], &["-P", pipeline, "--csv", "-t", tests]].concat())?;
        let rows = ended.stdout.lines().filter(|line| line.starts_with('"')).count();
        ensure!(rows >= 6 && !ended.said.contains("rror"), "{}", ended.said);
    }
    let large = ["redis-benchmark", "-h", FAR, "-n", "60", "-c", "3", "-d", "300000", "-q"];
    let ended = world.inside(&[&large[..], &["-t", "set,get"]].concat())?;
    ensure!(ended.stdout.contains("GET: ") && !ended.said.contains("rror"), "{}", ended.said);
    Ok(())
}

/// The folder with PostgreSQL's programs of the newest version.
fn postgresql() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL's versions")?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").exists()).max().context("no initdb")
}

fn pgbench() -> Result<()> {
    let world = World::new()?;
    world.folder("pg")?;
    let programs = postgresql()?;
    let program = |name: &str| programs.join(name).to_string_lossy().into_owned();
    let as_user =
        "cd /; chmod 755 \"$1\"; user='setpriv --reuid=65534 --regid=65534 --clear-groups'
                   $user \"$2/initdb\" -D \"$1/pg\" -A trust -U postgres --no-sync -E UTF8 \
                   --locale C > /dev/null
                   echo 'host all all 198.51.100.0/24 trust' >> \"$1/pg/pg_hba.conf\"
                   exec $user \"$2/postgres\" -D \"$1/pg\" -h \"$3\" -p 5433 -k \"$1/pg\" -F";
    let folder = world.path("");
    let bin = programs.to_string_lossy();
    let words = ["sh", "-ec", as_user, "sh", folder.trim_end_matches('/'), &bin, FAR];
    let mut server = world.far(&words, "ready to accept connections")?;
    let bench = program("pgbench");
    let address = ["-h", FAR, "-p", "5433", "-U", "postgres"];
    let run = |words: &[&str]| world.inside(&[&[&*bench], &address[..], words].concat());
    run(&["-i", "-q", "-s", "1", "postgres"])?;
    for kind in [&["-S"][..], &[]] {
        let ended = run(&[kind, &["-n", "-c", "4", "-j", "2", "-t", "100", "postgres"]].concat())?;
        ensure!(ended.stdout.contains("400/400"), "{}", ended.said);
    }
    ensure!(server.alive(), "{}", server.said());
    // At once: it has nothing to keep.
    server.signal(rustix::process::Signal::QUIT)?;
    server.wait(LATER).map(drop)
}

/// Fetches each URL and prints its status and the digest of the body.
const GO_PROGRAM: &str = r#"package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		answer, err := http.Get(url)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, answer.Body); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("%d %x\n", answer.StatusCode, sum.Sum(nil))
	}
}
"#;

fn go() -> Result<()> {
    let world = World::new()?;
    let source = world.write("fetch.go", GO_PROGRAM)?;
    let mut build = Command::new("go");
    build.args(["build", "-o", &world.path("fetch"), &source]).current_dir(world.scratch.path());
    // Nothing is fetched. Without C, Go has its own resolver and the program is static.
    build.envs([("CGO_ENABLED", "0"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
    build.env("GOCACHE", world.path("go-cache")).env("GOFLAGS", "-mod=mod");
    Process::spawn("go build", &mut build)?.success(Duration::from_secs(150))?;
    world.folder("www")?;
    let sum = world.scratch.generate("www/file", 5_000_000, 3)?;
    let (_names, _web) = (world.name_server()?, world.web("www")?);
    let urls = [format!("http://{FAR}:8000/file"), "http://files.example:8000/file".to_owned()];
    let ended = world.inside(&[&world.path("fetch"), &urls[0], &urls[1]])?;
    ensure!(ended.stdout == format!("200 {sum}\n").repeat(2), "{}", ended.said);
    Ok(())
}

fn iperf3() -> Result<()> {
    let world = World::new()?;
    let words = ["iperf3", "-s", "-B", FAR, "--forceflush"];
    let _server = world.far(&words, "Server listening")?;
    let client = ["iperf3", "-c", FAR, "-n", "100M", "-J"];
    let udp = ["-u", "-l", "1400", "-b", "50M", "-n", "3M"];
    for more in [&[][..], &["-R"], &["-P", "4"], &["-P", "4", "-R"], &udp] {
        let ended = world.inside(&[&client[..], more].concat())?;
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).context("no JSON")?;
        let end = &report["end"];
        let sum = if end["sum"].is_null() { &end["sum_received"] } else { &end["sum"] };
        let bytes = sum["bytes"].as_u64().with_context(|| ended.said.clone())?;
        // A sender in reverse stops at the bytes that it has handed to its kernel.
        let least = if more == udp { 2_500_000 } else { 90_000_000 };
        ensure!(bytes >= least, "{more:?}: {bytes} bytes: {}", ended.said);
    }
    Ok(())
}

fn ping() -> Result<()> {
    let world = World::new()?;
    for words in ["-c 3 -i 0.2 10.0.2.2", "-c 2 -i 0.2 -s 8000 10.0.2.2"] {
        let words: Vec<&str> = words.split(' ').collect();
        let ended = world.inside(&[&["ping", "-n", "-W", "5"], &words[..]].concat())?;
        ensure!(ended.stdout.contains(" 0% packet loss"), "{}", ended.said);
    }
    Ok(())
}

/// A ping to the outside is answered by the far host only.
fn ping_outside() -> Result<()> {
    let world = World::new()?;
    world.hosts.near.sysctl("net/ipv4/ping_group_range", "0 2147483647")?;
    let ended = world.inside(&["ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", FAR])?;
    ensure!(ended.stdout.contains(&format!("bytes from {FAR}")), "{}", ended.said);
    ensure!(ended.stdout.contains(" 0% packet loss"), "{}", ended.said);
    let nowhere = world.ended(&[], &["ping", "-n", "-c", "1", "-W", "1", "198.51.100.99"])?;
    ensure!(nowhere.status.code() == Some(1), "{:?}: {}", nowhere.status, nowhere.said);
    ensure!(nowhere.stdout.contains(" 0 received"), "{}", nowhere.said);
    Ok(())
}

fn dig() -> Result<()> {
    let world = World::new()?;
    let _names = world.name_server()?;
    let script = "for how in +notcp +tcp; do for type in A AAAA; do
                  dig +short +tries=1 +timeout=5 $how name.example $type; done; done
                  getent ahostsv4 name.example | head -1
                  dig +short +tries=1 +timeout=5 @\"$1\" other.example A";
    let ended = world.shell(script, &[FAR])?;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let (v4, v6) = ("198.51.100.77", "2001:db8:9::77");
    ensure!(lines.len() == 6 && lines[..4] == [v4, v6, v4, v6], "{}", ended.said);
    ensure!(lines[4].starts_with(v4) && lines[5] == v4, "{}", ended.said);
    Ok(())
}

/// Makes a wheel and the pages of an index.
const MAKE_INDEX: &str = "import base64, hashlib, pathlib, zipfile
folder = pathlib.Path('simple/tiny'); folder.mkdir(parents=True)
info = 'tiny-1.0.dist-info'
files = {'tiny.py': 'WORDS = ' + repr('x' * 100000),
  info + '/METADATA': 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n',
  info + '/WHEEL': 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}
record = ''
for name, text in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    record += f'{name},sha256={digest.rstrip(\"=\")},{len(text)}\\n'
files[info + '/RECORD'] = record + info + '/RECORD,,\\n'
wheel = folder / 'tiny-1.0-py3-none-any.whl'
with zipfile.ZipFile(wheel, 'w') as z:
    for name, text in files.items(): z.writestr(name, text)
sum = hashlib.sha256(wheel.read_bytes()).hexdigest()
(folder / 'index.html').write_text(f'<a href=\"{wheel.name}#sha256={sum}\">{wheel.name}</a>')
print(sum)";

/// Makes them in the folder of the web server. Returns the digest of the wheel.
fn make_index(world: &World) -> Result<Ended> {
    let mut command = Command::new(PYTHON);
    command.args(["-c", MAKE_INDEX]).current_dir(world.scratch.file("www"));
    Process::spawn("index", &mut command)?.success(LATER)
}

/// Programs that look a name up, under a rule for it.
fn under_rules() -> Result<()> {
    let world = World::new()?;
    world.folder("www")?;
    world.folder("work")?;
    let _names = world.name_server()?;
    make_index(&world)?;
    let sum = world.scratch.generate("www/file", 8_000_000, 1)?;
    let make = "git init -q r; cd r; echo one > a; git add a
                git -c user.name=n -c user.email=e commit -qm one
                git update-server-info; cp -r .git ../r.git";
    let mut command = Command::new("sh");
    command.args(["-ec", make]).current_dir(world.scratch.file("www"));
    Process::spawn("repository", &mut command)?.success(LATER)?;
    let _web = world.web("www")?;
    let script = "cd \"$1\"; export HOME=$PWD; url=http://files.example.com:8000
                  curl -sS --fail -o got $url/file; git clone -q $url/r.git cloned; cat cloned/a
                  \"$2\" -m pip download -q --no-cache-dir --disable-pip-version-check \
                  --index-url $url/simple --trusted-host files.example.com tiny
                  ls tiny-1.0-py3-none-any.whl";
    let work = world.path("work");
    let words = ["sh", "-ec", script, "sh", &work, PYTHON];
    let rules = ["--net-allow", "files.example.com:8000"];
    let ended = world.ended(&rules, &words)?;
    ensure!(ended.stdout == "one\ntiny-1.0-py3-none-any.whl\n", "{}", ended.said);
    ensure!(!ended.said.contains("refused"), "{}", ended.said);
    expect_digest(&world.scratch.file("work/got"), &sum)?;
    let rules = ["--net-allow", "other.example.com:8000"];
    let ended = world.ended(&rules, &words)?;
    ensure!(ended.said.contains("Could not resolve host: files.example.com"), "{}", ended.said);
    Ok(())
}

/// The registry of npm and that of cargo, each with the package `ahoy`.
const REGISTRIES: &str = "
cd \"$1\"; url=http://files.example.com:8000
mkdir -p package; 
echo '{\"name\":\"ahoy\",\"version\":\"1.0.0\"}' > package/package.json
tar czf ahoy.tgz package
cat > ahoy <<END
{\"name\":\"ahoy\",\"dist-tags\":{\"latest\":\"1.0.0\"},\"versions\":{\"1.0.0\":{\"name\":\"ahoy\",
\"version\":\"1.0.0\",\"dist\":{\"tarball\":\"$url/ahoy.tgz\"}}}}
END
mkdir -p ahoy-1.0.0/src index/ah/oy; touch ahoy-1.0.0/src/lib.rs
printf '[package]\\nname = \"ahoy\"\\nversion = \"1.0.0\"\\n' > ahoy-1.0.0/Cargo.toml
tar czf ahoy.crate ahoy-1.0.0; sum=$(sha256sum ahoy.crate | cut -d' ' -f1)
echo \"{\\\"dl\\\":\\\"$url/{crate}.crate\\\"}\" > index/config.json
cat > index/ah/oy/ahoy <<END
{\"name\":\"ahoy\",\"vers\":\"1.0.0\",\"deps\":[],\"features\":{},\
\"yanked\":false,\"cksum\":\"$sum\"}
END";

/// As root, who may read the toolchain.
fn registries() -> Result<()> {
    let world = World::new()?;
    let www = world.folder("www")?;
    let work = world.scratch.file("work");
    let _names = world.name_server()?;
    let mut command = Command::new("sh");
    command.args(["-ec", REGISTRIES, "sh"]).arg(&www);
    Process::spawn("registries", &mut command)?.success(LATER)?;
    let _web = world.web("www")?;
    fs::create_dir_all(work.join("src"))?;
    fs::write(work.join("src/lib.rs"), "")?;
    let dependency = "ahoy = { version = \"1\", registry = \"local\" }";
    let package = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n[dependencies]\n";
    fs::write(work.join("Cargo.toml"), format!("{package}{dependency}\n[workspace]\n"))?;
    let script = "cd \"$1\"; url=http://files.example.com:8000
                  npm install --loglevel=error --no-audit --no-fund --fetch-retries=0 \
                  --cache \"$1/npm\" --registry $url ahoy > /dev/null
                  cat node_modules/ahoy/package.json
                  export CARGO_HOME=\"$1/cargo\" CARGO_REGISTRIES_LOCAL_INDEX=sparse+$url/index/
                  cargo fetch -q; ls cargo/registry/cache/*/";
    let run = |rule: &str| -> Result<Ended> {
        let program = world.path("plimsoll");
        let mut command = world.hosts.near.command("unshare");
        command.args(["--mount", "sh", "-ec"]).arg(format!(
            "mount --bind {} /etc/resolv.conf; exec \"$@\"",
            world.path("resolv.conf")
        ));
        command.args(["sh", &program, "run", "--net-allow", rule, "--", "sh", "-ec", script, "sh"]);
        Process::spawn("plimsoll run", command.arg(&work))?.wait(LATER)
    };
    let ended = run("other.example.com:8000")?;
    ensure!(!ended.status.success() && ended.said.contains("refused"), "{}", ended.said);
    let ended = run("files.example.com:8000")?;
    let expected = "{\"name\":\"ahoy\",\"version\":\"1.0.0\"}\nahoy-1.0.0.crate\n";
    ensure!(ended.stdout == expected && !ended.said.contains("refused"), "{}", ended.said);
    Ok(())
}

fn pip() -> Result<()> {
    let world = World::new()?;
    world.folder("www")?;
    world.folder("work")?;
    let made = make_index(&world)?;
    let _web = world.web("www")?;
    let url = format!("http://{FAR}:8000/simple");
    let script = "cd \"$1\"; export HOME=$PWD; \"$2\" -m pip download -q --no-cache-dir \
                  --disable-pip-version-check --index-url \"$3\" --trusted-host \"$4\" tiny";
    world.shell(script, &[&world.path("work"), PYTHON, &url, FAR])?;
    expect_digest(&world.scratch.file("work/tiny-1.0-py3-none-any.whl"), made.stdout.trim())
}

fn apt() -> Result<()> {
    let world = World::new()?;
    world.folder("www")?;
    let work = world.folder("work")?;
    for name in ["state/lists/partial", "cache/archives/partial", "etc"] {
        fs::create_dir_all(work.join(name)).context("making apt's folders")?;
    }
    // The client compares sizes and digests only; this package is never unpacked.
    let sum = world.scratch.generate("www/tiny.deb", 2_000_000, 4)?;
    let packages = format!(
        "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@example.org>\n\
         Filename: ./tiny.deb\nSize: 2000000\nSHA256: {sum}\nDescription: noise\n"
    );
    let list = digest_of(packages.as_bytes())?;
    world.write("www/Packages", &packages)?;
    let release = format!("Suite: test\nSHA256:\n {list} {} Packages\n", packages.len());
    world.write("www/Release", &release)?;
    world.write("work/status", "")?;
    world.write("work/sources", &format!("deb [trusted=yes] http://{FAR}:8000 ./\n"))?;
    let config = format!(
        "Dir \"{0}\";\nDir::State \"{0}/state\";\nDir::State::status \"{0}/status\";\n\
         Dir::Cache \"{0}/cache\";\nDir::Etc \"{0}/etc\";\nDir::Etc::sourcelist \"{0}/sources\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\nDir::Bin::methods \"/usr/lib/apt/methods\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"0\";\n",
        work.display()
    );
    let config = world.write("apt.conf", &config)?;
    let mut command = Command::new("chown");
    command.args(["-R", &format!("{USER}:{USER}")]).arg(&work);
    Process::spawn("chown", &mut command)?.success(LATER)?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).context("apt.conf")?;
    let _web = world.web("www")?;
    let script = "cd \"$1\"; export APT_CONFIG=\"$2\"; apt-get update -q; apt-get download -q tiny";
    world.shell(script, &[&world.path("work"), &config])?;
    let found = digest(&work.join("tiny_1.0_all.deb"))?;
    ensure!(found == sum, "another package came");
    Ok(())
}

/// Python's tests of sockets end as they do without `run`.
fn python() -> Result<()> {
    let world = World::new()?;
    // Nothing answers there, and that is reported at once.
    world.write("resolv.conf", &format!("nameserver {FAR}\n"))?;
    let script = world.write("socket_tests.py", include_str!("socket_tests.py"))?;
    let words = ["sh", "-c", "cd /tmp && exec \"$0\" -B \"$1\"", PYTHON, &script];
    let limit = Duration::from_secs(80);
    let mut outcomes = Vec::new();
    for mut command in [world.directly(&words), world.run(&[], &words)?] {
        let ended = Process::spawn("socket tests", &mut command)?.success(limit)?;
        let lines = ended.stdout.lines().filter(|line| line.starts_with("test."));
        outcomes.push(lines.map(String::from).collect::<BTreeSet<_>>());
    }
    let (without, with) = (&outcomes[0], &outcomes[1]);
    ensure!(without.len() > 300, "{} tests only", without.len());
    let differing: Vec<&String> = without.symmetric_difference(with).collect();
    ensure!(differing.is_empty(), "these differ: {differing:#?}");
    Ok(())
}
