//! Runs scenarios that are drawn from seeds, and prints what did not hold as soon as it is known:
//! `cargo run --example swarm -- 0 100`.

use plimsoll_sim::coverage::Reached;
use plimsoll_sim::{RunConfig, draw, run};

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse().ok());
    let (start, end) = (args.next().unwrap_or(0), args.next().unwrap_or(100));
    let (mut packets, mut events, mut reached) = (0, 0, Reached::default());
    for seed in start..end {
        match run(&draw(seed), seed, &RunConfig::default()) {
            Ok(outcome) => {
                packets += outcome.packets;
                events += outcome.events;
                reached.merge(&outcome.reached);
                if let Some(violation) = outcome.violation {
                    println!("seed {seed}: {violation}");
                }
            }
            Err(error) => println!("seed {seed}: {error}"),
        }
    }
    println!("{packets} packets, {events} events; never reached: {:?}", reached.missed());
}
