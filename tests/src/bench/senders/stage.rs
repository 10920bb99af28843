//! One run: a sender, or a receiver, at the near end of a path, and the kernel at the far end.
//!
//! The near end is 192.0.2.2, behind a router of the kernel's (192.0.2.1) at the left end of the
//! path. It is a stack on a TUN device of the router's, or a host of the kernel's with a veth pair
//! to it. So packets of both go through the same router, which also cuts super-segments.
//!
//! A second flow comes from the near end as well, or from a host of the kernel's beside it
//! (203.0.113.2, behind the same router).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_tcp::Counter;
use serde_json::Value;

use super::cells::Cell;
use crate::bench::stage::{next_figures, number};
use crate::harness::netns::Namespace;
use crate::harness::path::{Path, RIGHT};
use crate::harness::process::Process;
use crate::harness::world::{DEVICE, START};

/// The networks behind the router, in which it is .1 and the host .2: that of the near end, and
/// that of a host of the kernel's beside it.
const NETWORKS: [&str; 2] = ["192.0.2", "203.0.113"];
const NEAR: &str = "192.0.2.2";
/// The router's device to the host beside the near end.
const BESIDE_DEVICE: &str = "beside0";

/// Who stands at the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    Ours,
    Kernel,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The near end sends.
    Send,
    /// The near end receives, from a kernel.
    Receive,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Bits per second that the receiver read.
    pub(super) goodput: f64,
    /// Share of the segments that were sent again, in percent.
    pub(super) again: f64,
    /// Times that the sender took something for lost, and those of them that it took back.
    pub(super) reductions: f64,
    pub(super) undone: f64,
    /// How long packets waited in the queue, 95th percentile in milliseconds.
    pub(super) queue_ms: f64,
    /// The same, its median.
    pub(super) queue_middle_ms: f64,
    /// What the flow beside it reached, if there was one.
    pub(super) beside: Option<f64>,
    /// How late the link was, 99th percentile in milliseconds.
    pub(super) late_ms: f64,
}

/// What is to be done in one run.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) cell: &'a Cell,
    pub(super) near: Near,
    pub(super) way: Way,
    pub(super) congestion: &'a str,
    /// The congestion control of a second flow on the same path.
    pub(super) beside: Option<&'a str>,
    /// That flow is a kernel's, whoever stands at the near end.
    pub(super) kernel_beside: bool,
    /// The link first shows that it keeps rate and delay within 2 %.
    pub(super) checked: bool,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

