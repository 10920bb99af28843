//! The gateway's name server under arbitrary messages.
//!
//! Oracles: nothing panics; an answer has the query's identifier, reads as a response, and asks for
//! no answer; a name is kept only for an address that the message holds.

use std::net::IpAddr;
use std::time::Instant;

use plimsoll_gateway::names::{Names, Treatment};

/// Reads the bytes as a query and as a response.
pub fn run(bytes: &[u8]) {
    let network = "10.0.2.0/24".parse().expect("a network");
    let names = Names::new(network);
    match names.treat(bytes) {
        Treatment::Answer(answer) => {
            assert_eq!(answer[..2], bytes[..2], "the identifier");
            assert_eq!(names.treat(&answer), Treatment::Drop, "a response is no query");
        }
        Treatment::Forward => assert!(bytes.len() >= 12, "shorter than a header"),
        Treatment::Drop => {}
    }
    let now = Instant::now();
    names.learn(bytes, now);
    for octets in bytes.windows(4) {
        let octets: [u8; 4] = octets.try_into().expect("four bytes");
        if let Some(name) = names.name_of(octets.into(), now) {
            assert_eq!(name, name.to_ascii_lowercase());
        }
    }
    // An address that the message does not hold has no name.
    let absent = (0..=u8::MAX).find(|byte| !bytes.contains(byte));
    if let Some(byte) = absent {
        assert_eq!(names.name_of(IpAddr::from([byte; 4]), now), None);
    }
}
