//! System calls and their values.

use super::super::ast::{Expr, Spanned};
use super::{call, message, nodes, value};

fn word(name: &str) -> Expr {
    Expr::Word(name.to_owned())
}

/// The value in a box with its place, without the place.
fn inner(boxed: Spanned<Expr>) -> Expr {
    boxed.node
}

#[test]
fn every_part_of_a_call() {
    let call = call("+.1...0.25 read(3, ..., 10) = -1 EAGAIN (Resource temporarily unavailable)");
    assert_eq!(call.end, Some(250_000));
    assert_eq!(call.name.node, "read");
    assert_eq!(nodes(call.arguments), [Expr::Integer(3), Expr::Ellipsis, Expr::Integer(10)]);
    assert_eq!(call.result.node, Expr::Integer(-1));
    assert_eq!(call.errno.map(|errno| errno.node).as_deref(), Some("EAGAIN"));
    assert_eq!(call.note.as_deref(), Some("Resource temporarily unavailable"));
}

#[test]
fn notes_need_no_error() {
    let flags = call("0 fcntl(4, F_GETFL) = 0x2 (flags O_RDWR)");
    assert_eq!((flags.errno, flags.note.as_deref()), (None, Some("flags O_RDWR")));
    assert_eq!(call("0 fcntl(4, F_GETFL) = O_RDWR|O_NONBLOCK").note, None);
    assert!(message("0 f() = 0 ()").contains("expected a word"));
    assert!(message("0 f() = 0 (a").contains("a word or `)`"));
    assert!(message("0 f() = -1 EAGAIN").contains("behind the error `EAGAIN`"));
    assert!(message("0 f()").contains("expected `=` and what `f` returns"));
    assert!(message("0 f = 0").contains("expected `(`"));
    assert!(message("0 f(1 2) = 0").contains("expected `,` or `)`"));
    assert!(message("0 f(1,) = 0").contains("expected a value"));
}

#[test]
fn plain_values() {
    assert_eq!(value("-7"), Expr::Integer(-7));
    assert_eq!(value("0x7fff"), Expr::Integer(0x7fff));
    assert_eq!(value("0xffffffffffffffff"), Expr::Integer(-1));
    assert_eq!(value("..."), Expr::Ellipsis);
    assert_eq!(value("SOCK_STREAM"), word("SOCK_STREAM"));
    assert_eq!(value("[]"), Expr::List(Vec::new()));
    assert!(message("0 f(9223372036854775808) = 0").contains("64 bits"));
    assert!(message("0 f(0x10000000000000000) = 0").contains("64 bits"));
    assert!(message("0 f(1.5) = 0").contains("expected a value"));
    assert!(message("0 f({}) = 0").contains("a value between the braces"));
}

