//! `plimsoll nstat`, `sysctl` and `ss`: ask a running process and print what it says.

use anyhow::bail;

use crate::args::{NstatArgs, SsArgs, SysctlArgs, TargetArgs};
use crate::control::client::ask;
use crate::control::protocol::{Answer, Request, SocketLine, StackValues};
use crate::manual::print;

/// `plimsoll nstat`.
pub(crate) fn nstat(args: &NstatArgs) -> anyhow::Result<()> {
    let mut stacks = values(&args.target, &Request::Nstat)?;
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

/// `plimsoll sysctl`.
pub(crate) fn sysctl(args: &SysctlArgs) -> anyhow::Result<()> {
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
    if args.target.json {
        return json(&stacks);
    }
    let several = stacks.len() > 1;
    let mut text = String::new();
    for stack in &stacks {
        if several {
            text += &format!("#{}\n", stack.stack);
        }
        for (name, value) in &stack.values {
            text += &format!("{name} = {value}\n");
        }
    }
    print(text.as_bytes())
}

/// `plimsoll ss`.
pub(crate) fn ss(args: &SsArgs) -> anyhow::Result<()> {
    let Answer::Sockets(mut stacks) = ask(args.target.pid, &Request::Ss)? else {
        bail!("the process gave an answer to another question");
    };
    for stack in &mut stacks {
        stack.sockets.retain(|socket| match socket.state.as_str() {
            "LISTEN" => args.listening || args.all,
            _ => !args.listening,
        });
    }
    if args.target.json {
        return json(&stacks);
    }
    let several = stacks.len() > 1;
    let mut text = String::new();
    for stack in &stacks {
        if several {
            text += &format!("#{}\n", stack.stack);
        }
        text += &socket_table(&stack.sockets, args.info);
    }
    print(text.as_bytes())
}

fn socket_table(sockets: &[SocketLine], info: bool) -> String {
    let row = |state: &str, recv: &str, send: &str, local: &str, remote: &str| {
        let line = format!("{state:<11}{recv:>9} {send:>9} {local:>28} {remote:>28}");
        line.trim_end().to_owned() + "\n"
    };
    let mut text = row("State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port");
    for socket in sockets {
        let (recv, send) = (socket.recv_q.to_string(), socket.send_q.to_string());
        text += &row(&socket.state, &recv, &send, &socket.local, &socket.remote);
        if info && !socket.info.is_empty() {
            let items: Vec<String> =
                socket.info.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            text += &format!("\t {}\n", items.join(" "));
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

fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    print((serde_json::to_string_pretty(value)? + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_sockets() {
        let socket = SocketLine {
            state: "ESTAB".into(),
            recv_q: 1,
            send_q: 2,
            local: "192.0.2.2:7".into(),
            remote: "192.0.2.1:40000".into(),
            info: vec![("orphan".into(), "yes".into())],
        };
        let text = socket_table(&[socket], true);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("State") && lines[0].ends_with("Peer Address:Port"));
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["ESTAB", "1", "2", "192.0.2.2:7", "192.0.2.1:40000"]);
        assert_eq!(lines[2].trim(), "orphan:yes");
    }
}
