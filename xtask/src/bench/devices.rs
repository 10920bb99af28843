//! `bench devices`: builds the program that answers beneath any stack, and has it measured by each
//! way to a device.

use std::path::Path;

use anyhow::{Context, Error, Result, bail};

use super::peers::{PROGRAMS, Place};
use crate::{packages, steps};

/// Builds the program, and runs the measurement.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&PROGRAMS).map_err(Error::msg)?;
    let place = Place::new(root, "devices")?;
    println!("building {}", place.program());
    let program = match place.rust()? {
        Ok(program) => program,
        Err(why) => bail!("{}: {why}", place.program()),
    };
    let program = program.to_str().context("the path of the repository is text")?.to_owned();
    let mut words = vec!["devices".to_owned(), "--program".to_owned(), program];
    words.extend(args.iter().skip(1).cloned());
    steps::bench(root, &words)
}
