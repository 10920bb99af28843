//! What commands mean.

use std::iter;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use plimsoll_stack::qdisc::Kind;

use super::words::{self, Link, Pipeline};
use super::{Command, MEANINGLESS, Qdisc, RouteMetrics, TokenBucket};
use crate::host::{Host, HostError};

/// From this follow the parameters of fair queueing that are not given.
const USUAL_MTU: u16 = 1500;

/// How deep helper files may call each other.
const MAX_DEPTH: u8 = 4;
/// The longest helper file.
const MAX_FILE: u64 = 64 * 1024;
/// The longest scratch file.
const MAX_SCRATCH: u64 = 16 << 20;

pub(super) struct Runner<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) folder: Option<&'a Path>,
    pub(super) depth: u8,
}

/// What a command translates to; the text of an error says what is not understood.
type Translation = Result<Vec<Command>, String>;

impl Runner<'_> {
    pub(super) fn text(&mut self, text: &str) -> Result<(), HostError> {
        let mut last: Result<(), HostError> = Ok(());
        let mut pipelines = words::pipelines(text).map_err(HostError)?.into_iter().peekable();
        while let Some(pipeline) = pipelines.next() {
            let skip = match pipeline.link {
                Link::Then => false,
                Link::IfWell => last.is_err(),
                Link::IfFailed => last.is_ok(),
            };
            if !skip {
                last = self.pipeline(&pipeline);
            }
            // A failure counts unless complaints are thrown away or somebody waits for it.
            let heard = pipelines.peek().is_some_and(|next| next.link == Link::IfFailed);
            if last.is_err() && !heard && !pipeline.hush {
                return last;
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<(), HostError> {
        let Some(first) = pipeline.stages.first() else { return Ok(()) };
        let (Some(name), arguments) = (first.first(), first.get(1..).unwrap_or_default()) else {
            return Ok(());
        };
        if pipeline.stages.len() == 1 && self.is_helper(name) {
            return self.helper(name, arguments);
        }
        let translated = translate(name, arguments, pipeline).map_err(|what| {
            HostError(format!("the shell command `{}` is not understood: {what}", first.join(" ")))
        })?;
        for command in &translated {
            self.command(command)?;
        }
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<(), HostError> {
        match command {
            Command::Sysctl { name, .. } if MEANINGLESS.contains(&name.as_str()) => Ok(()),
            _ => self.host.command(command),
        }
    }

    fn is_helper(&self, name: &str) -> bool {
        let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("sh" | "py"))
    }

    /// A helper file of the suites: one that sets, one that restores, or lines of settings.
    fn helper(&mut self, name: &str, arguments: &[String]) -> Result<(), HostError> {
        let file = Path::new(name).file_name().and_then(|file| file.to_str()).unwrap_or(name);
        if file == "set_sysctls.py" {
            for argument in arguments {
                let command = assignment(argument).map_err(HostError)?;
                self.command(&command)?;
            }
            return Ok(());
        }
        if file.starts_with("sysctl_restore_") {
            // Every script has a stack of its own: there is nothing to restore.
            return Ok(());
        }
        if !file.ends_with(".sh") {
            return Err(HostError(format!("the helper `{name}` is not known")));
        }
        let text = self.read(name)?;
        if self.depth >= MAX_DEPTH {
            return Err(HostError(format!("the helper `{name}` calls itself")));
        }
        self.depth += 1;
        let done = self.text(&text);
        self.depth -= 1;
        done.map_err(|error| HostError(format!("{name}: {error}")))
    }

    fn read(&self, name: &str) -> Result<String, HostError> {
        let Some(folder) = self.folder else {
            let why = "the script lies in no folder, so its helpers cannot be found";
            return Err(HostError(format!("{name}: {why}")));
        };
        let path = tidy(&folder.join(name));
        let failed = |error: &dyn std::fmt::Display| {
            HostError(format!("the helper {} cannot be read: {error}", path.display()))
        };
        let info = std::fs::metadata(&path).map_err(|error| failed(&error))?;
        if !info.is_file() || info.len() > MAX_FILE {
            return Err(failed(&"it is no short file"));
        }
        std::fs::read_to_string(&path).map_err(|error| failed(&error))
    }
}

/// The same path without `..` behind a name.
fn tidy(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        let named = matches!(clean.components().next_back(), Some(Component::Normal(_)));
        if part == Component::ParentDir && named {
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    clean
}

fn translate(name: &str, arguments: &[String], pipeline: &Pipeline) -> Translation {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let base = Path::new(name).file_name().and_then(|file| file.to_str()).unwrap_or(name);
    if pipeline.stages.len() > 1 && !matches!(base, "nstat" | "grep") {
        return Err("it stands before a pipe".to_owned());
    }
    match base {
        "sysctl" => sysctl(&words),
        "ip" => ip(&words),
        "tc" => tc(&words),
        "ethtool" => ethtool(&words),
        "nstat" => Ok(vec![Command::Counters { wanted: searched(pipeline)? }]),
        "grep" => listening(&words, pipeline),
        "echo" => echo(&words, pipeline),
        "dd" => dd(&words),
        "rm" => Ok(words
            .iter()
            .filter(|word| !word.starts_with('-'))
            .map(|path| Command::RemoveFile((*path).to_owned()))
            .collect()),
        "true" | ":" | "set" => Ok(Vec::new()),
        _ => Err(format!("there is no `{name}` here")),
    }
}

/// `name=value`, where the name may have dots or slashes.
fn assignment(text: &str) -> Result<Command, String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}` is not of the form name=value"))?;
    let name = name.trim().trim_start_matches("/proc/sys/").replace('/', ".");
    Ok(Command::Sysctl { name, value: value.trim().to_owned() })
}

fn sysctl(words: &[&str]) -> Translation {
    let mut list = Vec::new();
    for word in words {
        match *word {
            "-q" | "-w" | "-e" | "-n" | "-qw" | "-wq" | "-qe" | "-eq" => {}
            option if option.starts_with('-') => {
                return Err(format!("sysctl {option} is not known"));
            }
            text => list.push(assignment(text)?),
        }
    }
    if list.is_empty() { Err("it sets nothing".to_owned()) } else { Ok(list) }
}

fn ip(words: &[&str]) -> Translation {
    let mut rest: &[&str] = words;
    let mut v6 = false;
    while let [first, tail @ ..] = rest
        && first.starts_with('-')
    {
        v6 |= *first == "-6";
        rest = tail;
    }
    match rest {
        ["tcp_metrics" | "tcpmetrics", "flush", ..] => Ok(vec![Command::FlushMetrics]),
        ["route" | "ro" | "r", "change" | "replace" | "add" | "append", attributes @ ..] => {
            Ok(vec![Command::Route(RouteMetrics { v6, ..route(attributes)? })])
        }
        ["link" | "l", "set", attributes @ ..] => link(attributes),
        _ => Err("only `ip route`, `ip link set` and `ip tcp_metrics flush` are".to_owned()),
    }
}

fn number<T: std::str::FromStr>(name: &str, text: Option<&str>) -> Result<T, String> {
    let text = text.unwrap_or_default();
    text.parse().map_err(|_| format!("`{text}` is no value for {name}"))
}

/// Where a route leads: `default`, an address, or a prefix.
fn destination(word: Option<&str>) -> Result<Option<(IpAddr, u8)>, String> {
    let text = word.unwrap_or_default();
    if text == "default" {
        return Ok(None);
    }
    let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
    let ip: IpAddr = address.parse().map_err(|_| format!("`{text}` is no destination"))?;
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(whole), |len| number("the length of a prefix", Some(len)))?;
    Ok(Some((ip, len)))
}

fn route(words: &[&str]) -> Result<RouteMetrics, String> {
    let mut words = words.iter().copied();
    let mut metrics = RouteMetrics { to: destination(words.next())?, ..RouteMetrics::default() };
    while let Some(word) = words.next() {
        match word {
            "via" | "dev" | "src" | "table" | "metric" | "proto" | "scope" => drop(words.next()),
            "mtu" => {
                let mut value = words.next();
                if value == Some("lock") {
                    metrics.mtu_lock = true;
                    value = words.next();
                }
                metrics.mtu = Some(number(word, value)?);
            }
            "advmss" => metrics.advmss = Some(number(word, words.next())?),
            "initcwnd" => metrics.initcwnd = Some(number(word, words.next())?),
            "initrwnd" => metrics.initrwnd = Some(number(word, words.next())?),
            "quickack" => metrics.quickack = Some(number::<u8>(word, words.next())? != 0),
            "fastopen_no_cookie" => {
                metrics.fastopen_no_cookie = Some(number::<u8>(word, words.next())? != 0);
            }
            "congctl" => metrics.congctl = words.next().map(str::to_owned),
            "features" if words.next() == Some("ecn") => metrics.ecn = true,
            "rto_min" => {
                let text = words.next().unwrap_or_default();
                let digits = text.strip_suffix("ms").unwrap_or(text);
                metrics.rto_min_ms = Some(number(word, Some(digits))?);
            }
            other => return Err(format!("the attribute {other} of a route is not known")),
        }
    }
    Ok(metrics)
}

fn link(words: &[&str]) -> Translation {
    let mut list = Vec::new();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "dev" => drop(words.next()),
            "up" => {}
            "mtu" => list.push(Command::LinkMtu(number(word, words.next())?)),
            // Limits of super-segments are part of the offload.
            name if name.starts_with("tun") => {}
            other => return Err(format!("the attribute {other} of a link is not known")),
        }
    }
    Ok(list)
}

fn tc(words: &[&str]) -> Translation {
    let ["qdisc", verb, attributes @ ..] = words else {
        return Err("only `tc qdisc` is".to_owned());
    };
    if matches!(*verb, "show" | "list" | "ls") {
        return Ok(Vec::new());
    }
    let mut words = attributes.iter().copied();
    let mut kind = None;
    while let Some(word) = words.next() {
        match word {
            "dev" | "handle" | "parent" => drop(words.next()),
            "root" => {}
            "pfifo" | "bfifo" | "pfifo_fast" => kind = Some(Qdisc::Fifo { limit: None }),
            "fq" => kind = Some(fair_queueing(words.by_ref())?),
            "noqueue" => kind = Some(Qdisc::Default),
            "limit" => {
                let limit = Some(number(word, words.next())?);
                if let Some(Qdisc::Fifo { limit: slot }) = &mut kind {
                    *slot = limit;
                }
            }
            "tbf" => kind = Some(Qdisc::TokenBucket(TokenBucket { rate: 0, burst: 0 })),
            "rate" | "burst" | "latency" if matches!(kind, Some(Qdisc::TokenBucket(_))) => {
                token_bucket(&mut kind, word, words.next())?;
            }
            other => return Err(format!("the queueing discipline {other} is not known")),
        }
    }
    match (*verb, kind) {
        ("delete" | "del", _) => Ok(vec![Command::Qdisc(Qdisc::Default)]),
        (
            _,
            Some(Qdisc::TokenBucket(TokenBucket { rate: 0, .. } | TokenBucket { burst: 0, .. })),
        ) => Err("tbf needs a rate and a burst".to_owned()),
        ("add" | "replace" | "change", Some(kind)) => Ok(vec![Command::Qdisc(kind)]),
        _ => Err("it names no queueing discipline".to_owned()),
    }
}

/// Fair queueing with the parameters that follow its name.
fn fair_queueing<'a>(words: impl Iterator<Item = &'a str>) -> Result<Qdisc, String> {
    let text = iter::once("fq").chain(words).collect::<Vec<_>>().join(" ");
    match Kind::parse(&text, USUAL_MTU) {
        Ok(Kind::Fq(config)) => Ok(Qdisc::Fq(config)),
        Ok(Kind::Pfifo { .. }) => Err(format!("`{text}` is not fair queueing")),
        Err(error) => Err(error.to_string()),
    }
}

/// A parameter of `tbf`.
fn token_bucket(kind: &mut Option<Qdisc>, name: &str, value: Option<&str>) -> Result<(), String> {
    let Some(Qdisc::TokenBucket(bucket)) = kind else { return Ok(()) };
    let value = value.unwrap_or_default();
    match name {
        "rate" => {
            let (digits, bits) = value
                .strip_suffix("kbit")
                .map(|digits| (digits, 1000))
                .or(value.strip_suffix("mbit").map(|digits| (digits, 1_000_000)))
                .ok_or_else(|| format!("`{value}` is no rate in kbit or mbit"))?;
            bucket.rate = number::<u32>(name, Some(digits))? as u64 * bits / 8;
        }
        "burst" => bucket.burst = number::<u32>(name, Some(value))?.into(),
        // The queue is long enough.
        _ => {}
    }
    Ok(())
}

fn ethtool(words: &[&str]) -> Translation {
    let ["-K", _device, features @ ..] = words else {
        return Err("only `ethtool -K` is".to_owned());
    };
    let (mut tso, mut gso) = (None, None);
    for pair in features.chunks(2) {
        let on = match pair.get(1) {
            Some(&"on") => true,
            Some(&"off") => false,
            _ => return Err("features are `on` or `off`".to_owned()),
        };
        match pair[0] {
            "tso" => tso = Some(on),
            "gso" => gso = Some(on),
            // What arrives is not merged here, and checksums are always right.
            "gro" | "lro" | "tx" | "rx" | "sg" => {}
            other => return Err(format!("the feature {other} is not known")),
        }
    }
    Ok(vec![Command::Offload { tso, gso }])
}

/// The word that the greps behind the first command look for.
fn searched(pipeline: &Pipeline) -> Result<Option<String>, String> {
    let mut wanted = None;
    for stage in &pipeline.stages[1..] {
        let words: Vec<&String> = stage.iter().filter(|word| !word.starts_with('-')).collect();
        match words.as_slice() {
            [name, pattern] if *name == "grep" => wanted = Some((*pattern).clone()),
            _ => return Err(format!("`{}` behind a pipe is not known", stage.join(" "))),
        }
    }
    Ok(wanted)
}

fn listening(words: &[&str], pipeline: &Pipeline) -> Translation {
    let listeners = matches!(words, [" 0A ", files @ ..]
        if !files.is_empty() && files.iter().all(|file| file.starts_with("/proc/net/tcp")));
    let pattern = searched(pipeline)?;
    let port = pattern.as_deref().and_then(|pattern| pattern.strip_prefix(':'));
    match port.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
        Some(port) if listeners => Ok(vec![Command::Listening(port)]),
        _ => Err("only a search for a listener's port in /proc/net/tcp is".to_owned()),
    }
}

fn echo(words: &[&str], pipeline: &Pipeline) -> Translation {
    let value = words.join(" ");
    let Some(path) = pipeline.output.as_deref() else { return Ok(Vec::new()) };
    if path == "/dev/null" {
        return Ok(Vec::new());
    }
    if let Some(name) = path.strip_prefix("/sys/module/tcp_cubic/parameters/") {
        return Ok(vec![Command::CubicParameter { name: name.to_owned(), value }]);
    }
    match path.strip_prefix("/proc/sys/") {
        Some(name) => Ok(vec![Command::Sysctl { name: name.replace('/', "."), value }]),
        None => Err(format!("nothing is known of {path}")),
    }
}

fn dd(words: &[&str]) -> Translation {
    let (mut input, mut output, mut block, mut count) = (None, None, 512_u64, None);
    for word in words {
        match word.split_once('=') {
            Some(("if", path)) => input = Some(path),
            Some(("of", path)) => output = Some(path),
            Some(("bs", size)) => block = number("bs", Some(size))?,
            Some(("count", blocks)) => count = Some(number::<u64>("count", Some(blocks))?),
            Some(("status", _)) => {}
            _ => return Err(format!("`{word}` is not known")),
        }
    }
    let (Some("/dev/zero"), Some(path), Some(count)) = (input, output, count) else {
        return Err("only a file made of /dev/zero is".to_owned());
    };
    let len = block.checked_mul(count).filter(|len| *len <= MAX_SCRATCH);
    let len = len.ok_or_else(|| format!("more than {MAX_SCRATCH} bytes are too much"))?;
    Ok(vec![Command::ZeroFile { path: path.to_owned(), len }])
}
