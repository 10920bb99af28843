//! What callgrind wrote, by function.

use std::collections::HashMap;

use anyhow::{Context, Result};

/// Functions of one run.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) all: Vec<Function>,
    by_name: HashMap<(String, String), usize>,
}

/// A function.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) object: String,
    pub(crate) name: String,
    /// Instructions of its own, without those of what it calls.
    pub(crate) instructions: u64,
    /// How often it was called.
    pub(crate) calls: u64,
}

/// Where a reader of the lines is.
#[derive(Default)]
struct Position {
    object: String,
    function: usize,
    /// What the next call goes to.
    called_object: Option<String>,
    called_function: String,
    /// How often, between the line of a call and that of its costs.
    calls: Option<u64>,
}

impl Functions {
    /// Reads what callgrind wrote without compression. Instructions are what it counted first.
    pub(crate) fn parse(text: &str) -> Result<Functions> {
        let mut functions = Functions::default();
        let mut at = Position::default();
        for line in text.lines() {
            if let Some((word, value)) = line.split_once('=')
                && word.bytes().all(|byte| byte.is_ascii_lowercase())
            {
                functions.word(&mut at, word, value.trim())?;
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                functions.costs(&mut at, line);
            }
        }
        Ok(functions)
    }

    fn word(&mut self, at: &mut Position, word: &str, value: &str) -> Result<()> {
        match word {
            "ob" => at.object = value.into(),
            "fn" => at.function = self.function(&at.object, value),
            "cob" => at.called_object = Some(value.into()),
            "cfn" => at.called_function = value.into(),
            "calls" => {
                let count = value.split_whitespace().next().unwrap_or_default();
                at.calls = Some(count.parse().context("a count of calls")?);
            }
            _ => {}
        }
        Ok(())
    }

    fn costs(&mut self, at: &mut Position, line: &str) {
        if let Some(calls) = at.calls.take() {
            let object = at.called_object.take().unwrap_or_else(|| at.object.clone());
            let callee = self.function(&object, &at.called_function);
            self.all[callee].calls += calls;
            return;
        }
        let count = line.split_whitespace().nth(1).and_then(|count| count.parse::<u64>().ok());
        self.all[at.function].instructions += count.unwrap_or(0);
    }

    fn function(&mut self, object: &str, name: &str) -> usize {
        let key = (object.to_owned(), name.to_owned());
        *self.by_name.entry(key).or_insert_with(|| {
            let (object, name) = (object.to_owned(), name.to_owned());
            self.all.push(Function { object, name, ..Function::default() });
            self.all.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\ncmd:  ./a b=c\nevents: Ir Dr\n\n\
        ob=/bin/a\nfl=/src/a.rs\nfn=outer\n5 3 1\nfi=/src/b.rs\n9 2\ncfn=inner\ncalls=4 7\n6 40 8\n\
        fe=/src/a.rs\n8 1\ncob=/lib/libc.so.6\ncfn=malloc\ncalls=2 0\n8 20\n\n\
        fl=/src/b.rs\nfn=inner\n7 40 8\n\nob=/lib/libc.so.6\nfl=???\nfn=malloc\n0 20\n";

    #[test]
    fn instructions_and_calls_of_functions() {
        let functions = Functions::parse(TEXT).unwrap();
        let of = |name: &str| {
            let found = functions.all.iter().find(|function| function.name == name).unwrap();
            (found.object.as_str(), found.instructions, found.calls)
        };
        assert_eq!(of("outer"), ("/bin/a", 6, 0));
        assert_eq!(of("inner"), ("/bin/a", 40, 4));
        assert_eq!(of("malloc"), ("/lib/libc.so.6", 20, 2));
    }
}
