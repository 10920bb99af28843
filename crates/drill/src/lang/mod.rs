//! The packetdrill language: what a script says, and how it is read.
//!
//! [`parse`] turns text into a [`Script`](ast::Script). It knows the form of the language only:
//! names of constants and of calls stay words, because what they mean depends on where the script
//! runs. A script that is wrong gives a [`Diagnostic`], which points at the place; the runner uses
//! the same type for what goes wrong later.
//!
//! Reading is done in two steps. The lexer cuts the text into tokens without knowing where it is,
//! with one exception that the language forces on it: `1:1001` is a range of sequence numbers but
//! `2001:db8::1` an address. The parser then puts user defines in the place of words and goes over
//! the tokens once from the left, looking at most three ahead. Nesting has a limit, so that time
//! and stack are bounded for any input.

pub mod ast;
mod defines;
mod diagnostic;
mod lexer;
mod parser;
mod tag;
#[cfg(test)]
mod tests;
mod token;

pub use defines::{BadDefine, Defines};
pub use diagnostic::{Colour, Diagnostic};
pub use parser::parse;
pub use tag::Release;
