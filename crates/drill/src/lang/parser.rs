//! Puts the tokens of a script together.
//!
//! The language can be read from the left with a look at the next token or two, so that there is
//! almost no going back: a parser here first looks whether it is meant and then demands each of
//! its parts, and the first demand that is not met is the error that the user sees.

mod call;
mod expr;
mod ip;
mod packet;
mod structure;
mod tcp_option;

use std::fmt::Display;

use winnow::combinator::{opt, repeat};
use winnow::error::{ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::{Stateful, TokenSlice};
use winnow::token::any;

use super::ast::{Action, Direction, Event, Script, ScriptOption, Span, Spanned, Time};
use super::defines::Defines;
use super::diagnostic::Diagnostic;
use super::lexer::{Lexed, lex};
use super::tag::since;
use super::token::{Kind, Token};

/// What parsers read from.
type Input<'a> = Stateful<TokenSlice<'a, Token<'a>>, State<'a>>;

/// What parsers know besides the tokens.
#[derive(Clone, Copy, Debug)]
struct State<'a> {
    /// The whole script.
    text: &'a str,
    /// How many brackets are open.
    depth: usize,
    /// Where the last token that was taken ends.
    end: usize,
}

/// A failure of a parser; boxed, so that success stays cheap.
#[derive(Clone, Debug)]
struct Fail(Box<Diagnostic>);

type Result<T> = ModalResult<T, Fail>;

impl<'a> ParserError<Input<'a>> for Fail {
    type Inner = Self;

    fn from_input(input: &Input<'a>) -> Self {
        let found = peek(input);
        Self(Box::new(Diagnostic::new(
            found.span(),
            format!("{} is not expected here", found.describe()),
        )))
    }

    fn into_inner(self) -> std::result::Result<Self, Self> {
        Ok(self)
    }
}

/// Reads a script.
///
/// # Errors
/// If it is not one. The diagnostic is about the first place that is wrong.
pub fn parse(text: &str, defines: &Defines) -> std::result::Result<Script, Diagnostic> {
    let Lexed { mut tokens, error } = lex(text);
    let (options, used) = {
        let mut input = stream(text, &tokens);
        let options: Vec<Spanned<ScriptOption>> =
            repeat(0.., option).parse_next(&mut input).map_err(diagnostic)?;
        (options, tokens.len() - input.input.len())
    };
    let defines = &with_options(&options, defines);
    for token in &mut tokens[used..] {
        if token.kind != Kind::Word {
            continue;
        }
        if let Some((kind, value)) = defines.replacement(token.text) {
            (token.kind, token.text) = (kind, value);
        }
    }
    let mut input = stream(text, &tokens[used..]);
    let mut script = match script.parse_next(&mut input) {
        Ok(script) => script,
        Err(fail) => {
            // What could not be cut into tokens looks to the parser like the end of the script.
            let told = diagnostic(fail);
            return Err(error.filter(|error| told.span.start >= error.span.start).unwrap_or(told));
        }
    };
    if let Some(error) = error {
        return Err(error);
    }
    script.options = options;
    script.since = since(text)?;
    Ok(script)
}

fn stream<'a>(text: &'a str, tokens: &'a [Token<'a>]) -> Input<'a> {
    Input { input: TokenSlice::new(tokens), state: State { text, depth: 0, end: 0 } }
}

fn diagnostic(fail: ErrMode<Fail>) -> Diagnostic {
    match fail {
        ErrMode::Backtrack(Fail(told)) | ErrMode::Cut(Fail(told)) => *told,
        ErrMode::Incomplete(_) => Diagnostic::new(0..0, "the script is not complete"),
    }
}

/// The defines that hold: those of the script, and over them those of the caller.
fn with_options(options: &[Spanned<ScriptOption>], defines: &Defines) -> Defines {
    let mut all = Defines::new();
    for option in options.iter().filter(|option| option.node.name == "define") {
        // One that is none is refused with the other options when the script runs.
        let _ = all.define(option.node.value.as_deref().unwrap_or_default());
    }
    all.extend(defines);
    all
}

// ---- pieces that all parsers use

/// The next token.
fn peek<'a>(input: &Input<'a>) -> Token<'a> {
    peek_at(input, 0)
}

/// The token behind so many others.
fn peek_at<'a>(input: &Input<'a>, ahead: usize) -> Token<'a> {
    let end = input.state.text.len();
    let none = Token { kind: Kind::End, text: "", start: end, end };
    input.get(ahead).or(input.last()).copied().unwrap_or(none)
}

/// Takes the next token, whatever it is.
fn take<'a>(input: &mut Input<'a>) -> Result<Token<'a>> {
    let token: &Token<'a> = any.parse_next(input)?;
    input.state.end = token.end;
    Ok(*token)
}

