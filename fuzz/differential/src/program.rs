//! The program: `--seeds A..B [--seconds N]` compares by the number of the script, and with
//! `--failures` ends where both engines panic, too; `--show SEED` prints what happens in a script.

use std::time::Instant;

use crate::reach::Reach;
use crate::script::Script;
use crate::shrink::{Looking, listing, report, run};

/// Runs the program with these words. The exit status is 0 if the engines do the same, 1 at the
/// first difference and 2 if the words make no sense.
pub fn program(words: &[String]) -> u8 {
    match Ask::parse(words) {
        Ok(ask) => ask.run(),
        Err(error) => {
            eprintln!("{error}\nusage: --seeds A..B [--seconds N] [--failures] | --show SEED");
            2
        }
    }
}

/// For a fuzzer: ends the process if the engines differ on the script that these bytes say.
pub fn judge(bytes: &[u8]) {
    let script = Script::from_bytes(bytes);
    if run(&script, Looking::Differences, &mut Reach::default(), None).is_some() {
        eprintln!("ERROR: the engines differ\n{}", report(&script, Looking::Differences));
        std::process::abort();
    }
}

struct Ask {
    seeds: std::ops::Range<u64>,
    seconds: Option<u64>,
    show: Option<u64>,
    looking: Looking,
}

impl Ask {
    fn parse(words: &[String]) -> Result<Ask, String> {
        let mut ask =
            Ask { seeds: 0..10_000, seconds: None, show: None, looking: Looking::Differences };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--failures" {
                ask.looking = Looking::Failures;
                continue;
            }
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let number = |text: &str| text.parse().map_err(|_| format!("not a number: {text}"));
            match word.as_str() {
                "--seeds" => {
                    let (from, to) = value.split_once("..").ok_or("--seeds wants A..B")?;
                    ask.seeds = number(from)?..number(to)?;
                }
                "--seconds" => ask.seconds = Some(number(value)?),
                "--show" => ask.show = Some(number(value)?),
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(ask)
    }

    fn run(self) -> u8 {
        if let Some(seed) = self.show {
            println!("{}", listing(&Script::from_seed(seed)));
            return 0;
        }
        let start = Instant::now();
        let mut reach = Reach::default();
        for seed in self.seeds {
            if self.seconds.is_some_and(|most| start.elapsed().as_secs() >= most) {
                break;
            }
            let script = Script::from_seed(seed);
            if run(&script, self.looking, &mut reach, None).is_some() {
                println!("{}", reach.report());
                println!("seed {seed} differs:\n{}", report(&script, self.looking));
                return 1;
            }
        }
        println!("{}", reach.report());
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        println!("no difference; {:.0} scripts a minute", reach.scripts as f64 / minutes);
        0
    }
}
