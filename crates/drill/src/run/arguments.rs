//! Arguments of calls: from what the script writes to numbers and bytes.

use crate::posix::{Dest, Source};

use crate::failure::Failure;
use crate::lang::ast::{Expr, Span, Spanned};
use crate::symbols;

/// The most bytes that one call may read or write.
pub(super) const MAX_BUFFER: i64 = 16 << 20;
/// The most buffers of one call.
pub(super) const MAX_BUFFERS: usize = 1024;

/// The arguments of one call.
pub(super) struct Arguments<'a> {
    pub(super) name: &'a str,
    pub(super) span: &'a Span,
    pub(super) list: &'a [Spanned<Expr>],
}

impl<'a> Arguments<'a> {
    /// Checks how many there are.
    pub(super) fn count(&self, least: usize, most: usize) -> Result<(), Failure> {
        let have = self.list.len();
        if (least..=most).contains(&have) {
            return Ok(());
        }
        let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let name = self.name;
        Err(Failure::script(self.span, format!("{name}() has {wanted} arguments, not {have}")))
    }

    pub(super) fn get(&self, at: usize) -> Result<&'a Spanned<Expr>, Failure> {
        let missing =
            || Failure::script(self.span, format!("{}() lacks argument {}", self.name, at + 1));
        self.list.get(at).ok_or_else(missing)
    }

    /// A whole number.
    pub(super) fn int(&self, at: usize) -> Result<i64, Failure> {
        integer(self.get(at)?)
    }

    /// A whole number that fits 32 bits, with or without sign.
    pub(super) fn int32(&self, at: usize) -> Result<i32, Failure> {
        integer32(self.get(at)?)
    }

    pub(super) fn is_ellipsis(&self, at: usize) -> bool {
        self.list.get(at).is_some_and(|expr| expr.node == Expr::Ellipsis)
    }

    /// `...` or, if `also`, a number.
    pub(super) fn ellipsis(&self, at: usize) -> Result<(), Failure> {
        let expr = self.get(at)?;
        if expr.node == Expr::Ellipsis {
            return Ok(());
        }
        Err(Failure::script(&expr.span, "only `...` can stand here"))
    }

    /// `[n]`
    pub(super) fn bracketed(&self, at: usize) -> Result<i64, Failure> {
        bracketed(self.get(at)?)
    }

    /// Whether a buffer is there: `...` says so, NULL that it is not.
    fn has_buffer(&self, at: usize) -> Result<bool, Failure> {
        let expr = self.get(at)?;
        match &expr.node {
            Expr::Ellipsis => Ok(true),
            Expr::Integer(0) => Ok(false),
            Expr::Word(word) if word == "NULL" => Ok(false),
            _ => Err(Failure::script(&expr.span, "a buffer is `...` or NULL")),
        }
    }

    /// The length of a buffer.
    fn size(&self, at: usize) -> Result<usize, Failure> {
        size(self.get(at)?)
    }

    /// A buffer to read into.
    pub(super) fn dest(&self, at: usize) -> Result<Dest, Failure> {
        let len = self.size(at + 1)?;
        Ok(if self.has_buffer(at)? { Dest::Room(len) } else { Dest::Null(len) })
    }

    /// A buffer of zeroes to write from.
    pub(super) fn source(&self, at: usize) -> Result<Source, Failure> {
        let len = self.size(at + 1)?;
        Ok(if self.has_buffer(at)? { Source::Bytes(vec![0; len]) } else { Source::Null(len) })
    }

    /// `[{..., 100}, {..., 200}], 2`: the lengths.
    pub(super) fn iovecs(&self, at: usize) -> Result<Vec<usize>, Failure> {
        let expr = self.get(at)?;
        let Expr::List(list) = &expr.node else {
            return Err(Failure::script(&expr.span, "a list of {..., length} belongs here"));
        };
        iovecs(list, self.int(at + 1)?, &expr.span)
    }
}

/// A list of iovecs whose number the script gives as `count`.
pub(super) fn iovecs(
    list: &[Spanned<Expr>],
    count: i64,
    span: &Span,
) -> Result<Vec<usize>, Failure> {
    if usize::try_from(count) != Ok(list.len()) {
        let have = list.len();
        return Err(Failure::script(span, format!("there are {have} buffers, not {count}")));
    }
    if list.len() > MAX_BUFFERS {
        return Err(Failure::script(span, format!("more than {MAX_BUFFERS} buffers are too many")));
    }
    let lens: Result<Vec<usize>, Failure> = list.iter().map(iovec).collect();
    let lens = lens?;
    if lens.iter().sum::<usize>() > MAX_BUFFER as usize {
        return Err(Failure::script(span, "the buffers are too long together"));
    }
    Ok(lens)
}

fn iovec(expr: &Spanned<Expr>) -> Result<usize, Failure> {
    match expr.node {
        Expr::Iovec(len) if (0..=MAX_BUFFER).contains(&len) => Ok(len as usize),
        Expr::Iovec(_) => Err(Failure::script(&expr.span, "the buffer is too long")),
        _ => Err(Failure::script(&expr.span, "a {..., length} belongs here")),
    }
}

/// The length of a buffer.
fn size(expr: &Spanned<Expr>) -> Result<usize, Failure> {
    match integer(expr)? {
        len @ 0..=MAX_BUFFER => Ok(len as usize),
        len => Err(Failure::script(&expr.span, format!("{len} is no length of a buffer here"))),
    }
}

/// The value of a number, a name, or several joined with `|`.
pub(super) fn integer(expr: &Spanned<Expr>) -> Result<i64, Failure> {
    match &expr.node {
        Expr::Integer(value) => Ok(*value),
        Expr::Word(word) => symbols::value(word)
            .ok_or_else(|| Failure::script(&expr.span, format!("the name {word} is not known"))),
        Expr::Or(a, b) => Ok(integer(a)? | integer(b)?),
        _ => Err(Failure::script(&expr.span, "a number belongs here")),
    }
}

/// A number that fits 32 bits, with or without sign.
pub(super) fn integer32(expr: &Spanned<Expr>) -> Result<i32, Failure> {
    let value = integer(expr)?;
    let signed = i32::try_from(value).ok();
    let unsigned = || u32::try_from(value).ok().map(u32::cast_signed);
    signed
        .or_else(unsigned)
        .ok_or_else(|| Failure::script(&expr.span, format!("{value} does not fit 32 bits")))
}

/// `[n]`
pub(super) fn bracketed(expr: &Spanned<Expr>) -> Result<i64, Failure> {
    match &expr.node {
        Expr::List(list) if list.len() == 1 => integer(&list[0]),
        _ => Err(Failure::script(&expr.span, "a number in brackets belongs here")),
    }
}
