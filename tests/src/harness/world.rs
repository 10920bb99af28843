//! A namespace with a TUN device between its kernel and `plimsoll`.
//!
//! The kernel is 192.0.2.1 and 2001:db8::1, Plimsoll is 192.0.2.2 and 2001:db8::2.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::files::Scratch;
use super::netns::Namespace;
use super::process::Process;

pub(crate) const KERNEL: &str = "192.0.2.1";
pub(crate) const KERNEL6: &str = "2001:db8::1";
pub(crate) const OURS: &str = "192.0.2.2";
pub(crate) const OURS6: &str = "2001:db8::2";
pub(crate) const DEVICE: &str = "plim0";
const ADDRESSES: &str = "192.0.2.2/24,2001:db8::2/64";

/// How long a program may take until it says that it is ready.
pub(crate) const START: Duration = Duration::from_secs(10);

/// The place where a test happens.
pub(crate) struct World {
    pub(crate) ns: Namespace,
    pub(crate) scratch: Scratch,
    offloads: bool,
}

impl World {
    pub(crate) fn new() -> Result<World> {
        World::build(1500, true, "")
    }

    /// A world whose TUN device can have several queues.
    pub(crate) fn with_queues() -> Result<World> {
        World::build(1500, true, "multi_queue")
    }

    pub(crate) fn with_mtu(mtu: u16) -> Result<World> {
        World::build(mtu, true, "")
    }

    /// A world whose TUN device carries one segment at a time, checksums filled in, both ways.
    pub(crate) fn without_offloads() -> Result<World> {
        World::build(1500, false, "")
    }

    fn build(mtu: u16, offloads: bool, kind: &str) -> Result<World> {
        let ns = Namespace::new()?;
        ns.ip(&format!("tuntap add dev {DEVICE} mode tun {kind}"))?;
        ns.ip(&format!("link set {DEVICE} mtu {mtu}"))?;
        ns.ip(&format!("addr add {KERNEL}/24 dev {DEVICE}"))?;
        ns.ip(&format!("-6 addr add {KERNEL6}/64 dev {DEVICE} nodad"))?;
        ns.ip(&format!("link set {DEVICE} up"))?;
        Ok(World { ns, scratch: Scratch::new()?, offloads })
    }

    /// `plimsoll SUBCOMMAND` on the TUN device, to be run inside the namespace.
    pub(crate) fn plimsoll(&self, subcommand: &str) -> Result<Command> {
        let program = plimsoll_program()?;
        let mut command = self.ns.command(&program.to_string_lossy());
        let device = format!("tun:{DEVICE}");
        command.args([subcommand, "--device", &device, "--address", ADDRESSES]);
        if !self.offloads {
            command.args(["--offload", "off"]);
        }
        Ok(command)
    }

    /// Starts `plimsoll serve` and waits until it says `ready`.
    pub(crate) fn serve(&self, words: &[&str]) -> Result<Process> {
        let mut process = Process::spawn("plimsoll serve", self.plimsoll("serve")?.args(words))?;
        process.wait_line(START, |line| line == "ready")?;
        Ok(process)
    }

    /// Starts `plimsoll serve http:80:SCRATCH` with more options.
    pub(crate) fn serve_http(&self, options: &[&str]) -> Result<Process> {
        let http = format!("http:80:{}", self.scratch.path().display());
        let mut words = options.to_vec();
        words.push(&http);
        self.serve(&words)
    }

    /// This program's `peer` command inside the namespace: kernel sockets.
    pub(crate) fn peer(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.this_program()?;
        command.arg("peer").args(words);
        Ok(command)
    }

    /// Starts a peer and waits until it says `ready`.
    pub(crate) fn start_peer(&self, words: &[&str]) -> Result<Process> {
        let mut process = Process::spawn(words[0], &mut self.peer(words)?)?;
        process.wait_line(START, |line| line == "ready")?;
        Ok(process)
    }

    /// This program's `client` command inside the namespace: sockets of the `plimsoll` crate.
    pub(crate) fn client(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.this_program()?;
        command.arg("client").args(words);
        Ok(command)
    }

