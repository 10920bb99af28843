//! The reader of a client's first bytes under arbitrary ones.
//!
//! Oracles: nothing panics; once it has an answer, more bytes do not change it; a name is one that
//! the bytes hold.

use plimsoll_gateway::rules::hello::{Hello, read};

/// Reads the bytes, and each front of them.
pub fn run(bytes: &[u8]) {
    let whole = read(bytes);
    let mut found = Hello::Incomplete;
    for end in 0..=bytes.len().min(1024) {
        let now = read(&bytes[..end]);
        assert!(found == Hello::Incomplete || found == now, "{found:?} became {now:?}");
        found = now;
    }
    if found != Hello::Incomplete {
        assert_eq!(found, whole, "it depends on what follows");
    }
    if let Hello::Name(name) = whole {
        let mut rest = name.bytes();
        let mut wanted = rest.next();
        // Heads of records may be between its letters.
        for byte in bytes {
            if wanted == Some(byte.to_ascii_lowercase()) {
                wanted = rest.next();
            }
        }
        assert_eq!(wanted, None, "{name} is not in the bytes");
    }
}
