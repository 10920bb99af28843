//! Scripts.
//!
//! Arbitrary text hardly ever gets past its first token, so an input is a list of pieces: words
//! and phrases of the language, numbers, and here and there some text as it comes.
//!
//! Oracles: no panic; what is refused is refused with a message about a place in the text. What is
//! read is run on the embedded stack as well, where time and memory are bounded.

use std::fmt::Write as _;

use arbitrary::Arbitrary;
use plimsoll_drill::lang::{Defines, parse};
use plimsoll_drill::suite::{Options, run_text};

/// Pieces of one input that are used; the rest is ignored.
const MAX_PIECES: usize = 512;

/// A piece of a script.
#[derive(Arbitrary, Clone, Debug)]
pub enum Piece<'a> {
    /// One of the words and phrases of the table.
    Phrase(u8),
    /// A time and a whole event that is right as far as it goes.
    Event(u8, u16),
    /// A number.
    Number(i32),
    /// Any text.
    Text(&'a str),
}

/// One input.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input<'a> {
    /// Whether words have other meanings.
    pub defines: bool,
    /// The script.
    pub pieces: Vec<Piece<'a>>,
}

/// Words and phrases.
const PHRASES: &[&str] = &[
    " ",
    "\n",
    "+",
    "*",
    "~",
    ".",
    "...",
    ",",
    ":",
    "=",
    "|",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "\"",
    "`",
    "//",
    "/*",
    "*/",
    "%{",
    "}%",
    "0x1f ",
    "--mss=",
    "--define=f=",
    "S. ",
    "FP. ",
    "SEW ",
    ".5 ",
    "1:1(0) ",
    "1:11(10) ",
    "ack ",
    "win ",
    "urg ",
    "<...>",
    "<mss 1460>",
    "nop,",
    "eol,",
    "sackOK,",
    "sack 1:2 3:4 ",
    "TS val 1 ecr 2,",
    "wscale 7,",
    "md5 00",
    "FO ",
    "FOEXP 0011 ",
    "ECN e0b 1 ceb 2 e1b 3 ",
    "(ect0) ",
    "[ect01] ",
    "(tos 0x2, flowlabel 0x1) ",
    "(ttl 3) ",
    "icmp unreachable frag_needed ",
    "mtu 1200 ",
    "id 7 ",
    "[udp (10)] ",
    "[raw (3)] ",
    "udp ",
    "ipv4 192.0.2.1 > 192.0.2.2: ",
    "ipv6 2001:db8::1 > 2001:db8::2: ",
    "gre: ",
    "mpls (label 0",
    "encap psp spi 1 ",
    "{msg_name(...)=..., msg_iov(1)=[{..., 1}], msg_flags=0",
    "msg_control=[",
    "{sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr(\"192.0.2.1\")}",
    "{fd=4, events=POLLIN, revents=0}",
    "{events=EPOLLIN, fd=4}",
    "{onoff=1, linger=0}",
    "{cmsg_level=1, cmsg_type=2, cmsg_data=[3]}",
    "{scm_sec=0, scm_nsec=1}",
    "{ee_errno=0, ee_origin=1, ee_type=2, ee_code=3, ee_info=4, ee_data=5}",
    "inet6_addr(\"2001:db8::1\")",
    "-1 EAGAIN (no data)",
    "\\x41",
    "\\n",
    "f(",
];

/// Events.
const EVENTS: &[&str] = &[
    "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n",
    "bind(3, ..., ...) = 0\n",
    "listen(3, 1) = 0\n",
    "connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)\n",
    "accept(3, ..., ...) = 4\n",
    "write(4, ..., 1000) = 1000\n",
    "read(4, ..., 1000) = 0\n",
    "close(4) = 0\n",
    "< S 0:0(0) win 65535 <mss 1460,sackOK,nop,nop,nop,wscale 7>\n",
    "> S. 0:0(0) ack 1 <...>\n",
    "< . 1:1(0) ack 1 win 257\n",
    "> P. 1:1001(1000) ack 1\n",
    "< F. 1:1(0) ack 1001 win 257\n",
    "< R. 1:1(0) ack 1 win 257\n",
    "%{ assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd }%\n",
    "`sysctl -q net.ipv4.tcp_sack=0`\n",
];

impl Input<'_> {
    /// The script as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for piece in self.pieces.iter().take(MAX_PIECES) {
            match *piece {
                Piece::Phrase(which) => text.push_str(PHRASES[usize::from(which) % PHRASES.len()]),
                Piece::Event(which, millis) => {
                    let event = EVENTS[usize::from(which) % EVENTS.len()];
                    let _ = write!(text, "+{}.{:03} {event}", millis / 1000, millis % 1000);
                }
                Piece::Number(number) => {
                    let _ = write!(text, "{number} ");
                }
                Piece::Text(piece) => text.push_str(piece),
            }
        }
        text
    }
}

/// Reads one script, and runs it.
pub fn run(input: &Input<'_>) {
    let text = input.text();
    let mut defines = Defines::new();
    if input.defines {
        defines.set("f", "\"\\x4");
        defines.set("socket", "\"\\x4\"");
        defines.set("EAGAIN", "`true`");
        defines.set("listen", "-3");
    }
    if let Err(told) = parse(&text, &defines) {
        assert!(text.get(told.span.clone()).is_some(), "{told:?}");
        assert!(!told.render("fuzz.pkt", &text).is_empty());
        return;
    }
    let mut options = Options::default();
    if input.defines {
        let define = |value: &str| ("define".to_owned(), Some(value.to_owned()));
        options.options.extend([define("f=\"\\x4"), define("listen=-3")]);
    }
    let report = run_text("fuzz.pkt", &text, None, &options);
    assert_eq!(report.cause.is_none(), report.text.is_empty(), "{report:?}");
}
