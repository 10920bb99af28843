//! Runs in turn: pairs, cases, and the captures beside them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::at;
use super::condition::{Condition, SetAside, Tries};
use super::plan::{self, Plan};
use super::stats::{self, medians, ratios, spreads};
use super::watch::Watch;
use crate::figures::Figures;

/// One of the three states that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The knob as it was.
    Before,
    /// The knob as it is.
    After,
    /// Everything on.
    Best,
}

impl Column {
    /// All, in the order of tables.
    pub const ALL: [Column; 3] = [Column::Before, Column::After, Column::Best];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Column::Before => "before",
            Column::After => "after",
            Column::Best => "best",
        }
    }
}

/// What one run gave: the figures, and what else the experiment measures, by name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// The figures that all commands have.
    #[serde(flatten)]
    pub figures: Figures,
    /// The others.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Three runs, one right after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The case.
    pub case: String,
    /// With the knob as it was.
    pub before: Value,
    /// With the knob as it is.
    pub after: Value,
    /// With everything on.
    pub best: Value,
    /// After over before.
    pub ratio: Value,
    /// The host's own TCP on the same workload, if it runs beside.
    pub kernel: Option<KernelPair>,
}

/// The host's own TCP, in the same pair.
#[derive(Clone, Debug, Serialize)]
pub struct KernelPair {
    /// With its knob as it was; null if it has none.
    pub before: Value,
    /// With its knob as it is, or just as it is.
    pub after: Value,
    /// After over before; null if it has no knob.
    pub ratio: Value,
}

/// A run of the host's own TCP, for a column: [`Column::Before`] or [`Column::After`].
pub type HostRun<'a> = &'a mut dyn FnMut(Column) -> anyhow::Result<Run>;

/// The host's own TCP beside a case.
pub struct Beside<'a> {
    /// It has a knob, so there is a before.
    pub has_knob: bool,
    /// Runs it.
    pub run: HostRun<'a>,
}

/// A capture of one column of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The case.
    pub case: String,
    /// The column.
    pub column: Column,
    /// The file: pcapng, as the client's device saw it.
    pub path: PathBuf,
}

/// The cases of one experiment, while they run.
pub struct Bench<'a> {
    experiment: &'a str,
    plan: &'a Plan,
    watch: &'a mut Watch,
    cases: Vec<Case>,
}

