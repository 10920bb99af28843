//! quinn's own tests, on our UDP sockets.
//!
//! quinn takes any socket that is a `quinn::AsyncUdpSocket`, and its own tests say what it expects
//! of one. They are those of the version that our feature `quinn` uses. One of the two files is
//! part of quinn's crate: it becomes a test from outside, which it can be since it uses nothing
//! that is private. Endpoints and the sockets that they are made of are stand-ins.

use super::project::Project;

pub(crate) const QUINN: Project = Project {
    name: "quinn",
    manifest: MANIFEST,
    library: include_str!("quinn_shim.txt"),
    files: &["src/tests.rs", "tests/many_connections.rs"],
    prefixes: &[""],
    not_run: &["post_quantum.rs"],
    excluded: &[],
    replacements: &[
        ("SocketAddr, UdpSocket}", "SocketAddr}"),
        (
            "use crate::runtime::TokioRuntime;",
            "use outside::{Endpoint, UdpSocket};\nuse quinn::TokioRuntime;",
        ),
        ("use crate::{Duration, Instant};", "use std::time::{Duration, Instant};"),
        (
            "use super::{ClientConfig, Endpoint, EndpointConfig",
            "use quinn::{ClientConfig, EndpointConfig",
        ),
        ("quinn::Endpoint::server(", "outside::Endpoint::server("),
        ("crate::", "quinn::"),
    ],
    end: "",
    // quinn ignores its slow tests. Some tests bound the time of a handshake, so they run one after
    // the other.
    words: &["--", "--include-ignored", "--test-threads=1"],
};

const MANIFEST: &str = r#"
[features]
default = ["rustls-ring"]
rustls-ring = []
rustls-aws-lc-rs = []

[dependencies]
plimsoll = { path = "PLIMSOLL", features = ["quinn"] }
quinn = { version = "0.11", default-features = false, features = ["runtime-tokio", "rustls-ring"] }

[dev-dependencies]
bytes = "1"
crc = "3"
proto = { package = "quinn-proto", version = "0.11", default-features = false }
rand = "0.10"
rcgen = { version = "0.14", default-features = false, features = ["crypto", "pem", "ring"] }
rustls = { version = "0.23", default-features = false, features = ["std"] }
tokio = { version = "1", features = ["full"] }
tracing = "0.1"
tracing-futures = { version = "0.2", default-features = false, features = ["std-future"] }
tracing-subscriber = { version = "0.3", default-features = false, features = ["env-filter", "fmt"] }
"#;
