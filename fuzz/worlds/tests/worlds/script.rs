//! Scripts by number.

use arbitrary::{Arbitrary, Unstructured};
use plimsoll_worlds::engine::{Host, Input, Opening, Setup, Step};

/// Steps of a script, about.
const LENGTH: usize = 200;

/// Bytes that setups and single steps are made of.
const BYTES: usize = 16_384;

/// A step in which everything completes that has departed.
fn complete(host: Host) -> Step {
    Step::Complete(host, u8::MAX)
}

/// A generator of numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u8) -> u8 {
        (self.word() % u64::from(end)) as u8
    }

    fn once_in(&mut self, times: u8) -> bool {
        self.below(times) == 0
    }

    /// Some milliseconds, or less.
    fn moment(&mut self) -> Step {
        Step::Advance(self.below(5))
    }
}

/// The script with this number: transfers with losses, times of rest, and single steps of any kind.
/// Most connections open without trouble, few segments are forged, and few of the steps that end a
/// connection are taken, so that a script goes somewhere.
pub(crate) fn script(seed: u64) -> Input {
    let mut dice = Dice(seed);
    let bytes: Vec<u8> = (0..BYTES / 8).flat_map(|_| dice.word().to_le_bytes()).collect();
    let mut bytes = Unstructured::new(&bytes);
    let mut setup = Setup::arbitrary(&mut bytes).expect("enough bytes");
    setup.hostile &= dice.once_in(4);
    if !dice.once_in(8) {
        setup.opening = Opening::Normal;
    }
    let mut steps = if dice.once_in(6) { Vec::new() } else { exchange() };
    while steps.len() < LENGTH {
        match dice.below(8) {
            0..=2 => transfer(&mut dice, &mut steps),
            3 => rest(&mut dice, &mut steps),
            _ => {
                let step = Step::arbitrary(&mut bytes).expect("enough bytes");
                if !step.ends_connection() || dice.once_in(30) {
                    steps.push(step);
                }
            }
        }
    }
    Input { setup, steps }
}

/// Everything arrives that is on its way: in a handshake, and in an answer.
fn exchange() -> Vec<Step> {
    let arrive = |host| [complete(host), Step::DeliverAll(host)];
    [Host::A, Host::B, Host::A].into_iter().flat_map(arrive).collect()
}

/// One side writes, a few times or for many round trips.
fn transfer(dice: &mut Dice, steps: &mut Vec<Step>) {
    let (from, to) = if dice.once_in(3) { (Host::B, Host::A) } else { (Host::A, Host::B) };
    let size = [1, 100, 1448, 5000, 20_000, u16::MAX][usize::from(dice.below(6))];
    let rounds = if dice.once_in(4) { 30 } else { dice.below(6) };
    let faults = dice.below(4);
    for round in 0..=rounds {
        // Of a long transfer only the first half meets faults, so that it recovers and goes on.
        let faulty = u8::from(rounds < 30 || round < 15);
        steps.extend([Step::Write(from, size), complete(from)]);
        for _ in 0..faulty * dice.below(faults + 1) {
            let which = dice.below(16);
            steps.push(match dice.below(6) {
                0 => Step::Mark(from, which),
                1 => Step::Repeat(from, which),
                2 => Step::DeliverBatch(from, which),
                3 => Step::Deliver(from, which, true),
                _ => Step::Lose(from, which),
            });
        }
        steps.extend([dice.moment(), Step::DeliverAll(from), Step::Read(to, u16::MAX)]);
        steps.extend([dice.moment(), complete(to), Step::DeliverAll(to)]);
        if dice.once_in(4) {
            steps.push(Step::Fire(from));
        }
    }
}

/// Everything arrives and is read, and then nothing happens for a second or longer.
fn rest(dice: &mut Dice, steps: &mut Vec<Step>) {
    for _ in 0..3 {
        steps.extend(exchange());
        steps.extend([Host::A, Host::B].map(|host| Step::Read(host, u16::MAX)));
        steps.push(dice.moment());
    }
    steps.push(Step::Advance(7 + dice.below(2)));
}
