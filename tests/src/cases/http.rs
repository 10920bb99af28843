//! Files over HTTP, both ways, all compared by SHA-256.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::harness::capture;
use crate::harness::files::{digest_of, expect_digest};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{
    DEVICE, KERNEL, KERNEL6, OURS, World, curl, kernel_url, our_url, our_url6,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(100);

/// A super-segment must be at least this long to count as far above an MTU of 1500.
const SUPER: u32 = 16_000;

pub(crate) const CASES: &[Case] = &[
    Case::heavy("http::curl_gets_1_gib_in_super_segments", curl_gets_1_gib),
    Case::heavy("http::get_fetches_1_gib_in_super_segments", get_fetches_1_gib),
    Case::heavy("http::256_curls_at_once", many_curls),
    Case::heavy("http::both_ways_over_ipv6", || over_ipv6(64 * MIB)),
    Case::heavy("http::packets_beyond_64_kib_arrive_whole", beyond_64_kib),
    Case::heavy("http::both_ways_with_mtu_1280", || with_mtu(1280)),
    Case::heavy("http::both_ways_with_mtu_1500", || with_mtu(1500)),
    Case::heavy("http::both_ways_with_mtu_9000", || with_mtu(9000)),
    Case::heavy("http::both_ways_without_offloads", without_offloads),
    Case::heavy("http::both_ways_when_the_kernel_refuses_offloads", offloads_refused),
    Case::heavy("http::curl_gets_64_mib_through_faults", curl_through_faults),
    Case::heavy("http::get_fetches_64_mib_through_faults", get_through_faults),
    Case::light("http::ranges_and_keep_alive", ranges_and_keep_alive),
];

/// The faults of the issue: 2 % loss, 2 % reordering, 1 % duplicates.
const FAULTS: [&str; 2] = ["--fault", "loss=0.02,reorder=0.02,duplicate=0.01,seed=1"];

/// curl fetches `url` and its bytes must have the digest `expected`.
pub(crate) fn curl_expects(world: &World, url: &str, expected: &str) -> Result<()> {
    let mut child =
        curl(world, &["-o", "-", url]).stdout(Stdio::piped()).spawn().context("starting curl")?;
    let found = digest_of(child.stdout.take().context("the output of curl is piped")?)?;
    let status = child.wait()?;
    ensure!(status.success(), "curl ended with {status}");
    ensure!(found == expected, "curl got other bytes from {url}");
    Ok(())
}

/// `plimsoll get` fetches `url` and the file must have the digest `expected`.
pub(crate) fn get_expects(
    world: &World,
    url: &str,
    options: &[&str],
    expected: &str,
) -> Result<()> {
    let file = world.scratch.file("got");
    let mut command = world.plimsoll("get")?;
    command.args(options).arg("-o").arg(&file).arg(url);
    Process::spawn("plimsoll get", &mut command)?.success(LONG)?;
    expect_digest(&file, expected)?;
    std::fs::remove_file(&file).context("removing what was fetched")
}

fn curl_gets_1_gib() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("big", GIB, 1)?;
    let server = world.serve_http(&[])?;
    let file = world.scratch.file("capture");
    let dump = capture::start(&world.ns, DEVICE, &file)?;
    curl_expects(&world, &our_url("big"), &expected)?;
    capture::stop(dump)?;
    let longest = capture::longest(&file, KERNEL.parse()?)?;
    ensure!(longest.from_us > SUPER, "no super-segments from us: {longest:?}");
    server.end_cleanly(Signal::TERM, LONG)
}

fn get_fetches_1_gib() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("big", GIB, 2)?;
    let _nginx = world.nginx()?;
    let file = world.scratch.file("capture");
    let dump = capture::start(&world.ns, DEVICE, &file)?;
    get_expects(&world, &kernel_url("big"), &[], &expected)?;
    capture::stop(dump)?;
    let longest = capture::longest(&file, KERNEL.parse()?)?;
    ensure!(longest.from_kernel > SUPER, "no super-segments from the kernel: {longest:?}");
    Ok(())
}

fn many_curls() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", MIB, 3)?;
    let server = world.serve_http(&[])?;
    let folder = world.scratch.path().display();
    let script = format!(
        "failed=0; pids=; for n in $(seq 256); do \
         curl -sS --fail --max-time 90 -o {folder}/out.$n http://{OURS}/file & pids=\"$pids $!\"; \
         done; for pid in $pids; do wait $pid || failed=$((failed + 1)); done; \
         echo failed $failed; exit $failed"
    );
    let mut command = world.ns.command("sh");
    Process::spawn("256 curls", command.args(["-c", &script]))?.success(LONG)?;
    for n in 1..=256 {
        expect_digest(&world.scratch.file(&format!("out.{n}")), &expected)?;
    }
    server.end_cleanly(Signal::INT, LONG)
}

