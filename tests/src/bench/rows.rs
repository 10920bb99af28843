//! The rows of the table: for each, how to measure the kernel and how to measure us.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::memory;
use super::stage::{
    FAR, Sample, Stage, figures, next_figures, number, plimsoll, plimsoll_in_memory, start,
};
use super::steering::Steering;
use crate::cases::idle_bytes;
use crate::harness::process::Process;
use crate::harness::world::{KERNEL, OURS, World};
use crate::peer::workload::cpu_seconds_of;

/// What the table compares in one line.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// What stands in the column of the kernel.
    pub(crate) against: &'static str,
    /// The ratio, or for some units the value, that must be held, and the one that is aimed at.
    pub(crate) floor: f64,
    pub(crate) aim: f64,
    pub(crate) ours: fn(&Stage) -> Result<Sample>,
    pub(crate) kernel: fn(&Stage) -> Result<Sample>,
}

/// What the figures of a row are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bits per second; the ratio counts.
    Bits,
    /// Transactions per second; the ratio counts.
    Transactions,
    /// Packets per transaction; the value counts, and less is better.
    Packets,
    /// Bytes; the value counts, and less is better.
    Bytes,
}

impl Unit {
    /// Whether the value itself is held against the budget, and not a ratio.
    pub(crate) fn absolute(self) -> bool {
        matches!(self, Unit::Packets | Unit::Bytes)
    }
}

const VETH: &str = "kernel over veth";

pub(crate) const ALL: &[Row] = &[
    Row {
        name: "128-byte writes to the kernel",
        unit: Unit::Bits,
        against: VETH,
        floor: 5.0,
        aim: 20.0,
        ours: |stage| we_send(stage, "128"),
        kernel: |stage| kernel_stream(stage, "128", Side::Reader),
    },
    Row {
        name: "128-byte writes to the kernel, with a write buffer",
        unit: Unit::Bits,
        against: VETH,
        floor: 5.0,
        aim: 50.0,
        ours: |stage| we_send_as(stage, "128", &["--write-buffer", "65536"]),
        kernel: |stage| kernel_stream(stage, "128", Side::Reader),
    },
    Row {
        name: "kernel sends bulk to us",
        unit: Unit::Bits,
        against: VETH,
        floor: 0.6,
        aim: 1.0,
        ours: |stage| we_receive(stage, "discard:5001"),
        kernel: |stage| kernel_stream(stage, "65536", Side::Writer),
    },
    Row {
        name: "we send bulk to the kernel",
        unit: Unit::Bits,
        against: VETH,
        floor: 0.6,
        aim: 1.0,
        ours: |stage| we_send(stage, "65536"),
        kernel: |stage| kernel_stream(stage, "65536", Side::Reader),
    },
    Row {
        name: "we send bulk to the kernel, in packets of up to 256 KiB",
        unit: Unit::Bits,
        against: VETH,
        floor: 0.6,
        aim: 1.0,
        ours: |stage| we_send_as(stage, "65536", &["--super-segment", "262144"]),
        kernel: |stage| kernel_stream(stage, "65536", Side::Reader),
    },
    Row {
        name: "kernel sends bulk to us, read by reference",
        unit: Unit::Bits,
        against: VETH,
        floor: 0.6,
        aim: 1.5,
        ours: |stage| we_receive(stage, "discard:5001:shared"),
        kernel: |stage| kernel_stream(stage, "65536", Side::Writer),
    },
    Row {
        name: "we send bulk to the kernel, by reference",
        unit: Unit::Bits,
        against: VETH,
        floor: 0.6,
        aim: 1.5,
        ours: |stage| we_send_as(stage, "65536", &["--shared"]),
        kernel: |stage| kernel_stream(stage, "65536", Side::Reader),
    },
    Row {
        name: "1-byte request / response, busy poll",
        unit: Unit::Transactions,
        against: VETH,
        floor: 1.0,
        aim: 3.0,
        ours: |stage| rate(stage, "1", 1, &["--busy-poll", "50"]),
        kernel: |stage| kernel_rate(stage, "1", 1),
    },
    Row {
        name: "1-byte request / response, sleeping",
        unit: Unit::Transactions,
        against: VETH,
        floor: 1.0,
        aim: 3.0,
        ours: |stage| rate(stage, "1", 1, &[]),
        kernel: |stage| kernel_rate(stage, "1", 1),
    },
    Row {
        name: "1-byte request / response, a loop for each of two processors",
        unit: Unit::Transactions,
        against: VETH,
        floor: 1.0,
        aim: 3.0,
        ours: |stage| rate_by_processor(stage, "1", 1),
        kernel: |stage| kernel_rate(stage, "1", 1),
    },
    Row {
        name: "4 KB / 4 KB, 20 flows",
        unit: Unit::Transactions,
        against: VETH,
        floor: 0.8,
        aim: 1.5,
        ours: |stage| rate(stage, "4096", 20, &[]),
        kernel: |stage| kernel_rate(stage, "4096", 20),
    },
    Row {
        name: "4 KB / 4 KB, 20 flows, the device steers by flow",
        unit: Unit::Transactions,
        against: VETH,
        floor: 0.8,
        aim: 1.5,
        ours: rate_with_steering,
        kernel: |stage| kernel_rate(stage, "4096", 20),
    },
    Row {
        name: "4 KB / 4 KB, 20 flows, a loop for each of two processors",
        unit: Unit::Transactions,
        against: VETH,
        floor: 0.8,
        aim: 1.5,
        ours: |stage| rate_by_processor(stage, "4096", 20),
        kernel: |stage| kernel_rate(stage, "4096", 20),
    },
    Row {
        name: "4 KB / 4 KB, 20 flows, everything on one processor",
        unit: Unit::Transactions,
        against: VETH,
        floor: 1.0,
        aim: 1.5,
        ours: |stage| on_one_processor(|| rate(stage, "4096", 20, &[])),
        kernel: |stage| on_one_processor(|| kernel_rate(stage, "4096", 20)),
    },
    Row {
        name: "4 KB / 4 KB, 20 flows, packets per transaction",
        unit: Unit::Packets,
        against: VETH,
        floor: 2.0,
        aim: 1.0,
        ours: our_packets,
        kernel: kernel_packets,
    },
    Row {
        name: "memory link, bulk in one process",
        unit: Unit::Bits,
        against: "two memcpy passes",
        floor: 0.3,
        aim: 0.7,
        ours: memory_link,
        kernel: |stage| Ok(memory::two_passes(stage.plan.seconds)),
    },
    Row {
        name: "idle established connection",
        unit: Unit::Bytes,
        against: "budget",
        floor: 4096.0,
        aim: 1024.0,
        ours: idle_connection,
        kernel: |_| Ok(Sample { value: 4096.0, cpu: None }),
    },
];