/// A failure that says what was expected in the place of the next token.
fn expected<T>(input: &Input<'_>, what: impl Display) -> Result<T> {
    let found = peek(input);
    wrong(found.span(), format!("expected {what}, found {}", found.describe()))
}

/// A failure at a place.
fn wrong<T>(span: Span, message: impl Into<String>) -> Result<T> {
    refuse(Diagnostic::new(span, message))
}

/// A failure.
fn refuse<T>(diagnostic: Diagnostic) -> Result<T> {
    Err(ErrMode::Cut(Fail(Box::new(diagnostic))))
}

/// Demands a token of a kind.
fn kind<'a>(input: &mut Input<'a>, kind: Kind, what: &str) -> Result<Token<'a>> {
    if peek(input).kind == kind { take(input) } else { expected(input, what) }
}

/// Demands a character.
fn sign(input: &mut Input<'_>, sign: char) -> Result<()> {
    if peek(input).is(sign) { take(input).map(drop) } else { expected(input, Quoted(sign)) }
}

/// Demands a word.
fn word(input: &mut Input<'_>, word: &str) -> Result<()> {
    if peek(input).is_word(word) { take(input).map(drop) } else { expected(input, Quoted(word)) }
}

/// Demands `name =`.
fn field(input: &mut Input<'_>, name: &str) -> Result<()> {
    word(input, name)?;
    sign(input, '=')
}

/// Takes a word if it is the next token.
fn maybe_word(input: &mut Input<'_>, word: &str) -> Result<bool> {
    if peek(input).is_word(word) { take(input).map(|_| true) } else { Ok(false) }
}

/// Takes a character if it is the next token.
fn maybe_sign(input: &mut Input<'_>, sign: char) -> Result<bool> {
    if peek(input).is(sign) { take(input).map(|_| true) } else { Ok(false) }
}

/// Demands a decimal number from 0 to `max`.
fn number<T: TryFrom<i64>>(input: &mut Input<'_>, what: &str, max: u64) -> Result<T> {
    let token = kind(input, Kind::Integer, what)?;
    let value = token.text.parse::<i64>().ok();
    let fits = value.filter(|&value| u64::try_from(value).is_ok_and(|value| value <= max));
    match fits.and_then(|value| T::try_from(value).ok()) {
        Some(value) => Ok(value),
        None => wrong(
            token.span(),
            format!("expected {what} from 0 to {max}, found {}", token.describe()),
        ),
    }
}

/// A 16-bit number.
fn number_u16(input: &mut Input<'_>, what: &str) -> Result<u16> {
    number(input, what, u64::from(u16::MAX))
}

/// A 32-bit number.
fn number_u32(input: &mut Input<'_>, what: &str) -> Result<u32> {
    number(input, what, u64::from(u32::MAX))
}

/// A thing with its place, from its first token to its last.
fn spanned<'a, T>(
    input: &mut Input<'a>,
    parser: impl FnOnce(&mut Input<'a>) -> Result<T>,
) -> Result<Spanned<T>> {
    let start = peek(input).start;
    let node = parser(input)?;
    let end = input.state.end.max(start);
    Ok(Spanned { node, span: start..end })
}