impl<'a> Bench<'a> {
    /// Of `experiment`, which has so many cases.
    pub fn new(
        experiment: &'a str,
        plan: &'a Plan,
        watch: &'a mut Watch,
        cases: usize,
    ) -> Bench<'a> {
        watch.expect(if plan.headlines { 1 } else { cases } * plan.pairs);
        Bench { experiment, plan, watch, cases: Vec::new() }
    }

    /// Runs all pairs of a case, and one run of each column more if captures are wanted. The
    /// closure gets how long to run and where to leave a capture. A case that is not the headline
    /// is left out if the plan says so.
    ///
    /// # Errors
    /// If a run fails.
    pub fn case(
        &mut self,
        name: &str,
        run: impl FnMut(&Plan, Column, Option<PathBuf>) -> anyhow::Result<Run>,
    ) -> anyhow::Result<()> {
        self.case_beside(name, run, None)
    }

    /// The same with the host's own TCP in every pair.
    ///
    /// # Errors
    /// If a run fails.
    pub fn case_beside(
        &mut self,
        name: &str,
        run: impl FnMut(&Plan, Column, Option<PathBuf>) -> anyhow::Result<Run>,
        beside: Option<Beside<'_>>,
    ) -> anyhow::Result<()> {
        self.case_if(name, run, beside, &())
    }

    /// The same; a pair that does not meet the condition is set aside and run again.
    ///
    /// # Errors
    /// If a run fails.
    pub fn case_if(
        &mut self,
        name: &str,
        mut run: impl FnMut(&Plan, Column, Option<PathBuf>) -> anyhow::Result<Run>,
        beside: Option<Beside<'_>>,
        condition: &dyn Condition,
    ) -> anyhow::Result<()> {
        if self.plan.headlines && !self.cases.is_empty() {
            return Ok(());
        }
        let captures = self.capture(name, &mut run, condition)?;
        let plan = self.plan;
        let run = |column| run(plan, column, None);
        let case = Case::measure(name, plan, self.watch, run, beside, condition)?;
        self.cases.push(Case { captures, ..case });
        Ok(())
    }

    fn capture(
        &mut self,
        case: &str,
        mut run: impl FnMut(&Plan, Column, Option<PathBuf>) -> anyhow::Result<Run>,
        condition: &dyn Condition,
    ) -> anyhow::Result<Vec<Capture>> {
        let Some(dir) = self.plan.capture_dir(self.cases.is_empty())? else {
            return Ok(Vec::new());
        };
        condition.prepare().with_context(|| case.to_owned())?;
        let plan = self.plan.captured();
        let mut captures = Vec::new();
        for column in Column::ALL {
            let path = dir.join(plan::file_name(self.experiment, case, column));
            self.watch.show(&format!("{case}: capture, {}", column.name()));
            run(&plan, column, Some(path.clone()))
                .with_context(|| format!("{case}, {}, with a capture", column.name()))?;
            captures.push(Capture { case: case.to_owned(), column, path });
        }
        Ok(captures)
    }

    /// All cases that ran, the headline first.
    pub fn finish(self) -> Vec<Case> {
        self.cases
    }
}

/// All pairs of one case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, as in `memory, 200 flows`.
    pub name: String,
    /// At least one.
    pub pairs: Vec<Pair>,
    /// Pairs that do not count.
    pub set_aside: Vec<SetAside>,
    /// One of each column, if they were wanted.
    pub captures: Vec<Capture>,
}

impl Case {
    /// Runs pairs until as many of them count as are planned, or until the time of the experiment
    /// is over. One pair counts in any case.
    ///
    /// # Errors
    /// If a run fails.
    pub fn measure(
        name: &str,
        plan: &Plan,
        watch: &mut Watch,
        mut run: impl FnMut(Column) -> anyhow::Result<Run>,
        mut beside: Option<Beside<'_>>,
        condition: &dyn Condition,
    ) -> anyhow::Result<Case> {
        let pairs = plan.pairs.max(1);
        let (mut done, mut set_aside) = (Vec::with_capacity(pairs), Vec::new());
        let mut tries = Tries::new(plan.again);
        let mut longest = Duration::ZERO;
        while done.len() < pairs && (done.is_empty() || plan.has_time(longest)) {
            let mut say = |what: &str| {
                watch.show(&format!("{name}: pair {}/{pairs}, {what}", done.len() + 1));
            };
            say("getting ready");
            let begun = Instant::now();
            condition.prepare().with_context(|| name.to_owned())?;
            // Who goes first changes with every try.
            let is_even = (done.len() + set_aside.len()).is_multiple_of(2);
            let pair = Pair::measure(name, is_even, &mut run, beside.as_mut(), &mut say)?;
            longest = longest.max(begun.elapsed());
            let why_not = tries.why_not(&pair, condition).filter(|_| plan.has_time(longest));
            match why_not {
                Some(why) => set_aside.push(SetAside { case: name.to_owned(), why }),
                None => {
                    done.push(pair);
                    watch.advance();
                }
            }
        }
        Ok(Case { name: name.to_owned(), pairs: done, set_aside, captures: Vec::new() })
    }

    /// The median of a figure, by its path: `latency_us.p99`.
    pub fn median(&self, column: Column, path: &str) -> Option<f64> {
        self.spread(column, path).map(|spread| spread.median)
    }