/// Which end of a kernel stream is asked for the figure: the one that our counterpart has too.
enum Side {
    Reader,
    Writer,
}

/// A stream's figure from what one end of it reported.
fn throughput(report: &Value) -> Result<Sample> {
    let seconds = number(report, "seconds")?;
    let value = number(report, "bytes")? * 8.0 / seconds;
    Ok(Sample { value, cpu: Some(number(report, "cpu_seconds")? / seconds) })
}

fn kernel_stream(stage: &Stage, size: &str, side: Side) -> Result<Sample> {
    let veth = stage.veth()?;
    let address = format!("{FAR}:5001");
    let mut reader = start(&veth.far, &["peer", "discard", &address])?;
    let seconds = stage.seconds();
    let words = ["peer", "write", &address, "--size", size, "--seconds", &seconds];
    let written = figures(&veth.near, &words, stage.limit())?;
    let read = next_figures(&mut reader, stage.limit())?;
    throughput(if matches!(side, Side::Reader) { &read } else { &written })
}

fn we_send(stage: &Stage, size: &str) -> Result<Sample> {
    we_send_as(stage, size, &[])
}

/// As [`we_send`], with further words for `plimsoll stream`.
fn we_send_as(stage: &Stage, size: &str, how: &[&str]) -> Result<Sample> {
    let world = stage.tun()?;
    let address = format!("{KERNEL}:5001");
    let mut reader = start(&world.ns, &["peer", "discard", &address])?;
    let seconds = stage.seconds();
    let words = ["stream", "-m", size, "-l", &seconds, "--to", &address];
    let ours = plimsoll(&world, &[&words, how].concat(), stage.limit())?;
    let mut sample = throughput(&next_figures(&mut reader, stage.limit())?)?;
    sample.cpu = busy(stage, &ours);
    Ok(sample)
}

fn we_receive(stage: &Stage, service: &str) -> Result<Sample> {
    let world = stage.tun()?;
    let server = world.serve(&[service])?;
    let address = format!("{OURS}:5001");
    let seconds = stage.seconds();
    let words = ["peer", "write", &address, "--size", "65536", "--seconds", &seconds];
    let written = figures(&world.ns, &words, stage.limit())?;
    let mut sample = throughput(&written)?;
    sample.cpu = Some(cpu_seconds_of(&server.id().to_string()) / number(&written, "seconds")?);
    // A profiler that runs it writes its report at the end.
    server.signal(Signal::TERM)?;
    server.wait(stage.limit())?;
    Ok(sample)
}

/// Processors that `plimsoll` kept busy.
fn busy(stage: &Stage, document: &Value) -> Option<f64> {
    number(document, "cpu_seconds").ok().map(|cpu| cpu / stage.plan.seconds.as_secs_f64())
}