/// Something in a message between back quotes.
struct Quoted<T>(T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

// ---- the script

/// One `--name=value`; goes back if the next token does not begin one.
fn option(input: &mut Input<'_>) -> Result<Spanned<ScriptOption>> {
    if peek(input).kind != Kind::Option {
        return Err(ErrMode::Backtrack(Fail::from_input(input)));
    }
    spanned(input, |input| {
        let name = take(input)?.text.to_owned();
        let value = if maybe_sign(input, '=')? { Some(option_value(input)?) } else { None };
        Ok(ScriptOption { name, value })
    })
}

fn option_value(input: &mut Input<'_>) -> Result<String> {
    use Kind::{Decimal, Hex, Integer, Ipv4, Ipv6, Shell, String, Word};
    let token = peek(input);
    if !matches!(token.kind, Word | Integer | Hex | Decimal | String | Ipv4 | Ipv6) {
        return expected(input, "the value of the option");
    }
    take(input)?;
    if token.kind != Word || !maybe_sign(input, '=')? {
        return Ok(token.text.to_owned());
    }
    // A define, whose value keeps its quotes: they decide what it is.
    let value = peek(input);
    match value.kind {
        Word | Integer | Hex | String | Shell => take(input)?,
        _ => return expected(input, "the value of the define"),
    };
    Ok(format!("{}={}", token.text, &input.state.text[value.span()]))
}

/// Everything behind the options.
fn script(input: &mut Input<'_>) -> Result<Script> {
    let init = opt(shell).parse_next(input)?;
    let mut script = Script { init, ..Script::default() };
    while !matches!(peek(input).kind, Kind::End | Kind::Shell) {
        script.events.push(event(input)?);
    }
    if script.events.is_empty() {
        return expected(input, "the time of the first event, such as `0` or `+.1`");
    }
    script.cleanup = opt(shell).parse_next(input)?;
    if peek(input).kind == Kind::End {
        return Ok(script);
    }
    let found = peek(input);
    refuse(
        Diagnostic::new(
            found.span(),
            format!("expected the end of the script, found {}", found.describe()),
        )
        .help("shell lines without a time end the script; within it they need one"),
    )
}

/// Shell lines; goes back if there are none.
fn shell(input: &mut Input<'_>) -> Result<Spanned<String>> {
    if peek(input).kind != Kind::Shell {
        return Err(ErrMode::Backtrack(Fail::from_input(input)));
    }
    spanned(input, |input| take(input).map(|token| token.text.to_owned()))
}

fn event(input: &mut Input<'_>) -> Result<Event> {
    let time = spanned(input, event_time)?;
    let action = spanned(input, action)?;
    let packet_leaves = matches!(
        &action.node,
        Action::Packet(packet) if packet.direction == Direction::Outbound
    );
    let backwards = match time.node {
        Time::AbsoluteRange(from, to) | Time::RelativeRange(from, to) => to < from,
        _ => false,
    };
    if backwards {
        return wrong(time.span, "this range of times ends before it begins");
    }
    if !packet_leaves && !matches!(time.node, Time::Relative(_) | Time::Absolute(_)) {
        return refuse(
            Diagnostic::new(
                time.span,
                "only an outbound packet may come at any time or in a range",
            )
            .context(action.span, "this happens at one time"),
        );
    }
    Ok(Event { time, action })
}

fn event_time(input: &mut Input<'_>) -> Result<Time> {
    if maybe_sign(input, '*')? {
        return Ok(Time::Any);
    }
    if maybe_sign(input, '+')? {
        let from = seconds(input)?;
        if !maybe_sign(input, '~')? {
            return Ok(Time::Relative(from));
        }
        sign(input, '+')?;
        return Ok(Time::RelativeRange(from, seconds(input)?));
    }
    if !matches!(peek(input).kind, Kind::Integer | Kind::Decimal) {
        return no_event(input);
    }
    let from = seconds(input)?;
    if maybe_sign(input, '~')? {
        Ok(Time::AbsoluteRange(from, seconds(input)?))
    } else {
        Ok(Time::Absolute(from))
    }
}

/// What stands where an event should begin is often a part of the one before in the wrong place.
fn no_event<T>(input: &Input<'_>) -> Result<T> {
    let found = peek(input);
    let told = Diagnostic::new(
        found.span(),
        format!(
            "expected the time of the next event, such as `0`, `+.1` or `*`, found {}",
            found.describe()
        ),
    );
    let part = ["ack", "win", "urg"].iter().any(|word| found.is_word(word)) || found.is('<');
    refuse(if part {
        told.help(
            "the parts of a segment come in this order: flags, sequence, ack, win, urg, <options>",
        )
    } else if found.kind == Kind::Option {
        told.help("options stand before everything else")
    } else {
        told
    })
}

/// A time in seconds, as microseconds.
fn seconds(input: &mut Input<'_>) -> Result<i64> {
    let token = peek(input);
    if !matches!(token.kind, Kind::Integer | Kind::Decimal) {
        return expected(input, "a time in seconds, such as `0` or `.01`");
    }
    take(input)?;
    if token.text.starts_with('-') {
        return wrong(token.span(), "a time cannot be negative");
    }
    match microseconds(token.text) {
        Some(time) => Ok(time),
        None => wrong(token.span(), "this time is too far away"),
    }
}

/// No time is longer than this, so that sums of times do not overflow: about 30 years.
const MAX_SECONDS: i64 = 1_000_000_000;

fn microseconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()? };
    let mut micros = 0;
    for place in 0..6 {
        micros = micros * 10 + i64::from(fraction.as_bytes().get(place).map_or(0, |b| b - b'0'));
    }
    (whole <= MAX_SECONDS).then(|| whole * 1_000_000 + micros)
}

fn action(input: &mut Input<'_>) -> Result<Action> {
    let token = peek(input);
    match token.kind {
        Kind::Shell => take(input).map(|token| Action::Command(token.text.to_owned())),
        Kind::Code => take(input).map(|token| Action::Code(token.text.to_owned())),
        Kind::Word | Kind::Ellipsis => call::call(input).map(Action::Call),
        Kind::Sign if token.is('<') || token.is('>') => packet::packet(input).map(Action::Packet),
        _ => expected(
            input,
            "what happens: a packet (`<` or `>`), a call, shell lines or a block of code",
        ),
    }
}
