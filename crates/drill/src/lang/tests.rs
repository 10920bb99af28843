//! Tests of the language.

mod calls;
mod messages;
mod packets;
mod scripts;
mod totality;

use super::ast::{Action, Call, Event, Expr, Packet, PacketBody, Script, Spanned, Tcp};
use super::{Defines, parse};

/// A script that must be right.
fn script(text: &str) -> Script {
    match parse(text, &Defines::new()) {
        Ok(script) => script,
        Err(told) => panic!("{}", told.render("test.pkt", text)),
    }
}

/// The message about a script that must be wrong.
fn message(text: &str) -> String {
    match parse(text, &Defines::new()) {
        Ok(script) => panic!("this is not wrong: {script:#?}"),
        Err(told) => told.message,
    }
}

/// The only event of a script.
fn event(text: &str) -> Event {
    let mut events = script(text).events;
    assert_eq!(events.len(), 1, "{text}");
    events.remove(0)
}

fn packet(text: &str) -> Packet {
    match event(text).action.node {
        Action::Packet(packet) => packet,
        other => panic!("no packet: {other:?}"),
    }
}

fn tcp(text: &str) -> Tcp {
    match packet(text).body {
        PacketBody::Tcp(tcp) => tcp,
        other => panic!("no TCP: {other:?}"),
    }
}

fn call(text: &str) -> Call {
    match event(text).action.node {
        Action::Call(call) => call,
        other => panic!("no call: {other:?}"),
    }
}

/// A value, as the only argument of a call.
fn value(text: &str) -> Expr {
    let mut arguments = call(&format!("0 f({text}) = 0")).arguments;
    assert_eq!(arguments.len(), 1, "{text}");
    arguments.remove(0).node
}

/// Values without their places.
fn nodes(values: Vec<Spanned<Expr>>) -> Vec<Expr> {
    values.into_iter().map(|value| value.node).collect()
}
