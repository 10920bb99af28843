//! What happens to one packet, and the dice that decide it.

use plimsoll_tcp::Duration;
use serde::{Deserialize, Serialize};

use super::config::{LinkConfig, Loss};
use crate::rng::Rng;
use crate::units;

/// What the wire does to one packet. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Fate {
    /// It is lost behind the queue.
    #[serde(skip_serializing_if = "is_false")]
    pub lose: bool,
    /// It arrives twice.
    #[serde(skip_serializing_if = "is_false")]
    pub duplicate: bool,
    /// This bit of it is flipped, counted from its first and again from there if it is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<u32>,
    /// It is marked (CE) if it allows that.
    #[serde(skip_serializing_if = "is_false")]
    pub mark: bool,
    /// It takes longer, and those behind it wait for it.
    #[serde(with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub jitter: Duration,
    /// It takes longer, and others overtake it.
    #[serde(with = "units::time", skip_serializing_if = "Duration::is_zero")]
    pub overtaken: Duration,
}

fn is_false(value: &bool) -> bool {
    !value
}

plimsoll_tcp::setters!(Fate {
    lose: bool,
    duplicate: bool,
    corrupt: Option<u32>,
    mark: bool,
    jitter: Duration,
    overtaken: Duration,
});

impl Fate {
    /// Whether anything happens to the packet.
    pub fn is_fault(&self) -> bool {
        *self != Fate::default()
    }
}

/// The dice of one link. Each packet costs the same number of throws whatever the odds are, so
/// that changing one of them does not change what happens by the others.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    rng: Rng,
    /// The wire is in its bad state ([`Loss::Bursty`]).
    bad: bool,
    /// The latest packet is overtaken.
    overtaken: bool,
}

impl Dice {
    pub(super) fn new(rng: Rng) -> Dice {
        Dice { rng, bad: false, overtaken: false }
    }

    /// Throws for one packet.
    pub(super) fn roll(&mut self, config: &LinkConfig) -> Fate {
        let lose = self.lose(config.loss);
        let (odds, bound) = (config.reorder, config.reorder_correlation);
        let odds = odds * (1.0 - bound) + if self.overtaken { bound } else { 0.0 };
        let reorder = self.rng.chance(odds);
        self.overtaken = reorder;
        let duplicate = self.rng.chance(config.duplicate);
        let corrupt = self.rng.chance(config.corrupt);
        let mark = self.rng.chance(config.mark);
        let bit = self.rng.bits() as u32;
        let jitter = self.rng.time(Duration::ZERO, config.jitter);
        let overtaken = self.rng.time(config.reorder_delay / 8, config.reorder_delay);
        Fate {
            lose,
            duplicate,
            corrupt: corrupt.then_some(bit),
            mark,
            jitter,
            overtaken: if reorder { overtaken } else { Duration::ZERO },
        }
    }

    fn lose(&mut self, loss: Loss) -> bool {
        let (change, lose) = (self.rng.unit(), self.rng.unit());
        match loss {
            Loss::None => false,
            Loss::Independent(odds) => lose < odds,
            Loss::Bursty { enter, leave, good, bad } => {
                let odds = if self.bad { leave } else { enter };
                self.bad ^= change < odds;
                lose < if self.bad { bad } else { good }
            }
        }
    }
}