impl Run<'_> {
    pub(super) fn take(&self) -> Result<Sample> {
        let path = self.path()?;
        let near = self.near_end(&path)?;
        if let Some(buffer) = self.cell.receive_buffer() {
            path.right.sysctl("net/ipv4/tcp_rmem", &buffer)?;
        }
        let other = if self.kernel_beside { Some(kernel_host(&path, 1)?) } else { None };
        if let Some(buffer) = self.cell.send_buffer() {
            for host in near.iter().chain(&other) {
                host.sysctl("net/ipv4/tcp_wmem", &buffer)?;
            }
        }
        let limit = self.time + Duration::from_secs(60);
        let Flows { mut receiver, sender, mut beside } = match self.way {
            Way::Send => self.sending(&path, near.as_ref(), other.as_ref())?,
            Way::Receive => self.receiving(&path, near.as_ref())?,
        };
        let read = next_figures(&mut receiver, limit)?;
        let beside = match &mut beside {
            Some(second) => Some(rate(&next_figures(&mut second.receiver, limit)?)?),
            None => None,
        };
        let sent: Value = serde_json::from_str(sender.success(limit)?.stdout.trim())
            .context("the sender prints JSON")?;
        let kernel = match (self.near, self.way) {
            (Near::Ours, Way::Send) => None,
            (Near::Kernel, Way::Send) => Some(near.as_ref().context("a host of its own")?),
            (_, Way::Receive) => Some(&path.right),
        };
        let (again, reductions, undone) = match kernel {
            None => (
                share(number(&sent, "retransmits")?, number(&sent, "segments")?),
                number(&sent, "reductions")?,
                number(&sent, "undone")?,
            ),
            Some(ns) => {
                (kernel_share(ns)?, sum(ns, &Counter::REDUCTIONS)?, sum(ns, &Counter::UNDOS)?)
            }
        };
        let report = path.end()?;
        let direction = &report["directions"][usize::from(self.way == Way::Receive)];
        Ok(Sample {
            goodput: rate(&read)?,
            again,
            beside,
            queue_middle_ms: number(direction, "queue_delay_us_p50")? / 1e3,
            reductions,
            undone,
            queue_ms: number(direction, "queue_delay_us_p95")? / 1e3,
            late_ms: number(direction, "late_us_p99")? / 1e3,
        })
    }

    /// The faults of a run are those of its seed, whoever sends.
    fn path(&self) -> Result<Path> {
        let (there, back) = (self.cell.there(), Cell::BACK);
        let (link, seed) = (there.clone(), self.seed.to_string());
        match self.way {
            Way::Send => {
                let options = ["--link", &link, "--back", back, "--seed", &seed];
                if self.checked { Path::checked(&options) } else { Path::new(&options) }
            }
            // The path from right to left is the one with the queue. What it does not say is taken
            // from the other.
            Way::Receive => {
                let clean = format!("{there},loss=0,reorder=0,buffer=10MB");
                let clean = deduplicated(&clean);
                Path::new(&["--link", &clean, "--back", &there, "--seed", &seed])
            }
        }
    }

    /// Starts the flows of a near end that sends: all receivers, then the first flow's sender, then
    /// the second one's. Our stack is one process, which connects both in that order.
    fn sending(
        &self,
        path: &Path,
        near: Option<&Namespace>,
        other: Option<&Namespace>,
    ) -> Result<Flows> {
        let receiver = path.start_right(&["discard", &format!("{RIGHT}:5001")])?;
        let to = format!("{RIGHT}:5002");
        let second = match self.beside {
            Some(control) => Some((control, path.start_right(&["discard", &to])?)),
            None => None,
        };
        let mut command = self.near_program(path, near, &self.writer(RIGHT))?;
        let sender = Process::spawn("sender", &mut command)?;
        let Some((control, receiver_beside)) = second else {
            return Ok(Flows { receiver, sender, beside: None });
        };
        let seconds = self.time.as_secs_f64().to_string();
        let words = ["peer", "write", &to, "--seconds", &seconds, "--congestion", control];
        let sender_beside = match other.or(near) {
            Some(host) => Some(Process::spawn("second sender", &mut host.program(&words)?)?),
            None => None,
        };
        let beside = Some(Second { receiver: receiver_beside, _sender: sender_beside });
        Ok(Flows { receiver, sender, beside })
    }

    /// Starts the flow of a near end that receives.
    fn receiving(&self, path: &Path, near: Option<&Namespace>) -> Result<Flows> {
        let words = ["discard".to_owned(), format!("{NEAR}:5001")];
        let mut receiver = Process::spawn("receiver", &mut self.near_program(path, near, &words)?)?;
        receiver.wait_line(START, |line| line == "ready")?;
        let words = self.writer(NEAR);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = path.right.program(&[&["peer"], &words[..]].concat())?;
        Ok(Flows { receiver, sender: Process::spawn("sender", &mut command)?, beside: None })
    }

    /// Puts a kernel's host behind the router, or makes the device of ours.
    fn near_end(&self, path: &Path) -> Result<Option<Namespace>> {
        match self.near {
            Near::Ours => {
                path.left.ip(&format!("tuntap add dev {DEVICE} mode tun"))?;
                connect(path, DEVICE, NETWORKS[0])?;
                Ok(None)
            }
            Near::Kernel => kernel_host(path, 0).map(Some),
        }
    }

    fn near_program(
        &self,
        path: &Path,
        near: Option<&Namespace>,
        words: &[String],
    ) -> Result<std::process::Command> {
        let (ns, kind) = match near {
            Some(near) => (near, "peer"),
            None => (&path.left, "client"),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        ns.program(&[&[kind], &words[..]].concat())
    }

    fn writer(&self, to: &str) -> Vec<String> {
        let seconds = self.time.as_secs_f64().to_string();
        let words = [
            "write",
            &format!("{to}:5001"),
            "--seconds",
            &seconds,
            "--congestion",
            self.congestion,
        ];
        let mut words = words.map(str::to_owned).to_vec();
        if let (Way::Send, Near::Ours) = (self.way, self.near) {
            let buffer = self.cell.send_buffer().map(|buffer| ("--tcp-wmem", buffer));
            let ours = self.beside.filter(|_| !self.kernel_beside);
            let beside = ours.map(|control| ("--beside", control.to_owned()));
            for (name, value) in buffer.into_iter().chain(beside) {
                words.extend([name.to_owned(), value]);
            }
        }
        words
    }
}