    fn this_program(&self) -> Result<Command> {
        let program = env::current_exe().context("finding this program")?;
        Ok(self.ns.command(&program.to_string_lossy()))
    }

    /// Starts nginx in the foreground on port 8080 of the kernel; it serves the scratch folder.
    pub(crate) fn nginx(&self) -> Result<Process> {
        let folder = self.scratch.path().display().to_string();
        let config = nginx_config(&folder);
        let path = self.scratch.file("nginx.conf");
        std::fs::write(&path, config).context("writing the configuration of nginx")?;
        let path = path.to_string_lossy().into_owned();
        let mut command = self.ns.command("nginx");
        command.args(["-p", &folder, "-c", &path, "-e", "stderr"]);
        let mut process = Process::spawn("nginx", &mut command)?;
        // It says so with the notice level, once its workers have been started.
        process.wait_line(START, |line| line.contains("start worker process "))?;
        Ok(process)
    }

    /// Drops every packet on the TUN device from now on, both ways: the peer has vanished.
    pub(crate) fn vanish(&self) -> Result<()> {
        self.ns.run("nft add table inet gone")?;
        for hook in ["input", "output"] {
            let chain = format!("{{ type filter hook {hook} priority 0 ; policy drop ; }}");
            let mut command = self.ns.command("nft");
            command.args(["add", "chain", "inet", "gone", hook, &chain]);
            super::netns::run(&mut command)?;
        }
        Ok(())
    }

    /// Undoes `vanish`.
    pub(crate) fn return_again(&self) -> Result<()> {
        self.ns.run("nft delete table inet gone").map(drop)
    }
}

/// The URL of a file that Plimsoll serves.
pub(crate) fn our_url(name: &str) -> String {
    format!("http://{OURS}/{name}")
}

/// The same over IPv6.
pub(crate) fn our_url6(name: &str) -> String {
    format!("http://[{OURS6}]/{name}")
}

/// The URL of a file that nginx on the kernel serves.
pub(crate) fn kernel_url(name: &str) -> String {
    format!("http://{KERNEL}:8080/{name}")
}

fn nginx_config(folder: &str) -> String {
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {folder}/nginx.pid;\n\
         error_log stderr notice;\nevents {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n\
         client_body_temp_path {folder}/nginx-body;\n  proxy_temp_path {folder}/nginx-proxy;\n\
         fastcgi_temp_path {folder}/nginx-fastcgi;\n  uwsgi_temp_path {folder}/nginx-uwsgi;\n\
         scgi_temp_path {folder}/nginx-scgi;\n\
         server {{\n    listen {KERNEL}:8080;\n    listen [{KERNEL6}]:8080;\n\
         root {folder};\n  }}\n}}\n"
    )
}

/// The program of a measurement that compares several.
static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Chooses the `plimsoll` that [`plimsoll_program`] returns from now on.
pub(crate) fn set_program(path: &Path) {
    *PROGRAM.lock().expect("nothing panics that holds it") = Some(path.into());
}

/// The `plimsoll` program: the chosen one, or named by `PLIMSOLL_BIN`, or beside this program.
pub(crate) fn plimsoll_program() -> Result<PathBuf> {
    let chosen = PROGRAM.lock().expect("nothing panics that holds it").clone();
    let path = match chosen.or_else(|| env::var_os("PLIMSOLL_BIN").map(PathBuf::from)) {
        Some(path) => path,
        None => env::current_exe().context("finding this program")?.with_file_name("plimsoll"),
    };
    let path = std::path::absolute(&path)?;
    ensure!(path.exists(), "{} is missing: build plimsoll-cli first", path.display());
    Ok(path)
}

/// Runs curl inside the namespace with its output going to `sink`.
pub(crate) fn curl(world: &World, args: &[&str]) -> Command {
    let mut command = world.ns.command("curl");
    command.args(["-sS", "--fail", "--max-time", "100", "-g"]).args(args);
    command.stdin(Stdio::null());
    command
}
