//! Why a script did not pass.

use crate::lang::ast::Span;

/// Whether the stack or the script is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The script ran, and something came out otherwise.
    Stack,
    /// The script cannot be run: it asks for something unknown, or makes no sense.
    Script,
}

/// Why a script did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who is to blame.
    pub blame: Blame,
    /// The place in the script.
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// What was expected, as the script would write it.
    pub expected: Option<String>,
    /// What came.
    pub actual: Vec<String>,
}

impl Failure {
    /// The stack did something else than the script says.
    pub fn stack(span: &Span, message: impl Into<String>) -> Failure {
        Failure::new(Blame::Stack, span, message.into())
    }

    /// The script cannot be run.
    pub fn script(span: &Span, message: impl Into<String>) -> Failure {
        Failure::new(Blame::Script, span, message.into())
    }

    fn new(blame: Blame, span: &Span, message: String) -> Failure {
        Failure { blame, span: span.clone(), message, expected: None, actual: Vec::new() }
    }

    /// Adds what was expected and what came.
    #[must_use]
    pub fn with(mut self, expected: impl Into<String>, actual: impl Into<String>) -> Failure {
        self.expected = Some(expected.into());
        self.actual.push(actual.into());
        self
    }
}
