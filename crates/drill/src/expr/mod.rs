//! The little language of `%{ }%` blocks.
//!
//! Blocks are pieces of Python in the original tool. What scripts use of it is understood here
//! without Python: `assert`, `print`, assignments, and expressions over the fields of `TCP_INFO`.
//! Anything else is an error that names it. Variables live from one block to the next.

mod eval;
mod lex;
mod parse;
mod value;

use std::collections::BTreeMap;

pub use value::Value;

/// What is wrong with a block, or that an assertion does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// The block makes no sense, or needs more than is understood here.
    Wrong(String),
    /// An assertion does not hold.
    Failed {
        /// The condition, as written.
        condition: String,
        /// The variables in it with their values.
        values: Vec<(String, String)>,
        /// What stands behind the comma.
        message: Option<String>,
    },
}

impl CodeError {
    fn wrong(text: impl Into<String>) -> CodeError {
        CodeError::Wrong(text.into())
    }
}

/// The variables of a script's blocks.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// What blocks have set.
    own: BTreeMap<String, Value>,
    /// The fields of the moment, and constants.
    given: BTreeMap<String, Value>,
}

impl Scope {
    /// Gives a name a value that blocks can read.
    pub fn give(&mut self, name: &str, value: i64) {
        self.given.insert(name.to_owned(), Value::Int(value));
    }

    /// Runs one block. What it prints is appended to `out`, a line each.
    ///
    /// # Errors
    /// If the block makes no sense or an assertion fails.
    pub fn run(&mut self, text: &str, out: &mut Vec<String>) -> Result<(), CodeError> {
        let statements = parse::block(text)?;
        for statement in &statements {
            eval::run(self, statement, out)?;
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.own.get(name).or_else(|| self.given.get(name))
    }
}

#[cfg(test)]
mod tests;
