//! Captures that the program takes itself, judged by tshark.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::http::{curl_expects, get_expects};
use crate::harness::capture;
use crate::harness::runner::Case;
use crate::harness::world::{World, kernel_url, our_url};

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);

pub(crate) const CASES: &[Case] = &[
    Case::light("captures::tshark_finds_nothing_wrong_with_what_we_send", we_send),
    Case::light("captures::tshark_finds_nothing_wrong_with_what_we_receive", we_receive),
    Case::light("captures::super_segments_are_captured_whole", super_segments),
];

fn we_send() -> Result<()> {
    let world = World::without_offloads()?;
    let expected = world.scratch.generate("file", 8 * MIB, 11)?;
    let file = world.scratch.file("sent.pcapng");
    let path = file.to_string_lossy().into_owned();
    let server = world.serve_http(&["--pcap", &path])?;
    curl_expects(&world, &our_url("file"), &expected)?;
    server.end_cleanly(Signal::TERM, SOON)?;
    capture::expect_sound(&file)
}

fn we_receive() -> Result<()> {
    let world = World::without_offloads()?;
    let expected = world.scratch.generate("file", 8 * MIB, 12)?;
    let _nginx = world.nginx()?;
    let file = world.scratch.file("received.pcapng");
    let path = file.to_string_lossy().into_owned();
    get_expects(&world, &kernel_url("file"), &["--pcap", &path], &expected)?;
    capture::expect_sound(&file)
}

/// With offloads the capture holds what the stack handed over: super-segments, never malformed.
fn super_segments() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 8 * MIB, 13)?;
    let file = world.scratch.file("super.pcapng");
    let path = file.to_string_lossy().into_owned();
    let server = world.serve_http(&["--pcap", &path])?;
    curl_expects(&world, &our_url("file"), &expected)?;
    server.end_cleanly(Signal::TERM, SOON)?;
    let long = capture::matching(&file, "ip.src == 192.0.2.2 && tcp.len > 16000")?;
    ensure!(!long.is_empty(), "no super-segment in the capture");
    let malformed = capture::matching(&file, "_ws.malformed")?;
    ensure!(malformed.is_empty(), "malformed: {}", malformed.join("\n"));
    Ok(())
}
