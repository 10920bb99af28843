//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crate::ask::Question;
use crate::sys::ethtool::Feature;
use crate::sys::rings::Version;
use crate::sys::uring::Mode;
use crate::sys::xdp::Hook;
use crate::tun::{Napi, Wait};

const USAGE: &str = "usage: peer-devices answer WAY DEVICE ADDRESS SECONDS
       peer-devices ask ADDRESS:PORT SIZE FLOWS SECONDS BUSY-POLL
       peer-devices feature DEVICE tx-checksum|gro on|off";

/// What this program is to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Answer(Answer),
    Ask(Question),
    Feature { device: String, feature: Feature, on: bool },
}

/// A server.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) way: Way,
    pub(crate) device: String,
    /// Of the server; a matter of the kernel's own sockets only.
    pub(crate) address: IpAddr,
    /// How long the sink counts.
    pub(crate) limit: Duration,
}

/// How packets get from the device to this program and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The kernel answers by itself: sockets.
    Kernel,
    Tun(Wait, Napi),
    Tap(Napi),
    /// TUN by io_uring.
    Uring(Mode),
    /// AF_PACKET by calls.
    Packet,
    /// AF_PACKET with memory that is shared.
    PacketRings(Version),
    /// AF_XDP.
    Xdp(Hook),
}

/// All ways by their names.
const WAYS: [(&str, Way); 16] = [
    ("kernel", Way::Kernel),
    ("tun-read", Way::Tun(Wait::Read, Napi::Off)),
    ("tun-poll", Way::Tun(Wait::Poll, Napi::Off)),
    ("tun-spin", Way::Tun(Wait::Spin, Napi::Off)),
    ("tun-napi", Way::Tun(Wait::Poll, Napi::Softirq)),
    ("tun-napi-thread", Way::Tun(Wait::Poll, Napi::Thread)),
    ("tap", Way::Tap(Napi::Off)),
    ("tap-napi-frags", Way::Tap(Napi::Fragments)),
    ("uring-pair", Way::Uring(Mode::Pair)),
    ("uring-multishot", Way::Uring(Mode::Multishot)),
    ("uring-sqpoll", Way::Uring(Mode::Sqpoll)),
    ("packet", Way::Packet),
    ("packet-rings-v2", Way::PacketRings(Version::V2)),
    ("packet-rings-v3", Way::PacketRings(Version::V3)),
    ("xdp-generic", Way::Xdp(Hook::Generic)),
    ("xdp-native", Way::Xdp(Hook::Native)),
];

impl Command {
    /// Of the words behind the program's name.
    pub(crate) fn parse(words: &[String]) -> Result<Command, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["answer", way, device, address, limit] => Ok(Command::Answer(Answer {
                way: named(way, &WAYS)?,
                device: (*device).to_owned(),
                address: parsed(address)?,
                limit: seconds(limit)?,
            })),
            ["ask", to, size, flows, limit, busy_poll] => Ok(Command::Ask(Question {
                to: parsed::<SocketAddr>(to)?,
                size: parsed(size)?,
                flows: parsed(flows)?,
                limit: seconds(limit)?,
                busy_poll: parsed(busy_poll)?,
            })),
            ["feature", device, feature, state] => Ok(Command::Feature {
                device: (*device).to_owned(),
                feature: named(
                    feature,
                    &[("tx-checksum", Feature::TxChecksum), ("gro", Feature::Gro)],
                )?,
                on: named(state, &[("on", true), ("off", false)])?,
            }),
            _ => Err(USAGE.to_owned()),
        }
    }
}

fn parsed<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` makes no sense\n{USAGE}"))
}

fn seconds(word: &str) -> Result<Duration, String> {
    let seconds = Duration::try_from_secs_f64(parsed(word)?);
    seconds.map_err(|_| format!("`{word}` is no time\n{USAGE}"))
}

fn named<T: Copy>(word: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("there is no `{word}`; there are: {}", names.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn commands() {
        let Ok(Command::Answer(answer)) = parse("answer tun-napi plim0 192.0.2.2 0.25") else {
            panic!("it is a command");
        };
        assert_eq!(answer.way, Way::Tun(Wait::Poll, Napi::Softirq));
        assert_eq!((&*answer.device, answer.limit), ("plim0", Duration::from_millis(250)));
        let Ok(Command::Ask(question)) = parse("ask 192.0.2.2:7 64 20 1 50") else {
            panic!("it is a command");
        };
        assert_eq!((question.size, question.flows, question.busy_poll), (64, 20, 50));
        let feature = Feature::Gro;
        let gro = Command::Feature { device: "v0".into(), feature, on: true };
        assert_eq!(parse("feature v0 gro on").unwrap(), gro);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in [
            "",
            "answer",
            "answer raw plim0 192.0.2.2 1",
            "answer packet v1 here 1",
            "answer packet v1 192.0.2.2 -1",
            "ask 192.0.2.2 64 1 1 0",
            "feature v0 gro maybe",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("answer raw plim0 192.0.2.2 1").unwrap_err().contains("tun-poll"));
    }

    #[test]
    fn ways_have_names_of_their_own() {
        for (place, (name, way)) in WAYS.iter().enumerate() {
            let before = &WAYS[..place];
            assert!(before.iter().all(|(other, of)| other != name && of != way), "{name}");
        }
    }
}
