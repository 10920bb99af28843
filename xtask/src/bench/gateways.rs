//! `bench gateways`: prepares the programs that are compared, and has them compared.
//!
//! pasta and slirp4netns are Debian's packages, which are installed if they are missing and that is
//! possible. gvisor-tap-vsock is a module for Go, and the program on it is in
//! `bench/peers`. A gateway that cannot be had here is named and left out.

use std::path::Path;

use anyhow::{Context, Error, Result};

use super::peers::{self, KERNEL, Place};
use crate::{packages, session};

/// Debian's packages.
const PACKAGED: [&str; 2] = ["pasta", "slirp4netns"];
const GVISOR_TAP_VSOCK: &str = "gvisor-tap-vsock";

/// Prepares what is compared, and compares it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&["ip"]).map_err(Error::msg)?;
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).context("the path of the repository is text")
    };
    println!("building the server");
    let server = peers::rust(&Place::new(root, KERNEL)?)?.map_err(Error::msg)?;
    let mut words = vec!["gateways".to_owned(), "--server".to_owned(), text(&server)?];
    let leave_out = |words: &mut Vec<String>, name: &str, why: String| {
        println!("{name} is left out: {why}");
        words.extend(["--missing".to_owned(), format!("{name}={why}")]);
    };
    for name in PACKAGED {
        if let Err(why) = packages::program(name) {
            leave_out(&mut words, name, why);
        }
    }
    println!("building the program on {GVISOR_TAP_VSOCK}");
    let built = match packages::program("go") {
        Ok(()) => peers::go(&Place::new(root, GVISOR_TAP_VSOCK)?)?,
        Err(why) => Err(why),
    };
    match built {
        Ok(program) => words.extend([format!("--{GVISOR_TAP_VSOCK}"), text(&program)?]),
        Err(why) => leave_out(&mut words, GVISOR_TAP_VSOCK, why),
    }
    words.extend(args.get(1..).unwrap_or(&[]).iter().cloned());
    session::bench(root, &words)
}