    /// A figure over the runs of a column; `None` if one did not take it.
    pub fn spread(&self, column: Column, path: &str) -> Option<stats::Spread> {
        let values: Option<Vec<f64>> =
            self.runs(column).map(|run| at(run, path).and_then(Value::as_f64)).collect();
        stats::Spread::of(&values?)
    }

    /// How many pairs are against something by the ratio of a figure, after over before; a pair
    /// that did not take it is.
    pub(super) fn against(&self, path: &str, is_against: impl Fn(f64) -> bool) -> usize {
        let ratio = |pair: &Pair| at(&pair.ratio, path).and_then(Value::as_f64);
        self.pairs.iter().filter(|pair| ratio(pair).is_none_or(&is_against)).count()
    }

    /// The ratios of a figure, after over before, pair by pair; `None` if one could not be taken.
    pub fn ratio(&self, path: &str) -> Option<stats::Spread> {
        let ratio = |pair: &Pair| at(&pair.ratio, path).and_then(Value::as_f64);
        let values: Option<Vec<f64>> = self.pairs.iter().map(ratio).collect();
        stats::Spread::of(&values?)
    }

    /// The runs of one column.
    pub fn runs(&self, column: Column) -> impl Iterator<Item = &Value> {
        self.pairs.iter().map(move |pair| match column {
            Column::Before => &pair.before,
            Column::After => &pair.after,
            Column::Best => &pair.best,
        })
    }

    pub(super) fn medians(&self, column: Column) -> Value {
        medians(&self.runs(column).cloned().collect::<Vec<_>>())
    }

    pub(super) fn ratios(&self) -> Value {
        let all: Vec<Value> = self.pairs.iter().map(|pair| pair.ratio.clone()).collect();
        spreads(&all)
    }

    /// The host's own TCP: medians before, after, and the spreads of the ratios.
    pub(super) fn kernel(&self) -> Value {
        let pairs: Option<Vec<&KernelPair>> =
            self.pairs.iter().map(|pair| pair.kernel.as_ref()).collect();
        let Some(pairs) = pairs.filter(|pairs| !pairs.is_empty()) else { return Value::Null };
        let all = |get: fn(&KernelPair) -> &Value| {
            pairs.iter().map(|pair| get(pair).clone()).collect::<Vec<_>>()
        };
        json!({
            "before": medians(&all(|pair| &pair.before)),
            "after": medians(&all(|pair| &pair.after)),
            "ratio": spreads(&all(|pair| &pair.ratio)),
        })
    }
}

impl Pair {
    fn measure(
        case: &str,
        before_first: bool,
        run: &mut impl FnMut(Column) -> anyhow::Result<Run>,
        beside: Option<&mut Beside<'_>>,
        say: &mut impl FnMut(&str),
    ) -> anyhow::Result<Pair> {
        let mut order = Column::ALL;
        if !before_first {
            order.reverse();
        }
        let mut values = [Value::Null, Value::Null, Value::Null];
        for column in order {
            say(column.name());
            let run = run(column).with_context(|| format!("{case}, {}", column.name()))?;
            values[column as usize] = serde_json::to_value(run)?;
        }
        let kernel = match beside {
            Some(beside) => {
                say("the kernel");
                Some(beside.pair(&order).with_context(|| format!("{case}, the kernel"))?)
            }
            None => None,
        };
        let [before, after, best] = values;
        let ratio = ratios(&before, &after);
        Ok(Pair { case: case.to_owned(), before, after, best, ratio, kernel })
    }
}

impl Beside<'_> {
    fn pair(&mut self, order: &[Column; 3]) -> anyhow::Result<KernelPair> {
        let mut values = [Value::Null, Value::Null];
        for &column in order {
            if column == Column::After || (column == Column::Before && self.has_knob) {
                values[column as usize] = serde_json::to_value((self.run)(column)?)?;
            }
        }
        let [before, after] = values;
        let ratio = ratios(&before, &after);
        Ok(KernelPair { before, after, ratio })
    }
}