/// A host of the kernel's behind the router, in one of the [`NETWORKS`].
fn kernel_host(path: &Path, place: usize) -> Result<Namespace> {
    let device = [DEVICE, BESIDE_DEVICE][place];
    let (host, network) = (Namespace::new()?, NETWORKS[place]);
    let name = host.name();
    path.left.ip(&format!("link add {device} type veth peer name near0 netns {name}"))?;
    host.ip(&format!("addr add {network}.2/24 dev near0"))?;
    host.ip("link set near0 up")?;
    host.ip(&format!("route add default via {network}.1"))?;
    connect(path, device, network)?;
    Ok(host)
}

/// Makes the left host the router between the path and what is behind its `device`.
fn connect(path: &Path, device: &str, network: &str) -> Result<()> {
    let router = &path.left;
    router.ip(&format!("addr add {network}.1/24 dev {device}"))?;
    router.ip(&format!("link set {device} up"))?;
    router.sysctl("net/ipv4/ip_forward", "1")?;
    path.right.ip(&format!("route add {network}.0/24 via {}", crate::harness::path::LEFT))?;
    Ok(())
}

/// What runs: the flow that is measured, and what shares its path.
struct Flows {
    receiver: Process,
    sender: Process,
    beside: Option<Second>,
}

/// The second flow of a path.
struct Second {
    receiver: Process,
    /// It lives as long as the run.
    _sender: Option<Process>,
}

impl Sample {
    /// Jain's index of both flows: 1 if both got the same. NaN if there was one.
    pub(super) fn fairness(&self) -> f64 {
        let (one, other) = (self.goodput, self.beside.unwrap_or(f64::NAN));
        (one + other).powi(2) / (2.0 * (one * one + other * other))
    }
}

/// Bits per second that a receiver read.
fn rate(read: &Value) -> Result<f64> {
    let seconds = number(read, "seconds")?;
    if seconds <= 0.0 {
        bail!("too little arrived to tell a rate");
    }
    Ok(number(read, "bytes")? * 8.0 / seconds)
}

/// The same list with the last value of each name.
fn deduplicated(spec: &str) -> String {
    let mut items: Vec<(&str, &str)> = Vec::new();
    for item in spec.split(',') {
        let (name, _) = item.split_once('=').unwrap_or((item, ""));
        items.retain(|&(other, _)| other != name);
        items.push((name, item));
    }
    items.into_iter().map(|(_, item)| item).collect::<Vec<_>>().join(",")
}

fn share(again: f64, segments: f64) -> f64 {
    if segments > 0.0 { again / segments * 100.0 } else { 0.0 }
}

/// The sum of counters of a kernel, whose names we share.
fn sum(ns: &Namespace, counters: &[Counter]) -> Result<f64> {
    counters.iter().try_fold(0.0, |sum, counter| Ok(sum + ns.counter(counter.name())? as f64))
}

fn kernel_share(ns: &Namespace) -> Result<f64> {
    let counter = |name| -> Result<f64> { Ok(ns.counter(name)? as f64) };
    let again = counter("TcpRetransSegs")?;
    // What is sent again is not counted among those.
    Ok(share(again, counter("TcpOutSegs")? + again))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_share_alike_are_fair() {
        let sample = |goodput, beside| Sample {
            goodput,
            beside,
            again: 0.0,
            reductions: 0.0,
            undone: 0.0,
            queue_ms: 0.0,
            queue_middle_ms: 0.0,
            late_ms: 0.0,
        };
        assert_eq!(sample(7.0, Some(7.0)).fairness(), 1.0);
        assert_eq!(sample(3.0, Some(1.0)).fairness(), 0.8);
        assert!(sample(3.0, None).fairness().is_nan());
    }

    #[test]
    fn the_last_value_of_a_name_counts() {
        assert_eq!(deduplicated("rate=1mbit,loss=3%,loss=0"), "rate=1mbit,loss=0");
    }
}
