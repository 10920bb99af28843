//! The program: `--seeds A..B [--seconds N]` compares by the number of the script and prints a
//! table of what differed; with `--failures` it also names scripts in which both panic.
//! `--show SEED` prints what happens in a script.

use std::time::Instant;

use crate::reach::Reach;
use crate::script::Script;
use crate::shrink::{Looking, listing, report, run};

/// Shortened scripts that a run prints at most.
const REPORTS: usize = 5;

/// Runs the program with these words. The exit status is 0 if the two do the same, 1 if they
/// differ and 2 if the words make no sense.
pub fn program(words: &[String]) -> u8 {
    match Ask::parse(words) {
        Ok(ask) => ask.run(),
        Err(error) => {
            eprintln!("{error}\nusage: --seeds A..B [--seconds N] [--failures] | --show SEED");
            2
        }
    }
}

/// For a fuzzer: ends the process if the two differ on the script that these bytes say.
pub fn judge(bytes: &[u8]) {
    let script = Script::from_bytes(bytes);
    if run(&script, Looking::Differences, &mut Reach::default(), None).is_some() {
        eprintln!("ERROR: the two differ\n{}", report(&script, Looking::Differences));
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
        // The first script of each kind is made short.
        let mut first = Vec::new();
        for seed in self.seeds {
            if self.seconds.is_some_and(|most| start.elapsed().as_secs() >= most) {
                break;
            }
            let script = Script::from_seed(seed);
            if let Some(difference) = run(&script, self.looking, &mut reach, None) {
                println!("seed {seed} differs in {}", difference.what);
                if reach.tally.add(seed, &difference) && first.len() < REPORTS {
                    first.push(seed);
                }
            }
        }
        for seed in first {
            println!("seed {seed}:\n{}\n", report(&Script::from_seed(seed), self.looking));
        }
        println!("{}", reach.report());
        let seconds = start.elapsed().as_secs();
        let found = reach.tally.count();
        println!("{found} of {} scripts differ; it took {seconds} s", reach.scripts);
        u8::from(found > 0)
    }
}
