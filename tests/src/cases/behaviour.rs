//! Both sides see what std's sockets would give them: refusals, resets, half-close, time limits,
//! full queues, closed windows and vanished peers.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::harness::process::{Process, exits_within};
use crate::harness::runner::Case;
use crate::harness::world::{KERNEL, KERNEL6, OURS, OURS6, World};

const SOON: Duration = Duration::from_secs(20);
const LATER: Duration = Duration::from_secs(50);
const MIB: u64 = 1 << 20;

pub(crate) const CASES: &[Case] = &[
    Case::light("behaviour::our_closed_port_refuses", our_closed_port_refuses),
    Case::light("behaviour::a_closed_port_of_the_kernel_refuses_us", closed_port_refuses_us),
    Case::light("behaviour::a_reset_reaches_our_reader_and_writer", reset_reaches_us),
    Case::light("behaviour::resets_do_not_hurt_our_server", resets_do_not_hurt),
    Case::light("behaviour::a_syn_behind_a_reset_is_answered_at_once", reset_then_syn),
    Case::light("behaviour::the_kernel_closes_its_half_first", kernel_closes_first),
    Case::light("behaviour::we_close_our_half_first_and_still_read_all", we_close_first),
    Case::light("behaviour::our_read_times_out", read_times_out),
    Case::light("behaviour::our_connect_times_out", connect_times_out),
    Case::light("behaviour::connect_fails_when_the_kernel_has_no_route", no_route),
    Case::light("behaviour::the_accept_queue_of_the_kernel_is_full", kernel_queue_full),
    Case::light("behaviour::our_accept_queue_is_full", our_queue_full),
    Case::light("behaviour::the_kernel_closes_its_window_for_10_s", kernel_closes_window),
    Case::light("behaviour::the_kernel_closes_its_window_to_our_client", kernel_stalls_client),
    Case::light("behaviour::we_close_our_window_for_10_s", we_close_window),
    Case::light("behaviour::keepalive_finds_a_vanished_peer", keepalive),
    Case::light("behaviour::the_user_timeout_finds_a_vanished_peer", user_timeout),
    Case::light("behaviour::a_peer_that_comes_back_in_time_is_not_lost", comes_back),
    Case::light("behaviour::echo_over_ipv6", echo_over_ipv6),
    Case::light("behaviour::the_kernel_pings_us", pings),
    Case::light("behaviour::the_program_ends_cleanly_with_open_connections", ends_cleanly),
];

/// The address of `port` on the kernel's side.
fn kernel(port: u16) -> String {
    format!("{KERNEL}:{port}")
}

/// The address of `port` on our side.
fn ours(port: u16) -> String {
    format!("{OURS}:{port}")
}

/// Runs a kernel peer to its end and returns what it printed.
fn peer(world: &World, words: &[&str]) -> Result<String> {
    let ended = Process::spawn(words[0], &mut world.peer(words)?)?.success(LATER)?;
    Ok(ended.stdout.trim().to_string())
}

/// Runs a client of ours to its end and returns what it printed.
fn client(world: &World, words: &[&str]) -> Result<String> {
    let ended = Process::spawn(words[0], &mut world.client(words)?)?.success(LATER)?;
    Ok(ended.stdout.trim().to_string())
}

fn expect(found: &str, expected: &str) -> Result<()> {
    ensure!(found == expected, "expected `{expected}`, found `{found}`");
    Ok(())
}

fn our_closed_port_refuses() -> Result<()> {
    let world = World::new()?;
    let _server = world.serve(&["echo:7"])?;
    expect(&peer(&world, &["connect", &ours(9)])?, "ConnectionRefused")?;
    expect(&peer(&world, &["connect", &format!("[{OURS6}]:9")])?, "ConnectionRefused")?;
    expect(&peer(&world, &["connect", &ours(7)])?, "connected")
}

fn closed_port_refuses_us() -> Result<()> {
    let world = World::new()?;
    expect(&client(&world, &["connect", &kernel(9)])?, "ConnectionRefused")?;
    expect(&client(&world, &["connect", &format!("[{KERNEL6}]:9")])?, "ConnectionRefused")
}

