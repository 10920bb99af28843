//! System packages that the tests against the host kernel need.
//!
//! As root on a system with apt they are installed when they are missing, by the suite `prepare`
//! for all that follow; elsewhere they are named. No service that comes with a package is left
//! running.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

use crate::shell::{self, quiet};

/// A program that must be there, and the Debian package that brings it.
const NEEDED: [(&str, &str); 12] = [
    ("ip", "iproute2"),
    ("nstat", "iproute2"),
    ("tc", "iproute2"),
    ("sysctl", "procps"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
    ("nft", "nftables"),
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("python3", "python3"),
];

/// The same for the programs of others that the suites of `nightly` and single benches run.
const OUTSIDE: [(&str, &str); 9] = [
    ("go", "golang-go"),
    ("pg_ctlcluster", "postgresql"),
    ("h2load", "nghttp2-client"),
    ("npm", "npm"),
    ("wrk", "wrk"),
    ("pasta", "passt"),
    ("slirp4netns", "slirp4netns"),
    ("ncat", "ncat"),
    ("jq", "jq"),
];

/// Where `liblwip-dev` has the headers of lwIP, and one of them.
pub(crate) const LWIP_HEADERS: &str = "/usr/include/lwip";
const LWIP_HEADER: &str = "/usr/include/lwip/lwip/tcp.h";

/// The same for programs without which single tests are left out.
const WISHED: [(&str, &str); 10] = [
    ("chromium", "chromium"),
    ("traceroute", "traceroute"),
    ("dig", "bind9-dnsutils"),
    ("iperf3", "iperf3"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("git", "git"),
    ("ssh", "openssh-client"),
    ("sshd", "openssh-server"),
    ("/usr/bin/pip3", "python3-pip"),
];

/// The program that counts instructions, and the package that brings it.
const VALGRIND: &str = "valgrind";

/// Modules of the system's Python without which single tests are left out, with their packages.
const MODULES: [(&str, &str); 1] = [("prometheus_client", "python3-prometheus-client")];

/// Tells package scripts not to start services, while it exists.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Whether all was tried: nothing is installed any more, on the time of another suite.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Installs what is missing for the suites of `test`, or for those of `nightly`, if this is root
/// and there is apt-get. What cannot be had is named here; the suites that need it are left out, or
/// have failed where `CI` is set.
pub(crate) fn prepare(nightly: bool) -> Result<()> {
    let mut packages = missing_among(&all_programs());
    if nightly {
        packages.extend(missing_among(&["go", "h2load", "npm", "pg_ctlcluster", "ncat", "jq"]));
        packages.extend(cxx().is_err().then_some("g++"));
    }
    packages.extend(missing_among(&WISHED.map(|(program, _)| program)));
    packages
        .extend(MODULES.iter().filter(|(module, _)| !has_module(module)).map(|(_, name)| *name));
    packages.extend((!exists(VALGRIND)).then_some(VALGRIND));
    if rustix::process::geteuid().is_root() && !packages.is_empty() {
        let all = install(&packages);
        // One that is not to be had must not keep the others away.
        if all.is_err() && packages.len() > 1 {
            for package in packages {
                if let Err(error) = install(&[package]) {
                    println!("{package} is missing: {error:#}");
                }
            }
        }
    }
    PREPARED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Installs what is missing of the packages that only single tests need, if that is possible; those
/// tests are left out otherwise, and named.
pub(crate) fn wish() {
    let missing = missing_among(&WISHED.map(|(program, _)| program));
    if !missing.is_empty()
        && let Err(error) = install(&missing)
    {
        println!("some tests are left out: {error:#}");
    }
}

/// Makes sure that callgrind can be run. Says why not.
pub(crate) fn valgrind() -> Result<(), String> {
    bring(VALGRIND, || exists(VALGRIND))
}

/// Makes sure that the tests of the system's Python are there. Says why not.
pub(crate) fn python_tests() -> Result<(), String> {
    let version = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')";
    let output = Command::new("/usr/bin/python3").args(["-c", version]).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout);
    let package = format!("libpython{}-testsuite", version.trim());
    bring(&package, || has_module("test.test_socket"))
}

/// Makes sure that lwIP can be built against. Says why not.
pub(crate) fn lwip() -> Result<(), String> {
    bring("liblwip-dev", || Path::new(LWIP_HEADER).exists())
}

/// Makes sure that a program of others, which a single bench runs, is there. Says why not.
pub(crate) fn program(name: &str) -> Result<(), String> {
    let known = OUTSIDE.iter().chain(&WISHED).find(|(program, _)| *program == name);
    let (_, package) = known.ok_or_else(|| format!("{name} is in no package that is known"))?;
    bring(package, || exists(name))
}

/// Installs a package if what is wanted of it is not there. Says why it is not there then.
fn bring(package: &str, is_there: impl Fn() -> bool) -> Result<(), String> {
    if is_there() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(format!("{package} is missing (apt-get install {package})"));
    }
    install(&[package]).map_err(|error| format!("{error:#}"))?;
    if is_there() {
        return Ok(());
    }
    Err(format!("Debian's package {package} is installed, and does not have what is needed of it"))
}

/// Packages with those of these programs that are missing.
fn missing_among(programs: &[&str]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = NEEDED
        .iter()
        .chain(&OUTSIDE)
        .chain(&WISHED)
        .filter(|(program, _)| programs.contains(program) && !exists(program))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    packages
}

/// Looks for a C++ compiler.
pub(crate) fn cxx() -> Result<(), String> {
    let there = exists("c++") || exists("g++");
    there.then_some(()).ok_or("libFuzzer needs a C++ compiler".into())
}

/// Whether the Python that Debian's packages are for has a module.
fn has_module(module: &str) -> bool {
    quiet("/usr/bin/python3", &["-c", &format!("import {module}")])
}

fn exists(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into(), "/usr/bin".into()]);
    folders.iter().any(|folder| folder.join(program).is_file())
}

