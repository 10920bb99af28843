//! The lines that go over the control socket.

use serde::{Deserialize, Serialize};

/// Most bytes of a request line. Answers may be longer.
pub(crate) const MAX_LINE: u64 = 64 * 1024;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// All counters.
    Nstat,
    /// Settings: all of them, or those named.
    SysctlGet {
        /// The names; empty means all.
        names: Vec<String>,
    },
    /// Changes one setting in every stack of the process.
    SysctlSet {
        /// Linux's name, as in `net.ipv4.tcp_sack`.
        name: String,
        /// The value as text.
        value: String,
    },
    /// All sockets.
    Ss,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// One list of names and values for each stack of the process.
    Values(Vec<StackValues>),
    /// One list of sockets for each stack of the process.
    Sockets(Vec<StackSockets>),
    /// What went wrong.
    Error(String),
}

/// Names and values of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackValues {
    /// The name of the stack in its process.
    pub stack: String,
    /// Names and values, in the stack's order.
    pub values: Vec<(String, String)>,
}

/// Sockets of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackSockets {
    /// The name of the stack in its process.
    pub stack: String,
    /// The sockets.
    pub sockets: Vec<SocketLine>,
}

/// One socket, as `ss` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLine {
    /// The state, as `ss` writes it: `ESTAB`, `LISTEN`, `TIME-WAIT`.
    pub state: String,
    /// Bytes to be read; for a listener, connections to be accepted.
    pub recv_q: u64,
    /// Bytes written and not yet acknowledged; for a listener, its backlog.
    pub send_q: u64,
    /// Our address.
    pub local: String,
    /// The peer's address; `*` for a listener.
    pub remote: String,
    /// More, as `name:value`, for `ss -i`.
    pub info: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = serde_json::to_string(&Request::Nstat).unwrap();
        assert_eq!(text, r#"{"op":"nstat"}"#);
        let set = Request::SysctlSet { name: "a".into(), value: "1".into() };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(text, r#"{"op":"sysctl_set","name":"a","value":"1"}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), set);
        let text = serde_json::to_string(&Answer::Error("no".into())).unwrap();
        assert_eq!(text, r#"{"error":"no"}"#);
    }
}
