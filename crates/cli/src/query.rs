//! `plimsoll nstat`, `sysctl`, `ss`, `qdisc`, `port` and `weather`: ask a running process and print
//! what it says.

use anyhow::bail;
use plimsoll_gateway::weather::check_change;
use plimsoll_sim::link::spec::LinkSpec;

use crate::UsageError;
use crate::args::{NstatArgs, PortArgs, QdiscArgs, SsArgs, SysctlArgs, TargetArgs, WeatherArgs};
use crate::control::client::ask;
use crate::control::protocol::{
    Answer, LinkLine, NetId, QdiscLine, Request, SocketLine, StackQdiscs, StackSockets, StackValues,
};
use crate::output::print;
use crate::reference;

/// `plimsoll nstat`.
pub(crate) fn nstat(args: &NstatArgs) -> anyhow::Result<()> {
    if args.explain {
        return reference::counters(&args.names);
    }
    let mut stacks = values(&args.target, &Request::Nstat)?;
    if let Some(name) = args.names.iter().find(|name| !is_counter(&stacks, name)) {
        bail!("no counter has {name} in its name; 'plimsoll nstat --explain' prints all of them");
    }
    for stack in &mut stacks {
        stack.values.retain(|(name, value)| {
            let wanted =
                args.names.is_empty() || args.names.iter().any(|part| name.contains(part.as_str()));
            wanted && (args.zeros || value != "0")
        });
    }
    if args.target.json {
        return json(&stacks);
    }
    let mut text = String::new();
    for stack in &stacks {
        text += &format!("#{}\n", stack.stack);
        for (name, value) in &stack.values {
            text += &format!("{name:<34} {value:>16}\n");
        }
    }
    print(text.as_bytes())
}

/// Whether a counter has `part` in its name.
fn is_counter(stacks: &[StackValues], part: &str) -> bool {
    let values = stacks.iter().flat_map(|stack| &stack.values);
    values.into_iter().any(|(name, _)| name.contains(part))
}

/// `plimsoll sysctl`.
pub(crate) fn sysctl(args: &SysctlArgs) -> anyhow::Result<()> {
    if args.explain {
        return reference::sysctls(&args.settings);
    }
    let mut stacks: Vec<StackValues> = Vec::new();
    if args.settings.is_empty() {
        stacks = values(&args.target, &Request::SysctlGet { names: Vec::new() })?;
    }
    for setting in &args.settings {
        let request = match setting.split_once('=') {
            Some((name, value)) => {
                Request::SysctlSet { name: name.trim().to_owned(), value: value.trim().to_owned() }
            }
            None => Request::SysctlGet { names: vec![setting.trim().to_owned()] },
        };
        for answer in values(&args.target, &request)? {
            match stacks.iter_mut().find(|stack| stack.stack == answer.stack) {
                Some(stack) => stack.values.extend(answer.values),
                None => stacks.push(answer),
            }
        }
    }
    let lines = |stack: &StackValues| {
        stack.values.iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
    };
    show(&args.target, &stacks, |stack| &stack.stack, lines)
}

/// `plimsoll ss`.
pub(crate) fn ss(args: &SsArgs) -> anyhow::Result<()> {
    let Answer::Sockets(mut stacks) = ask(args.target.pid, &Request::Ss)? else {
        bail!("the process gave an answer to another question");
    };
    for stack in &mut stacks {
        stack.sockets.retain(|socket| match (socket.netid, socket.state.as_str()) {
            (NetId::Tcp, "LISTEN") | (NetId::Udp, "UNCONN") => args.listening || args.all,
            _ => !args.listening,
        });
    }
    let table = |stack: &StackSockets| socket_table(&stack.sockets, args.info, args.why);
    show(&args.target, &stacks, |stack| &stack.stack, table)
}

/// `plimsoll qdisc`.
pub(crate) fn qdisc(args: &QdiscArgs) -> anyhow::Result<()> {
    let (dev, kind) = device_and_kind(&args.words);
    let request = match dev {
        Some(dev) if !kind.is_empty() => {
            Request::QdiscSet { dev: dev.to_owned(), qdisc: kind.join(" ") }
        }
        _ => Request::Qdisc,
    };
    let Answer::Qdiscs(mut stacks) = ask(args.target.pid, &request)? else {
        bail!("the process gave an answer to another question");
    };
    if let Some(dev) = dev {
        stacks.iter_mut().for_each(|stack| stack.qdiscs.retain(|line| line.dev == dev));
        stacks.retain(|stack| !stack.qdiscs.is_empty());
        if stacks.is_empty() {
            bail!("no interface is called {dev}; 'plimsoll qdisc' prints all of them");
        }
    }
    let text = |stack: &StackQdiscs| stack.qdiscs.iter().map(qdisc_text).collect();
    show(&args.target, &stacks, |stack| &stack.stack, text)
}

