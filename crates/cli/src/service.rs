//! The services that `plimsoll serve` offers, as they are written on the command line.

use std::path::PathBuf;

use crate::units;

/// One service: what it does, and on which port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// The port it listens on.
    pub port: u16,
    /// How the service treats a connection.
    pub kind: Kind,
}

/// How a service treats a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads and forgets (RFC 863).
    Discard {
        /// By reference.
        shared: bool,
    },
    /// Writes without end, `write_size` bytes at a time (RFC 864).
    Chargen {
        /// Bytes of one write.
        write_size: usize,
    },
    /// Sends back what it reads (RFC 862).
    Echo,
    /// Answers each request with a response; TCP_NODELAY is set.
    RequestResponse {
        /// Bytes of a request.
        request: usize,
        /// Bytes of a response.
        response: usize,
    },
    /// Serves the files below a directory over HTTP/1.1.
    Http {
        /// The directory.
        root: PathBuf,
    },
}

impl Kind {
    /// The name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Discard { .. } => "discard",
            Kind::Chargen { .. } => "chargen",
            Kind::Echo => "echo",
            Kind::RequestResponse { .. } => "rr",
            Kind::Http { .. } => "http",
        }
    }
}

/// Bytes of one chargen write unless the service says otherwise.
const CHARGEN_WRITE_SIZE: usize = 16384;

/// The end of every error message about a service.
const KNOWN: &str = "known services: discard:PORT[:shared], chargen:PORT[:WRITE_SIZE], echo:PORT, \
                     rr:PORT:REQ[:RESP], http:PORT:DIR";

impl std::str::FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Service, String> {
        let mut parts = text.splitn(3, ':');
        let name = parts.next().unwrap_or_default();
        let known = ["discard", "chargen", "echo", "rr", "http"].contains(&name);
        if !known {
            return Err(format!("unknown service '{name}'; {KNOWN}"));
        }
        let port = match parts.next() {
            None => return Err(format!("'{text}' has no port; {KNOWN}")),
            Some(port) => port
                .parse::<u16>()
                .ok()
                .filter(|&port| port != 0)
                .ok_or_else(|| format!("'{port}' is not a port from 1 to 65535"))?,
        };
        let kind = kind(name, parts.next()).map_err(|why| format!("{name}: {why}"))?;
        Ok(Service { port, kind })
    }
}

fn kind(name: &str, rest: Option<&str>) -> Result<Kind, String> {
    match (name, rest) {
        ("discard", None) => Ok(Kind::Discard { shared: false }),
        ("discard", Some("shared")) => Ok(Kind::Discard { shared: true }),
        ("echo", None) => Ok(Kind::Echo),
        ("chargen", None) => Ok(Kind::Chargen { write_size: CHARGEN_WRITE_SIZE }),
        ("chargen", Some(size)) => Ok(Kind::Chargen { write_size: units::buffer_size(size)? }),
        ("rr", Some(sizes)) => {
            let (request, response) = sizes.split_once(':').unwrap_or((sizes, sizes));
            Ok(Kind::RequestResponse {
                request: units::buffer_size(request)?,
                response: units::buffer_size(response)?,
            })
        }
        ("rr", None) => {
            Err("the request size is missing; try rr:7000:1 or rr:7000:128:8192".into())
        }
        ("http", Some(root)) if !root.is_empty() => Ok(Kind::Http { root: root.into() }),
        ("http", _) => Err("the directory is missing; try http:80:/srv/www".into()),
        (_, Some(rest)) => Err(format!("'{rest}' is not understood here; {KNOWN}")),
        (_, None) => Err(KNOWN.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Service, String> {
        text.parse()
    }

    #[test]
    fn all_kinds() {
        assert_eq!(parse("discard:9").unwrap().kind, Kind::Discard { shared: false });
        assert_eq!(parse("discard:9:shared").unwrap().kind, Kind::Discard { shared: true });
        assert_eq!(parse("echo:7").unwrap(), Service { port: 7, kind: Kind::Echo });
        assert_eq!(parse("chargen:19").unwrap().kind, Kind::Chargen { write_size: 16384 });
        assert_eq!(parse("chargen:19:128").unwrap().kind, Kind::Chargen { write_size: 128 });
        let rr = |request, response| Kind::RequestResponse { request, response };
        assert_eq!(parse("rr:7000:1").unwrap().kind, rr(1, 1));
        assert_eq!(parse("rr:7000:128:8K").unwrap().kind, rr(128, 8192));
        assert_eq!(parse("http:80:/srv/a:b").unwrap().kind, Kind::Http { root: "/srv/a:b".into() });
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, part) in [
            ("ftp:21", "known services"),
            ("echo", "has no port"),
            ("echo:0", "not a port"),
            ("echo:70000", "not a port"),
            ("rr:7000", "rr:7000:1"),
            ("http:80", "directory is missing"),
            ("echo:7:x", "not understood"),
            ("chargen:19:0", "at least 1 byte"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