fn reset_reaches_us() -> Result<()> {
    let world = World::new()?;
    let _peer = world.start_peer(&["reset", &kernel(7)])?;
    expect(&client(&world, &["reset", &kernel(7)])?, "read ConnectionReset\nwrite BrokenPipe")
}

fn resets_do_not_hurt() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    expect(&peer(&world, &["reset-us", &ours(7)])?, "same")?;
    server.end_cleanly(Signal::INT, SOON)
}

/// A reset and the SYN of the next connection from the same port may be in one batch. A SYN that is
/// not answered is repeated, which the kernel counts.
fn reset_then_syn() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    for address in [ours(7), format!("[{OURS6}]:7")] {
        let found = peer(&world, &["reconnect", &address, "--count", "200", "--port", "4000"])?;
        expect(&found, "connected 200, SYNs repeated 0")?;
    }
    server.end_cleanly(Signal::INT, SOON)
}

fn kernel_closes_first() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    for bytes in ["0", "1", "1459", "1460", "1461", "100000", "8388608"] {
        expect(&peer(&world, &["echo-check", &ours(7), "--bytes", bytes])?, "same")?;
    }
    server.end_cleanly(Signal::INT, SOON)
}

fn we_close_first() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("late", 4 * MIB, 21)?;
    let bytes = (4 * MIB).to_string();
    let words = ["send-late", &kernel(7), "--bytes", &bytes, "--seed", "21"];
    let late = world.start_peer(&words)?;
    expect(&client(&world, &["close-early", &kernel(7), "--bytes", "100000"])?, &expected)?;
    let said = late.success(SOON)?.stdout;
    ensure!(said.contains("read 100000"), "the peer says {said}");
    Ok(())
}

fn read_times_out() -> Result<()> {
    let world = World::new()?;
    let _peer = world.start_peer(&["silent", &kernel(7)])?;
    // Unix reports an elapsed SO_RCVTIMEO as EAGAIN, and so does std.
    expect(&client(&world, &["read-timeout", &kernel(7), "--limit", "0.3"])?, "WouldBlock")
}

fn connect_times_out() -> Result<()> {
    let world = World::new()?;
    world.vanish()?;
    expect(&client(&world, &["connect", &kernel(7), "--seconds", "0.5"])?, "TimedOut")
}

fn no_route() -> Result<()> {
    let world = World::new()?;
    world.ns.sysctl("net/ipv4/ip_forward", "1")?;
    // The kernel forwards and has no way there, so it answers "network unreachable".
    let found = client(&world, &["connect", "198.51.100.1:7", "--seconds", "5"])?;
    ensure!(
        ["NetworkUnreachable", "HostUnreachable"].contains(&found.as_str()),
        "expected an unreachable network, found {found}"
    );
    Ok(())
}

fn kernel_queue_full() -> Result<()> {
    let world = World::new()?;
    let words = ["full-queue", &kernel(7), "--backlog", "1", "--pause", "4"];
    let full = world.start_peer(&words)?;
    // Two fit into the queue. The third stays in SYN-SENT until there is room again.
    let found = client(&world, &["queue", &kernel(7), "--count", "4", "--seconds", "1"])?;
    let timed_out = found.matches("TimedOut").count();
    ensure!(timed_out >= 1, "nobody waited for the full queue: {found}");
    ensure!(found.matches("connected").count() >= 2, "nobody got through: {found}");
    full.success(SOON).map(drop)
}

fn our_queue_full() -> Result<()> {
    let world = World::new()?;
    let words = ["lazy-listener", &ours(7), "--backlog", "2", "--pause", "3", "--count", "8"];
    let mut lazy = Process::spawn("lazy listener", &mut world.client(&words)?)?;
    lazy.wait_line(SOON, |line| line == "ready")?;
    // All eight succeed in the end: a SYN that finds no room is dropped and sent again. They come
    // at once, so that some are answered with a cookie; when the ACK finds no room then, nothing
    // that follows it may be answered with a reset.
    let words = ["echo-check", &ours(7), "--bytes", "1000", "--parallel", "8"];
    let peers = Process::spawn("echo checks", &mut world.peer(&words)?)?;
    expect(peers.success(LATER)?.stdout.trim(), "same")?;
    let said = lazy.success(SOON)?.stdout;
    ensure!(said.contains("overflows"), "the listener says {said}");
    ensure!(!said.contains("overflows 0"), "no overflow was counted");
    Ok(())
}