#[test]
fn strings() {
    assert_eq!(
        value(r#""a\\\"\f\n\r\t\v\x41" "b""#),
        Expr::String(b"a\\\"\x0c\n\r\t\x0bAb".to_vec())
    );
    assert_eq!(value("\"GET\"..."), Expr::StringPrefix(b"GET".to_vec()));
    assert_eq!(value("\"é\""), Expr::String("é".as_bytes().to_vec()));
    assert!(message(r#"0 f("\q") = 0"#).contains("no meaning"));
    assert!(message(r#"0 f("\xg0") = 0"#).contains("two hexadecimal digits"));
    assert!(message(r#"0 f("\x4") = 0"#).contains("two hexadecimal digits"));
    assert!(message(r#"0 f("\é") = 0"#).contains("no meaning"));
    assert!(message(r#"0 f("\xé") = 0"#).contains("two hexadecimal digits"));
}

#[test]
fn joined_and_assigned() {
    let Expr::Or(left, right) = value("A | 2|C") else { panic!("no `|`") };
    assert_eq!(right.node, word("C"));
    let Expr::Or(first, second) = left.node else { panic!("no `|`") };
    assert_eq!((first.node, second.node), (word("A"), Expr::Integer(2)));
    let Expr::Assign(name, assigned) = value("tcpi_state = A|B") else { panic!("no `=`") };
    assert_eq!(name, "tcpi_state");
    assert!(matches!(assigned.node, Expr::Or(..)));
    assert!(message(&format!("0 f(1{}) = 0", "|1".repeat(100_000))).contains("at most 32 values"));
    assert!(message(&format!("0 f({}1) = 0", "a=".repeat(100_000))).contains("at most 32 deep"));
    assert!(message(&format!("0 f({}) = 0", "[{".repeat(100_000))).contains("at most 32 deep"));
}

#[test]
fn addresses() {
    assert_eq!(
        value("inet_addr(\"192.0.2.1\")"),
        Expr::Address("192.0.2.1".parse().expect("an address"))
    );
    assert_eq!(
        value("inet6_addr(\"2001:db8::1\")"),
        Expr::Address("2001:db8::1".parse().expect("an address"))
    );
    assert!(message("0 f(inet_addr(\"2001:db8::1\")) = 0").contains("expected an IPv4 address"));
    assert!(message("0 f(inet6_addr(\"x\")) = 0").contains("expected an IPv6 address"));
    let text =
        "{sa_family = AF_INET6, sin_port = htons(80), sin_addr = inet_addr(\"2001:db8::1\")}";
    assert_eq!(
        value(text),
        Expr::SocketAddress {
            family: "AF_INET6".to_owned(),
            port: 80,
            address: "2001:db8::1".parse().expect("an address"),
        }
    );
    assert!(message(&format!("0 f({}) = 0", text.replace("INET6", "INET"))).contains("AF_INET"));
    assert!(message(&format!("0 f({}) = 0", text.replace("AF_", "X"))).contains("found `XINET6`"));
    assert!(message(&format!("0 f({}) = 0", text.replace("80", "70000"))).contains("to 65535"));
}

#[test]
fn messages_and_their_parts() {
    let text = "{msg_name(...)=..., msg_iov(2)=[{..., 10}, {..., 20}], msg_flags=MSG_EOR, \
                msg_control=[{cmsg_level=SOL_SOCKET, cmsg_type=SO_MARK, cmsg_data=[1]}]}";
    let Expr::Message(message) = value(text) else { panic!("no message") };
    assert_eq!(message.iov_count.node, 2);
    assert_eq!(nodes(message.iov), [Expr::Iovec(10), Expr::Iovec(20)]);
    assert_eq!(message.flags.node, word("MSG_EOR"));
    let mut control = nodes(message.control);
    let Some(Expr::ControlMessage { level, kind, data }) = control.pop() else {
        panic!("no control message")
    };
    assert_eq!(inner(*level), word("SOL_SOCKET"));
    assert_eq!(inner(*kind), word("SO_MARK"));
    assert!(matches!(data.node, Expr::List(_)));
    let bare = value("{msg_name(...)=..., msg_iov(1)=[{..., 1}], msg_flags=0}");
    assert!(matches!(bare, Expr::Message(message) if message.control.is_empty()));
}

#[test]
fn ancillary_values() {
    assert_eq!(
        value("{scm_sec=0,scm_nsec=20000000}"),
        Expr::ScmTimestamping { sec: 0, nsec: 20_000_000 }
    );
    let Expr::ExtendedError(parts) = value(
        "{ee_errno=0, ee_origin=SO_EE_ORIGIN_ZEROCOPY, ee_type=1, ee_code=0, ee_info=0, ee_data=3}",
    ) else {
        panic!("no error")
    };
    let parts = nodes(parts.to_vec());
    assert_eq!(parts[1], word("SO_EE_ORIGIN_ZEROCOPY"));
    assert_eq!(parts[5], Expr::Integer(3));
}

#[test]
fn other_structures() {
    assert_eq!(value("{onoff=1, linger=0}"), Expr::Linger { onoff: 1, linger: 0 });
    let Expr::PollFd { fd, events, revents } = value("{fd=4, events=POLLIN|POLLOUT, revents=0}")
    else {
        panic!("no pollfd")
    };
    assert_eq!(inner(*fd), Expr::Integer(4));
    assert!(matches!(events.node, Expr::Or(..)));
    assert_eq!(revents.map(|revents| revents.node), Some(Expr::Integer(0)));
    assert!(matches!(value("{fd=4, events=0}"), Expr::PollFd { revents: None, .. }));
    for field in ["fd", "ptr", "u32", "u64"] {
        let Expr::EpollEvent { data, .. } = value(&format!("{{events=EPOLLIN, {field}=4}}")) else {
            panic!("no event")
        };
        assert_eq!(inner(*data), Expr::Integer(4));
    }
    assert!(message("0 f({events=0, x=1}) = 0").contains("`fd`, `ptr`, `u32` or `u64`"));
    assert!(message("0 f({onoff=1}) = 0").contains("expected `,`"));
}

#[test]
fn braces_that_are_no_structure() {
    assert_eq!(value("{..., 1000}"), Expr::Iovec(1000));
    assert!(matches!(value("{..., 0x10}"), Expr::Braces(values) if values.len() == 2));
    assert!(matches!(value("{a=1, b=2}"), Expr::Braces(values) if values.len() == 2));
    assert!(message("0 f({flags 0x1}) = 0").contains("not supported"));
    assert!(message("0 f({(label 0, tc 0, ttl 0)}) = 0").contains("not supported"));
}
