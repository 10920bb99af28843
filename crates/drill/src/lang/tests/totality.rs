//! Any text is read or refused, and refusing it can be told.

use proptest::prelude::*;

use super::super::{Defines, parse};

/// Pieces that scripts are made of, so that random ones get past the first token.
const PIECES: [&str; 66] = [
    "0 ",
    "+0 ",
    "+.1 ",
    "* ",
    "1~2 ",
    "+.1~+.2 ",
    "> ",
    "< ",
    "S. ",
    "SEW ",
    ". ",
    "- ",
    ".5 ",
    "1:1(0) ",
    "1:1001(1000) ",
    "ack 1 ",
    "win 257 ",
    "urg 3 ",
    "<...> ",
    "<mss 1460> ",
    "<nop,nop,sack 1:2 3:4> ",
    "<FO 00112233,nop,nop> ",
    "<",
    ">",
    "mss ",
    "nop,",
    "TS val 1 ecr 2",
    "(ect0) ",
    "[ce] ",
    "(tos 0x2, flowlabel 0x1) ",
    "icmp unreachable ",
    "mtu 1200 ",
    "[1:11(10)] ",
    "udp (10) ",
    "ipv4 192.0.2.1 > 192.0.2.2: ",
    "ipv6 2001:db8::1 > ::1: ",
    "gre: ",
    "mpls (label 0): ",
    "encap psp spi 1 ",
    "read(3, ..., 10) ",
    "f(",
    ") ",
    "= ",
    "= 0 ",
    "-1 EAGAIN (no data) ",
    "...0.5 ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "| ",
    "a=",
    "\"x\\n\"",
    "\"",
    "`ls` ",
    "`",
    "%{ assert a }% ",
    "%{",
    "// x\n",
    "/* x */",
    "/*",
    "--mss=1000 ",
    "{msg_name(...)=..., msg_iov(1)=[{..., 1}], msg_flags=0}",
    "inet_addr(\"192.0.2.1\")",
    "é",
];

fn total(text: &str) {
    let mut defines = Defines::new();
    defines.set("A", "\"a");
    defines.set("f", "\"\\x\"");
    defines.set("read", "7");
    for defines in [Defines::new(), defines] {
        match parse(text, &defines) {
            Ok(script) => {
                for event in &script.events {
                    assert!(text.get(event.time.span.clone()).is_some());
                    assert!(text.get(event.action.span.clone()).is_some());
                }
            }
            Err(told) => {
                assert!(text.get(told.span.clone()).is_some(), "{told:?}");
                assert!(!told.render("x.pkt", text).is_empty());
            }
        }
    }
}

proptest! {
    #[test]
    fn any_text(text in ".{0,80}") {
        total(&text);
    }

    #[test]
    fn any_bytes_that_scripts_use(text in "[-+*~0-9a-fx.:<>(){}\\[\\]\"`%/\\\\,=| \n]{0,120}") {
        total(&text);
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(0..PIECES.len(), 0..40)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        total(&text);
    }
}

#[test]
fn long_texts_of_one_piece() {
    for piece in PIECES {
        total(&piece.repeat(2_000));
        total(&format!("0 f({}", piece.repeat(2_000)));
        total(&format!("0 > . 1:1(0) <{}", piece.repeat(2_000)));
    }
}
