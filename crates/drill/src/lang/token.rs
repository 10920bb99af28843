//! Tokens.

use super::ast::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits and underscores that are not a number.
    Word,
    /// `12`, `-1`
    Integer,
    /// `0x1f`
    Hex,
    /// `1.5`, `.01`
    Decimal,
    /// `"..."`; the text is what is between the quotes, escapes and all.
    String,
    /// `` `...` ``; the text is what is between the quotes.
    Shell,
    /// `%{ ... }%`; the text is what is between, without blanks at either end.
    Code,
    /// `192.0.2.1`
    Ipv4,
    /// `2001:db8::1`
    Ipv6,
    /// `--name`; the text is the name.
    Option,
    /// `...`
    Ellipsis,
    /// Any other character.
    Sign,
    /// Behind the last one.
    End,
}

/// A piece of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    /// What it is.
    pub(super) kind: Kind,
    /// What it says.
    pub(super) text: &'a str,
    /// First byte.
    pub(super) start: usize,
    /// One behind the last byte.
    pub(super) end: usize,
}

impl Token<'_> {
    /// Where it is.
    pub(super) fn span(&self) -> Span {
        self.start..self.end
    }

    /// Whether it is this character.
    pub(super) fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign && self.text.starts_with(sign)
    }

    /// Whether it is this word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    /// How to call it in a message.
    pub(super) fn describe(&self) -> String {
        let mut start: String = self.text.chars().take(40).collect();
        if start.len() < self.text.len() {
            start.push_str("...");
        }
        let start = start.escape_debug();
        match self.kind {
            Kind::End => "the end of the script".to_owned(),
            Kind::String => format!("the string \"{start}\""),
            Kind::Shell => format!("the shell line `{start}`"),
            Kind::Code => "a block of code".to_owned(),
            Kind::Option => format!("the option `--{start}`"),
            _ => format!("`{start}`"),
        }
    }
}

/// Whether the language reserves a word, so that a define cannot give it another meaning.
pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word).is_ok()
}

/// The reserved words, sorted.
const KEYWORDS: [&str; 80] = [
    "ECN",
    "FO",
    "FOEXP",
    "Flags",
    "GREv0",
    "TS",
    "ack",
    "ce",
    "ceb",
    "checksum",
    "cmsg_data",
    "cmsg_level",
    "cmsg_type",
    "e0b",
    "e1b",
    "ecr",
    "ect0",
    "ect01",
    "ect1",
    "ee_code",
    "ee_data",
    "ee_errno",
    "ee_info",
    "ee_origin",
    "ee_type",
    "encap",
    "eol",
    "events",
    "fd",
    "flags",
    "flowlabel",
    "gre",
    "htons",
    "icmp",
    "id",
    "inet6_addr",
    "inet_addr",
    "ipv4",
    "ipv6",
    "key",
    "label",
    "linger",
    "md5",
    "mpls",
    "msg_control",
    "msg_flags",
    "msg_iov",
    "msg_name",
    "mss",
    "mtu",
    "noecn",
    "none",
    "nop",
    "off",
    "onoff",
    "present",
    "psp",
    "ptr",
    "raw",
    "revents",
    "sa_family",
    "sack",
    "sackOK",
    "scm_nsec",
    "scm_sec",
    "seq",
    "sin_addr",
    "sin_port",
    "spi",
    "sum",
    "tc",
    "tos",
    "ttl",
    "u32",
    "u64",
    "udp",
    "urg",
    "val",
    "win",
    "wscale",
];