/// Runs `plimsoll rr` against the kernel and returns its figures.
fn our_transactions(stage: &Stage, size: &str, flows: u32, more: &[&str]) -> Result<Value> {
    transactions_in(stage, &stage.tun()?, (size, flows), more)
}

/// As [`our_transactions`], over the device of `world`.
fn transactions_in(
    stage: &Stage,
    world: &World,
    (size, flows): (&str, u32),
    more: &[&str],
) -> Result<Value> {
    let address = format!("{KERNEL}:5002");
    let _server = rr_server(&world.ns, &address, size)?;
    let (seconds, flows) = (stage.seconds(), flows.to_string());
    let sizes = format!("{size},{size}");
    let mut words =
        vec!["rr", "-r", &sizes, "-P", &flows, "-l", &seconds, "--to", &address, "--nodelay"];
    words.extend(more);
    plimsoll(world, &words, stage.limit())
}

fn rr_server(ns: &crate::harness::netns::Namespace, address: &str, size: &str) -> Result<Process> {
    start(ns, &["peer", "rr-server", address, "--request", size, "--response", size])
}

fn rate(stage: &Stage, size: &str, flows: u32, more: &[&str]) -> Result<Sample> {
    rate_of(stage, &our_transactions(stage, size, flows, more)?)
}

/// With a loop for each of two queues, which stay on a processor each and take what is sent there.
fn rate_by_processor(stage: &Stage, size: &str, flows: u32) -> Result<Sample> {
    let world = stage.tun_queues()?;
    let more = ["--queues", "2", "--pin"];
    rate_of(stage, &transactions_in(stage, &world, (size, flows), &more)?)
}

/// With one loop, and a kernel that receives each packet where its reader runs. For its own figure
/// the kernel has its defaults: over veth it loses by steering.
fn rate_with_steering(stage: &Stage) -> Result<Sample> {
    let world = stage.tun()?;
    let _steering = Steering::of_device(&world.ns)?;
    rate_of(stage, &transactions_in(stage, &world, ("4096", 20), &[])?)
}

fn rate_of(stage: &Stage, document: &Value) -> Result<Sample> {
    Ok(Sample { value: number(document, "transactions_per_s")?, cpu: busy(stage, document) })
}

/// Runs something, and all programs that it starts, on the first processor that there is. What it
/// costs to wake a thread on another processor, which in a virtual machine is much, is left out.
fn on_one_processor(run: impl FnOnce() -> Result<Sample>) -> Result<Sample> {
    let before = sched_getaffinity(None).context("asking for the processors")?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(first.context("there is a processor")?);
    sched_setaffinity(None, &one).context("staying on one processor")?;
    let sample = run();
    sched_setaffinity(None, &before).context("going back to all processors")?;
    sample
}

/// The kernel's figures and how many packets its near end sent meanwhile.
fn kernel_transactions(stage: &Stage, size: &str, flows: u32) -> Result<(Value, f64)> {
    let veth = stage.veth()?;
    let address = format!("{FAR}:5002");
    let _server = rr_server(&veth.far, &address, size)?;
    let (seconds, flows) = (stage.seconds(), flows.to_string());
    let before = veth.near.counter("IpOutRequests")?;
    let words = [
        "peer",
        "rr",
        &address,
        "--request",
        size,
        "--response",
        size,
        "--flows",
        &flows,
        "--seconds",
        &seconds,
    ];
    let document = figures(&veth.near, &words, stage.limit())?;
    let packets = veth.near.counter("IpOutRequests")? - before;
    Ok((document, packets as f64))
}

fn kernel_rate(stage: &Stage, size: &str, flows: u32) -> Result<Sample> {
    let (document, _) = kernel_transactions(stage, size, flows)?;
    Ok(Sample { value: number(&document, "transactions_per_s")?, cpu: busy(stage, &document) })
}

fn our_packets(stage: &Stage) -> Result<Sample> {
    let document = our_transactions(stage, "4096", 20, &[])?;
    Ok(Sample { value: number(&document, "packets_per_transaction")?, cpu: None })
}

fn kernel_packets(stage: &Stage) -> Result<Sample> {
    let (document, packets) = kernel_transactions(stage, "4096", 20)?;
    Ok(Sample { value: packets / number(&document, "transactions")?, cpu: None })
}

fn memory_link(stage: &Stage) -> Result<Sample> {
    let seconds = stage.seconds();
    let document = plimsoll_in_memory(&["stream", "-l", &seconds], stage.limit())?;
    Ok(Sample { value: number(&document, "throughput_bits_per_s")?, cpu: busy(stage, &document) })
}

fn idle_connection(_: &Stage) -> Result<Sample> {
    let document = plimsoll_in_memory(&["idle", "-n", "10000"], Duration::from_secs(60))?;
    let value = idle_bytes(&document).context("no bytes per connection")?;
    Ok(Sample { value, cpu: None })
}
