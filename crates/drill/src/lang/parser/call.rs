//! System calls.

use super::super::ast::{Call, Spanned};
use super::super::diagnostic::Diagnostic;
use super::super::token::Kind;
use super::{
    Input, Result, expected, expr, kind, maybe_sign, peek, refuse, seconds, sign, spanned, take,
};

/// A call, with the time at which it returns if it sleeps.
pub(super) fn call(input: &mut Input<'_>) -> Result<Call> {
    let end = if peek(input).kind == Kind::Ellipsis {
        take(input)?;
        Some(seconds(input)?)
    } else {
        None
    };
    let name = spanned(input, |input| {
        kind(input, Kind::Word, "the name of a call").map(|token| token.text.to_owned())
    })?;
    sign(input, '(')?;
    let arguments = expr::list(input, ')')?;
    if !maybe_sign(input, '=')? {
        return no_result(input, &name);
    }
    let result = expr::expr(input)?;
    let errno = opt_errno(input)?;
    let note = if peek(input).is('(') { Some(note(input)?) } else { None };
    let note = note.or(errno.as_ref().map(|(_, note)| note.clone()));
    Ok(Call { end, name, arguments, result, errno: errno.map(|(errno, _)| errno), note })
}

fn no_result<T>(input: &Input<'_>, name: &Spanned<String>) -> Result<T> {
    let found = peek(input);
    refuse(
        Diagnostic::new(
            found.span(),
            format!("expected `=` and what `{}` returns, found {}", name.node, found.describe()),
        )
        .context(name.span.clone(), "of this call"),
    )
}

/// `EAGAIN (Resource temporarily unavailable)`; the words are part of it.
fn opt_errno(input: &mut Input<'_>) -> Result<Option<(Spanned<String>, String)>> {
    if peek(input).kind != Kind::Word {
        return Ok(None);
    }
    let errno = spanned(input, |input| take(input).map(|token| token.text.to_owned()))?;
    if peek(input).is('(') {
        return Ok(Some((errno, note(input)?)));
    }
    let found = peek(input);
    refuse(
        Diagnostic::new(
            found.span(),
            format!(
                "expected words in parentheses behind the error `{}`, found {}",
                errno.node,
                found.describe()
            ),
        )
        .context(errno.span, "this is taken for the name of an error")
        .help("for example `= -1 EAGAIN (try again)`"),
    )
}

/// Words in parentheses.
fn note(input: &mut Input<'_>) -> Result<String> {
    sign(input, '(')?;
    let start = peek(input).start;
    let mut end = start;
    while matches!(peek(input).kind, Kind::Word | Kind::Integer | Kind::Decimal) {
        end = take(input)?.end;
    }
    if !peek(input).is(')') {
        return expected(input, "a word or `)`");
    }
    if end == start {
        return expected(input, "a word");
    }
    let note = input.state.text[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
    sign(input, ')')?;
    Ok(note)
}