/// `plimsoll port`.
pub(crate) fn port(args: &PortArgs) -> anyhow::Result<()> {
    let request = match (&args.add, &args.remove) {
        (Some(port), _) => Request::PortAdd { port: port.to_string() },
        (_, Some(port)) => Request::PortRemove { port: port.to_string() },
        _ => Request::Ports,
    };
    let Answer::Ports(ports) = ask(args.target.pid, &request)? else {
        bail!("the process gave an answer to another question");
    };
    if args.target.json {
        return json(&ports);
    }
    let text: String = ports.iter().map(|port| format!("{port}\n")).collect();
    print(text.as_bytes())
}

/// `plimsoll weather`.
pub(crate) fn weather(args: &WeatherArgs) -> anyhow::Result<()> {
    let specs = [&args.both, &args.up, &args.down];
    for spec in specs.into_iter().flatten() {
        check_change(spec).map_err(UsageError)?;
    }
    let text = |spec: &Option<LinkSpec>| {
        let given = spec.as_ref().filter(|spec| !spec.is_empty());
        given.map_or_else(String::new, LinkSpec::to_string)
    };
    let request = Request::Weather { specs: specs.map(text) };
    let Answer::Weather(links) = ask(args.target.pid, &request)? else {
        bail!("the process gave an answer to another question");
    };
    if args.target.json {
        return json(&links);
    }
    let text: String = links.iter().map(link_text).collect();
    print(text.as_bytes())
}

/// A link, then its counts. Those of rare events are left out while they are zero.
fn link_text(line: &LinkLine) -> String {
    let LinkLine { direction, link, offered, offered_bytes, delivered, delivered_bytes, .. } = line;
    let mut text = format!("{direction:<5}{link}\n");
    text += &format!("     offered {offered} packets {offered_bytes} bytes, ");
    text += &format!("delivered {delivered} packets {delivered_bytes} bytes, lost {}\n", line.lost);
    text += &format!(
        "     queue {} packets {} bytes, most {} bytes, dropped {}",
        line.queue_packets, line.queue_bytes, line.queue_bytes_max, line.dropped_full
    );
    let rare = [
        ("dropped early", line.dropped_early),
        ("too long", line.dropped_long),
        ("marked", line.marked),
        ("duplicated", line.duplicated),
        ("reordered", line.reordered),
        ("corrupted", line.corrupted),
    ];
    for (name, count) in rare.into_iter().filter(|&(_, count)| count > 0) {
        text += &format!(", {name} {count}");
    }
    text + "\n"
}

/// Prints what each stack answered, below its name if there are several; or all of it as JSON.
fn show<T: serde::Serialize>(
    target: &TargetArgs,
    stacks: &[T],
    name: impl Fn(&T) -> &str,
    text: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    if target.json {
        return json(stacks);
    }
    let several = stacks.len() > 1;
    let title = |stack| if several { format!("#{}\n", name(stack)) } else { String::new() };
    let all: String = stacks.iter().map(|stack| title(stack) + &text(stack)).collect();
    print(all.as_bytes())
}

/// The interface and its new discipline in `[show|set|replace] [dev] [DEV [KIND ...]] [root]`: the
/// words of `tc qdisc` that say nothing here may be given or left out.
fn device_and_kind(words: &[String]) -> (Option<&str>, Vec<&str>) {
    let silent = |word: &&str| {
        matches!(*word, "show" | "list" | "set" | "add" | "replace" | "change" | "dev" | "root")
    };
    let mut words = words.iter().map(String::as_str).filter(|word| !silent(word));
    (words.next(), words.collect())
}

/// As `tc -s qdisc show` prints it.
fn qdisc_text(line: &QdiscLine) -> String {
    let QdiscLine { kind, dev, options, bytes, packets, drops, backlog, qlen, fq } = line;
    let mut text = format!("qdisc {kind} dev {dev} root {options}\n");
    text += &format!(" Sent {bytes} bytes {packets} pkt (dropped {drops})\n");
    text += &format!(" backlog {backlog}b {qlen}p\n");
    let Some(fq) = fq else { return text };
    text +=
        &format!("  flows {} (inactive {} throttled {})\n", fq.flows, fq.inactive, fq.throttled);
    text += &format!("  gc {} highprio {} throttled {}", fq.gc, fq.highprio, fq.throttled_events);
    let rare = [
        ("flows_plimit", fq.flows_plimit),
        ("horizon_drops", fq.horizon_drops),
        ("horizon_caps", fq.horizon_caps),
    ];
    for (name, count) in rare.into_iter().filter(|&(_, count)| count > 0) {
        text += &format!(" {name} {count}");
    }
    text + "\n"
}

