//! `plimsoll sysctl --explain` and `plimsoll nstat --explain`: what there is, without asking a
//! running process.

use anyhow::bail;
use plimsoll::{CounterInfo, SysctlInfo};

use crate::output::print;

/// Explains the settings whose names contain one of `words`, or all.
pub(crate) fn sysctls(words: &[String]) -> anyhow::Result<()> {
    if let Some(word) = words.iter().find(|word| word.contains('=')) {
        bail!("{word}: --explain changes nothing; give a name or a part of one");
    }
    let all = SysctlInfo::all();
    explain(words, all.iter().map(|info| (info.name, sysctl(info))))
}

/// Explains the counters whose names contain one of `words`, or all.
pub(crate) fn counters(words: &[String]) -> anyhow::Result<()> {
    explain(words, CounterInfo::all().iter().map(|info| (info.name, counter(info))))
}

fn explain<'a>(
    words: &[String],
    all: impl Iterator<Item = (&'a str, String)>,
) -> anyhow::Result<()> {
    let wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.trim()));
    let text: String = all.filter(|(name, _)| wanted(name)).map(|(_, text)| text).collect();
    if text.is_empty() {
        bail!("no name contains {}; without a name --explain prints all", words.join(" or "));
    }
    print(text.as_bytes())
}

fn sysctl(info: &SysctlInfo) -> String {
    let SysctlInfo { name, doc, default, allowed, socket, linux, .. } = info;
    let default = default.replace('\t', " ");
    let mut text = format!("{name}\n    {doc}\n    default {default}; takes {allowed}\n");
    if !socket.is_empty() {
        text += &format!("    for one socket: {}\n", socket.replace('`', ""));
    }
    text + &unlike(linux)
}

fn counter(info: &CounterInfo) -> String {
    format!("{}\n    {}\n{}", info.name, info.doc, unlike(info.linux))
}

fn unlike(linux: &str) -> String {
    if linux.is_empty() { String::new() } else { format!("    {linux}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told() {
        let told = |name: &str| {
            let all = SysctlInfo::all();
            sysctl(all.iter().find(|info| info.name == name).unwrap())
        };
        let text = told("net.ipv4.tcp_rmem");
        assert!(text.contains("default 4096 131072 33554432; takes three sizes"), "{text}");
        assert!(text.contains("for one socket: SO_RCVBUF (TcpStream::"), "{text}");
        assert_eq!(told("net.ipv4.tcp_sack").lines().count(), 3);
        assert!(sysctls(&["tcp_sack=1".into()]).is_err());
        assert!(counters(&["Nonsense".into()]).is_err());
    }
}
