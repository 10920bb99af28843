//! The API socket of slirp4netns(1): ports are added, listed and removed by requests in JSON.
//!
//! A client sends one request, ends its half of the connection, and gets one answer.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_gateway::network::Network;
use plimsoll_gateway::ports::{Port, PortControl, Protocol};
use plimsoll_gateway::run::Running;
use serde_json::{Value, json};

use crate::control::server::{self, ControlSocket, Framing, Serve};

/// Bytes of a request, at most.
const MAX_REQUEST: usize = 4095;

/// Opens the socket. One that another process has left there is replaced.
///
/// # Errors
/// If there is another file, or the path cannot be one of a socket.
pub(super) fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let open = || {
        match std::fs::symlink_metadata(path) {
            Ok(data) if data.file_type().is_socket() => std::fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::from(ErrorKind::AlreadyExists)),
            // If there is no folder, binding fails.
            Err(_) => {}
        }
        server::listen(path)
    };
    open().with_context(|| format!("cannot open the API socket {}", path.display()))
}

/// Answers requests for ports.
pub(super) struct Api {
    ports: PortControl,
    guest: Ipv4Addr,
}

impl Api {
    /// Answers at this socket until the result is dropped.
    pub(super) fn open(
        socket: UnixListener,
        running: &Running<'_>,
        network: Network,
    ) -> io::Result<ControlSocket> {
        let api = Api { ports: running.controls.ports.clone(), guest: network.guest() };
        server::serve(socket, Arc::new(api))
    }

    fn respond(&self, request: &[u8]) -> Result<Value, String> {
        let bad = |what: &str| format!("bad request: {what}");
        if request.len() > MAX_REQUEST {
            return Err(bad("too large message"));
        }
        let request: Value =
            serde_json::from_slice(request).map_err(|_| bad("cannot parse JSON"))?;
        let execute = request["execute"].as_str().ok_or_else(|| bad("no execute found"))?;
        let arguments = &request["arguments"];
        match execute {
            "add_hostfwd" => self.add(arguments),
            "list_hostfwd" => self.list(),
            "remove_hostfwd" => self.remove(arguments),
            _ => return Err(bad("unknown execute")),
        }
        .map_err(|error| bad(&format!("{execute}: {error}")))
    }

    fn add(&self, arguments: &Value) -> Result<Value, String> {
        let wrong = |name: &str| format!("bad arguments.{name}");
        let protocol = match arguments["proto"].as_str() {
            Some("tcp") => Protocol::Tcp,
            Some("udp") => Protocol::Udp,
            _ => return Err(wrong("proto")),
        };
        let address = |name: &str, default: Ipv4Addr| match &arguments[name] {
            // Callers without an address send an empty one.
            Value::Null => Ok(default),
            Value::String(text) if text.is_empty() => Ok(default),
            given => given.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| wrong(name)),
        };
        let port = |name: &str| {
            let number = arguments[name].as_u64().and_then(|number| u16::try_from(number).ok());
            number.filter(|&port| port > 0).ok_or_else(|| wrong(name))
        };
        let host = address("host_addr", Ipv4Addr::UNSPECIFIED)?;
        let host = SocketAddr::new(host.into(), port("host_port")?);
        if address("guest_addr", self.guest)? != self.guest {
            return Err(format!("{}: ports lead to {} only", wrong("guest_addr"), self.guest));
        }
        let port = Port { protocol, host, guest: port("guest_port")? };
        Ok(json!({ "id": self.ports.add(port)? }))
    }

    fn list(&self) -> Result<Value, String> {
        let entry = |(id, port): &(usize, Port)| {
            json!({
                "id": id,
                "proto": port.protocol.to_string(),
                "host_addr": port.host.ip().to_string(),
                "host_port": port.host.port(),
                "guest_addr": self.guest.to_string(),
                "guest_port": port.guest,
            })
        };
        Ok(json!({ "entries": self.ports.list()?.iter().map(entry).collect::<Vec<_>>() }))
    }

    fn remove(&self, arguments: &Value) -> Result<Value, String> {
        let id = arguments["id"].as_u64().ok_or("bad arguments.id")?;
        let all = self.ports.list()?;
        let found = all.iter().find(|(number, _)| *number as u64 == id);
        let (_, port) = found.ok_or_else(|| format!("no port has the id {id}"))?;
        self.ports.remove(*port).map(|()| json!({}))
    }
}

impl Serve for Api {
    fn framing(&self) -> Framing {
        Framing::Whole
    }

    fn answer(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let answer = match self.respond(request) {
            Ok(value) => json!({ "return": value }),
            Err(error) => json!({ "error": { "desc": error } }),
        };
        Ok(serde_json::to_vec(&answer)?)
    }
}