/// Installs Debian packages. Works only as root.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !exists("apt-get") {
        bail!("this system has no apt-get; install by hand: {}", packages.join(" "));
    }
    if PREPARED.load(Ordering::Relaxed) {
        bail!("these could not be installed: {}", packages.join(", "));
    }
    let words = ["install", "-y", "-q", "--no-install-recommends"];
    let download = [&words[..], &["--download-only"], packages].concat();
    for words in [&["update", "-q"][..], &download] {
        if !shell::run(&mut apt(words), shell::FETCH_LIMIT, |_| {})?.success() {
            bail!("apt-get {} failed", words.join(" "));
        }
    }
    // What was fetched is unpacked in a moment. Ending that half-way would leave a system in which
    // nothing can be installed, so neither the budget nor an interrupt does.
    let words = [&words[..], &["--no-download"], packages].concat();
    let installed = shell::to_its_end(&mut apt(&words), NoServices::begin);
    if !installed?.success() {
        bail!("apt-get {} failed", words.join(" "));
    }
    Ok(())
}

fn apt(words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// While it lives, an installation starts no service.
struct NoServices {
    made: bool,
}

impl NoServices {
    fn begin() -> Result<NoServices> {
        if Path::new(POLICY).exists() {
            return Ok(NoServices { made: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").context("writing policy-rc.d")?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))
            .context("making policy-rc.d executable")?;
        Ok(NoServices { made: true })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_file(POLICY);
        }
    }
}

/// Makes sure that tests with these programs can be run against the host's kernel. Says why not.
pub(crate) fn kernel_tests(programs: &[&str]) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("they need root, for network namespaces".into());
    }
    let missing = missing_among(programs);
    if !missing.is_empty() {
        install(&missing).map_err(|error| format!("{error:#}"))?;
    }
    if !quiet("unshare", &["--net", "true"]) {
        return Err("network namespaces cannot be made here: unshare --net fails".into());
    }
    tun_device()
}

/// The programs that tests against the host's kernel need.
pub(crate) fn all_programs() -> [&'static str; NEEDED.len()] {
    NEEDED.map(|(program, _)| program)
}

/// Makes sure that there is a TUN device to open. Says why not if there is none.
fn tun_device() -> Result<(), String> {
    let device = Path::new("/dev/net/tun");
    if !device.exists() {
        let _ = fs::create_dir_all("/dev/net");
        quiet("mknod", &["/dev/net/tun", "c", "10", "200"]);
    }
    match fs::File::options().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/net/tun cannot be opened: {error}")),
    }
}