fn socket_table(sockets: &[SocketLine], info: bool, why: bool) -> String {
    // As in `ss`, the protocol is printed if there are two.
    let several = sockets.iter().any(|socket| socket.netid == NetId::Udp);
    let row = |netid: &str, state: &str, recv: &str, send: &str, local: &str, remote: &str| {
        let netid = if several { format!("{netid:<6}") } else { String::new() };
        let line = format!("{netid}{state:<11}{recv:>9} {send:>9} {local:>28} {remote:>28}");
        line.trim_end().to_owned() + "\n"
    };
    let mut text =
        row("Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port");
    for socket in sockets {
        let (recv, send) = (socket.recv_q.to_string(), socket.send_q.to_string());
        let netid = socket.netid.name();
        text += &row(netid, &socket.state, &recv, &send, &socket.local, &socket.remote);
        if info && !socket.info.is_empty() {
            let items: Vec<String> =
                socket.info.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            text += &format!("\t {}\n", items.join(" "));
        }
        for decision in socket.why.iter().filter(|_| why) {
            text += &format!("\t {decision}\n");
        }
    }
    text
}

fn values(target: &TargetArgs, request: &Request) -> anyhow::Result<Vec<StackValues>> {
    match ask(target.pid, request)? {
        Answer::Values(stacks) => Ok(stacks),
        _ => bail!("the process gave an answer to another question"),
    }
}

fn json<T: serde::Serialize>(value: &[T]) -> anyhow::Result<()> {
    print((serde_json::to_string_pretty(value)? + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_qdisc() {
        for (line, dev, kind) in [
            ("", None, ""),
            ("show", None, ""),
            ("tun0", Some("tun0"), ""),
            ("show dev tun0", Some("tun0"), ""),
            ("set tun0 fq limit 9", Some("tun0"), "fq limit 9"),
            ("replace dev tun0 root pfifo", Some("tun0"), "pfifo"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let (found, rest) = device_and_kind(&words);
            assert_eq!((found, rest.join(" ").as_str()), (dev, kind), "{line}");
        }
    }

    #[test]
    fn text_of_qdiscs() {
        use crate::control::protocol::FqLine;
        let fq = FqLine { flows: 3, inactive: 1, flows_plimit: 2, ..FqLine::default() };
        let line = QdiscLine {
            kind: "fq".into(),
            dev: "tun0".into(),
            options: "limit 10000p".into(),
            bytes: 70,
            packets: 2,
            fq: Some(fq),
            ..QdiscLine::default()
        };
        let text = qdisc_text(&line);
        assert_eq!(
            text,
            "qdisc fq dev tun0 root limit 10000p\n Sent 70 bytes 2 pkt (dropped 0)\n \
             backlog 0b 0p\n  flows 3 (inactive 1 throttled 0)\n  gc 0 highprio 0 throttled 0 \
             flows_plimit 2\n"
        );
    }

    #[test]
    fn table_of_sockets() {
        let socket = SocketLine {
            netid: NetId::Tcp,
            state: "ESTAB".into(),
            recv_q: 1,
            send_q: 2,
            local: "192.0.2.2:7".into(),
            remote: "192.0.2.1:40000".into(),
            info: vec![("orphan".into(), "yes".into())],
            why: vec!["0.000001 woke readers".into()],
        };
        let text = socket_table(std::slice::from_ref(&socket), true, false);
        assert_eq!(text.lines().count(), 3);
        let text = socket_table(std::slice::from_ref(&socket), true, true);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("State") && lines[0].ends_with("Peer Address:Port"));
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["ESTAB", "1", "2", "192.0.2.2:7", "192.0.2.1:40000"]);
        assert_eq!(lines[2].trim(), "orphan:yes");
        assert_eq!(lines[3].trim(), "0.000001 woke readers");
        let server = SocketLine {
            netid: NetId::Udp,
            state: "UNCONN".into(),
            recv_q: 328,
            send_q: 0,
            local: "0.0.0.0:53".into(),
            remote: "*".into(),
            info: vec![("datagrams".into(), "1".into())],
            why: Vec::new(),
        };
        let text = socket_table(&[socket, server], false, false);
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0][..2], ["Netid", "State"]);
        assert_eq!(words[1][..3], ["tcp", "ESTAB", "1"]);
        assert_eq!(words[2], ["udp", "UNCONN", "328", "0", "0.0.0.0:53", "*"]);
    }
}