/// One file each way through a world, over IPv4.
fn both_ways(world: &World, len: u64) -> Result<()> {
    let expected = world.scratch.generate("file", len, len)?;
    let server = world.serve_http(&[])?;
    curl_expects(world, &our_url("file"), &expected)?;
    server.end_cleanly(Signal::TERM, LONG)?;
    let _nginx = world.nginx()?;
    get_expects(world, &kernel_url("file"), &[], &expected)
}

fn over_ipv6(len: u64) -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", len, len)?;
    let server = world.serve_http(&[])?;
    curl_expects(&world, &our_url6("file"), &expected)?;
    server.end_cleanly(Signal::TERM, LONG)?;
    let _nginx = world.nginx()?;
    get_expects(&world, &format!("http://[{KERNEL6}]:8080/file"), &[], &expected)
}

/// Linux takes them from 6.3 on; what runs the tests is newer.
fn beyond_64_kib() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 64 * MIB, 5)?;
    let server = world.serve_http(&["--super-segment", "262144"])?;
    for (url, kernel) in [(our_url("file"), KERNEL), (our_url6("file"), KERNEL6)] {
        let file = world.scratch.file("capture");
        let dump = capture::start_as(&world.ns, &["-i", DEVICE, "-s", "96"], &file)?;
        curl_expects(&world, &url, &expected)?;
        capture::stop(dump)?;
        let longest = capture::longest(&file, kernel.parse()?)?;
        ensure!(longest.from_us > 65_575, "{url}: none was longer: {longest:?}");
    }
    server.end_cleanly(Signal::TERM, LONG)
}

fn with_mtu(mtu: u16) -> Result<()> {
    both_ways(&World::with_mtu(mtu)?, 64 * MIB)
}

fn without_offloads() -> Result<()> {
    both_ways(&World::without_offloads()?, 64 * MIB)
}

/// The kernel's side stops offering TSO and checksum offload while the device is in use.
fn offloads_refused() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 32 * MIB, 5)?;
    let server = world.serve_http(&[])?;
    curl_expects(&world, &our_url("file"), &expected)?;
    world.ns.run(&format!("ethtool -K {DEVICE} tso off gso off gro off"))?;
    curl_expects(&world, &our_url("file"), &expected)?;
    server.end_cleanly(Signal::TERM, LONG)?;
    let _nginx = world.nginx()?;
    get_expects(&world, &kernel_url("file"), &[], &expected)
}

fn curl_through_faults() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 64 * MIB, 6)?;
    let server = world.serve_http(&FAULTS)?;
    curl_expects(&world, &our_url("file"), &expected)?;
    server.end_cleanly(Signal::TERM, LONG)
}

fn get_through_faults() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 64 * MIB, 7)?;
    let _nginx = world.nginx()?;
    get_expects(&world, &kernel_url("file"), &FAULTS, &expected)
}

fn ranges_and_keep_alive() -> Result<()> {
    let world = World::new()?;
    world.scratch.generate("file", MIB, 8)?;
    let whole = std::fs::read(world.scratch.file("file")).context("reading the file")?;
    let server = world.serve_http(&[])?;
    let got = world.scratch.file("range");
    let path = got.to_string_lossy().into_owned();
    let url = our_url("file");
    let ended = Process::spawn("curl", &mut curl(&world, &["-r", "1000-1999", "-o", &path, &url]))?;
    ended.success(LONG)?;
    let range = std::fs::read(&got).context("reading the range")?;
    ensure!(range == whole[1000..2000], "the range holds {} other bytes", range.len());
    let twice = [
        "-o",
        "/dev/null",
        "-o",
        "/dev/null",
        "-w",
        "%{num_connects}\n",
        url.as_str(),
        url.as_str(),
    ];
    let ended = Process::spawn("curl", &mut curl(&world, &twice))?.success(LONG)?;
    ensure!(ended.stdout.lines().eq(["1", "0"]), "the connection was not kept: {}", ended.stdout);
    let missing = Process::spawn("curl", &mut curl(&world, &[&our_url("nothing")]))?.wait(LONG)?;
    ensure!(missing.status.code() == Some(22), "a missing file is not 404: {}", missing.said);
    server.end_cleanly(Signal::TERM, LONG)
}
