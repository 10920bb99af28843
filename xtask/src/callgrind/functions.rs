//! What callgrind wrote, by function.

use std::collections::HashMap;

use anyhow::{Context, Result};

/// Functions of one run, with who calls whom.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// What is counted: `Ir` are instructions.
    pub(crate) events: Vec<String>,
    pub(crate) all: Vec<Function>,
    by_name: HashMap<(String, String), usize>,
}

/// A function.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) object: String,
    pub(crate) name: String,
    /// The file that it was written in, as far as that is known.
    pub(crate) file: String,
    /// Its own costs, by the file of the source.
    pub(crate) own: HashMap<String, Vec<u64>>,
    pub(crate) calls: Vec<Call>,
}

/// Calls of one function by another, from one source file.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) callee: usize,
    pub(crate) from: String,
    pub(crate) count: u64,
    /// What they cost, with all that the callee calls.
    pub(crate) cost: Vec<u64>,
}

/// Where a reader of the lines is.
#[derive(Default)]
struct Position {
    object: String,
    /// The file of the function, and the one that the next costs belong to.
    file: String,
    now: String,
    function: usize,
    /// What the next call goes to.
    called_object: Option<String>,
    called_function: String,
    call: Option<u64>,
}

impl Functions {
    /// Reads what callgrind wrote without compression.
    pub(crate) fn parse(text: &str) -> Result<Functions> {
        let mut functions = Functions::default();
        let mut at = Position::default();
        for line in text.lines() {
            if let Some((word, value)) = line.split_once('=')
                && word.bytes().all(|byte| byte.is_ascii_lowercase())
            {
                functions.word(&mut at, word, value.trim())?;
            } else if let Some(events) = line.strip_prefix("events:") {
                functions.events = events.split_whitespace().map(String::from).collect();
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
                functions.costs(&mut at, line);
            }
        }
        Ok(functions)
    }

    fn word(&mut self, at: &mut Position, word: &str, value: &str) -> Result<()> {
        match word {
            "ob" => at.object = value.into(),
            "fl" => {
                at.file = value.into();
                at.now = value.into();
            }
            "fi" | "fe" => at.now = value.into(),
            "fn" => {
                at.function = self.function(&at.object, value);
                at.now.clone_from(&at.file);
                self.all[at.function].file.clone_from(&at.file);
            }
            "cob" => at.called_object = Some(value.into()),
            "cfn" => at.called_function = value.into(),
            "calls" => {
                let count = value.split_whitespace().next().unwrap_or_default();
                at.call = Some(count.parse().context("a count of calls")?);
            }
            _ => {}
        }
        Ok(())
    }

    fn costs(&mut self, at: &mut Position, line: &str) {
        let fields = line.split_whitespace().skip(1);
        let mut cost: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        cost.resize(self.events.len(), 0);
        if let Some(count) = at.call.take() {
            let object = at.called_object.take().unwrap_or_else(|| at.object.clone());
            let callee = self.function(&object, &at.called_function);
            let call = Call { callee, from: at.now.clone(), count, cost };
            self.all[at.function].calls.push(call);
            return;
        }
        let own = self.all[at.function].own.entry(at.now.clone()).or_default();
        own.resize(cost.len(), 0);
        own.iter_mut().zip(&cost).for_each(|(sum, cost)| *sum += cost);
    }

    fn function(&mut self, object: &str, name: &str) -> usize {
        let key = (object.to_owned(), name.to_owned());
        *self.by_name.entry(key).or_insert_with(|| {
            let (object, name) = (object.to_owned(), name.to_owned());
            self.all.push(Function { object, name, ..Function::default() });
            self.all.len() - 1
        })
    }

    /// The place of an event among the costs.
    pub(crate) fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event == name)
    }

    /// How often functions with one of these names were called.
    pub(crate) fn calls_of(&self, names: &[&str]) -> u64 {
        let calls = self.all.iter().flat_map(|function| &function.calls);
        let of = calls.filter(|call| names.contains(&self.all[call.callee].name.as_str()));
        of.map(|call| call.count).sum()
    }
}

impl Function {
    /// Its own cost, of the event at a place.
    pub(crate) fn own(&self, event: usize) -> u64 {
        self.own.values().map(|costs| costs.get(event).copied().unwrap_or(0)).sum()
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
    fn costs_belong_to_the_file_they_were_written_in() {
        let functions = Functions::parse(TEXT).unwrap();
        let outer = &functions.all[0];
        assert_eq!((outer.name.as_str(), outer.file.as_str()), ("outer", "/src/a.rs"));
        assert_eq!(outer.own["/src/a.rs"], [4, 1]);
        assert_eq!(outer.own["/src/b.rs"], [2, 0]);
        assert_eq!(outer.own(0), 6);
        assert_eq!((outer.calls[0].count, outer.calls[0].from.as_str()), (4, "/src/b.rs"));
        assert_eq!(outer.calls[0].cost, [40, 8]);
        let inner = &functions.all[outer.calls[0].callee];
        assert_eq!((inner.name.as_str(), inner.own(1)), ("inner", 8));
        assert_eq!(functions.event("Dr"), Some(1));
    }

    #[test]
    fn calls_into_other_objects_are_known() {
        let functions = Functions::parse(TEXT).unwrap();
        assert_eq!(functions.calls_of(&["malloc", "calloc"]), 2);
        let malloc = functions.all.iter().find(|function| function.name == "malloc").unwrap();
        assert_eq!((malloc.object.as_str(), malloc.own(0)), ("/lib/libc.so.6", 20));
    }
}
