//! The options of peers and clients: an address, then `--name value` pairs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

/// Parsed words of a command line.
pub(crate) struct Options {
    address: SocketAddr,
    values: BTreeMap<String, String>,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Options> {
        let first = words.first().context("an address and port come first")?;
        let address = first.parse().with_context(|| format!("`{first}` is no ADDRESS:PORT"))?;
        let mut values = BTreeMap::new();
        for pair in words[1..].chunks(2) {
            let name = pair[0].strip_prefix("--").context("options begin with --")?;
            let value = pair.get(1).with_context(|| format!("--{name} wants a value"))?;
            values.insert(name.to_string(), value.clone());
        }
        Ok(Options { address, values })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of `--name`, or `default`.
    pub(crate) fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.values.get(name) {
            Some(text) => text.parse().map_err(|_| anyhow!("--{name} {text} makes no sense")),
            None => Ok(default),
        }
    }

    /// The value of `--name` in seconds, fractions allowed.
    pub(crate) fn seconds(&self, name: &str, default: f64) -> Result<Duration> {
        Ok(Duration::from_secs_f64(self.get(name, default)?))
    }

    /// The value of `--name` as text, if given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}