fn kernel_closes_window() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 8 * MIB, 22)?;
    let server = world.serve_http(&[])?;
    let words = ["stall", &ours(80), "--path", "/file", "--pause", "10"];
    expect(&peer(&world, &words)?, &expected)?;
    server.end_cleanly(Signal::TERM, SOON)
}

fn kernel_stalls_client() -> Result<()> {
    let world = World::new()?;
    let bytes = (8 * MIB).to_string();
    let expected = world.scratch.generate("file", 8 * MIB, 23)?;
    let reader = world.start_peer(&["stalled-reader", &kernel(7), "--pause", "10"])?;
    let words = ["send", &kernel(7), "--bytes", &bytes, "--seed", "23"];
    expect(&client(&world, &words)?, "sent")?;
    let said = reader.success(SOON)?.stdout;
    ensure!(said.contains(&expected), "the reader got other bytes: {said}");
    Ok(())
}

fn we_close_window() -> Result<()> {
    let world = World::new()?;
    let expected = world.scratch.generate("file", 8 * MIB, 24)?;
    let _nginx = world.nginx()?;
    let words = ["stall", &kernel(8080), "--path", "/file", "--pause", "10"];
    expect(&client(&world, &words)?, &expected)
}

/// Starts a client, makes the kernel vanish once it is connected, and returns its last word.
fn client_of_a_vanished_peer(words: &[&str]) -> Result<String> {
    let world = World::new()?;
    let mut silent = world.start_peer(&["silent", &kernel(7)])?;
    let mut process = Process::spawn(words[0], &mut world.client(words)?)?;
    silent.wait_line(SOON, |line| line == "accepted")?;
    process.wait_line(SOON, |line| line == "connected")?;
    world.vanish()?;
    let said = process.success(LATER)?.stdout;
    Ok(said.trim().lines().last().unwrap_or("").to_string())
}

fn keepalive() -> Result<()> {
    let address = kernel(7);
    let words = ["keepalive", &address, "--idle", "1", "--interval", "1", "--count", "2"];
    expect(&client_of_a_vanished_peer(&words)?, "TimedOut")
}

fn user_timeout() -> Result<()> {
    let address = kernel(7);
    expect(&client_of_a_vanished_peer(&["user-timeout", &address, "--limit", "2"])?, "TimedOut")
}

fn comes_back() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    let words = ["echo-check", &ours(7), "--bytes", "50000000"];
    let check = Process::spawn("echo check", &mut world.peer(&words)?)?;
    world.vanish()?;
    // Long enough for several retransmissions, if the transfer is still under way.
    exits_within(check.id(), Duration::from_secs(2))?;
    world.return_again()?;
    expect(check.success(LATER)?.stdout.trim(), "same")?;
    server.end_cleanly(Signal::INT, SOON)
}

fn echo_over_ipv6() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    let address = format!("[{OURS6}]:7");
    expect(&peer(&world, &["echo-check", &address, "--bytes", "8388608"])?, "same")?;
    server.end_cleanly(Signal::INT, SOON)
}

fn pings() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    for (family, address) in [("-4", OURS), ("-6", OURS6)] {
        let line = format!("ping {family} -n -c 3 -i 0.2 -W 5 -s 1000 {address}");
        let said = world.ns.run(&line)?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
    }
    server.end_cleanly(Signal::INT, SOON)
}

fn ends_cleanly() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7", "chargen:19", "discard:9"])?;
    let words = ["many", &ours(7), "--count", "50", "--hold", "1"];
    let mut many = Process::spawn("many", &mut world.peer(&words)?)?;
    many.wait_line(SOON, |line| line == "echoed")?;
    server.end_cleanly(Signal::TERM, SOON)
}
