//! Makes a scenario that fails as small as it can be.
//!
//! First the dice are replaced by the list of what they have done. Then parts are left out, larger
//! ones first (delta debugging): faults, events, flows, bytes, settings. A part stays out if the
//! run without it still breaks the same invariant.

use plimsoll_tcp::Duration;

use crate::scenario::{Application, Scenario, ScenarioError};
use crate::world::{RunConfig, Violation, run};

/// What became of shrinking.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shrunk {
    /// The smallest scenario found. It has no dice.
    pub scenario: Scenario,
    /// What does not hold in it.
    pub violation: Violation,
    /// Runs that it took.
    pub runs: u64,
}

/// Shrinks a scenario whose run with `seed` fails, in at most `budget` runs. `None` if it does not
/// fail.
///
/// # Errors
/// If the scenario contradicts itself.
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    budget: u64,
) -> Result<Option<Shrunk>, ScenarioError> {
    let config = RunConfig::default();
    let outcome = run(scenario, seed, &config)?;
    let Some(violation) = outcome.violation else { return Ok(None) };
    let mut shrinker = Shrinker { seed, budget, runs: 1, best: scenario.clone(), violation };
    let listed = Scenario { fault: outcome.faults, only_listed: true, ..scenario.clone() };
    // It fails in the same way, unless what the dice do is not all that is random.
    shrinker.accepts(listed);
    shrinker.all();
    let Shrinker { best, violation, runs, .. } = shrinker;
    Ok(Some(Shrunk { scenario: best, violation, runs }))
}

struct Shrinker {
    seed: u64,
    budget: u64,
    runs: u64,
    best: Scenario,
    violation: Violation,
}

impl Shrinker {
    /// Whether a smaller scenario breaks the same invariant; if so, it is the best so far.
    fn accepts(&mut self, smaller: Scenario) -> bool {
        if self.runs >= self.budget || smaller == self.best {
            return false;
        }
        self.runs += 1;
        let Ok(outcome) = run(&smaller, self.seed, &RunConfig::default()) else { return false };
        match outcome.violation {
            Some(violation) if violation.rule == self.violation.rule => {
                self.best = smaller;
                self.violation = violation;
                true
            }
            _ => false,
        }
    }

    fn all(&mut self) {
        loop {
            let before = self.best.clone();
            self.shorten();
            self.thin(|scenario| &mut scenario.fault);
            self.thin(|scenario| &mut scenario.event);
            self.drop_flows();
            self.lessen_bytes();
            self.simplify();
            if self.best == before || self.runs >= self.budget {
                return;
            }
        }
    }

    /// Ends the faults soon after the violation.
    fn shorten(&mut self) {
        let at = self.violation.at;
        let mut smaller = self.best.clone();
        smaller.faults_until = smaller.faults_until.min(at + Duration::from_millis(1));
        smaller.event.retain(|event| event.at <= smaller.faults_until);
        self.accepts(smaller);
    }

    /// Leaves out elements of a list: halves, then quarters, and so on down to each alone.
    fn thin<T: Clone>(&mut self, list: impl Fn(&mut Scenario) -> &mut Vec<T>) {
        let mut size = list(&mut self.best).len();
        while size > 0 {
            let mut start = 0;
            while start < list(&mut self.best).len() {
                let mut smaller = self.best.clone();
                let elements = list(&mut smaller);
                let end = (start + size).min(elements.len());
                elements.drain(start..end);
                if !self.accepts(smaller) {
                    start = end;
                }
            }
            size /= 2;
        }
    }

    /// Leaves out the last flow, as long as that can be: the others keep their numbers. A flow that
    /// cannot be left out may still send nothing.
    fn drop_flows(&mut self) {
        loop {
            let mut smaller = self.best.clone();
            smaller.flow.pop();
            // No fault may be of a flow that is not there.
            let flows = smaller.flow.len();
            smaller
                .fault
                .retain(|fault| fault.packet.flow.is_none_or(|flow| usize::from(flow) < flows));
            if smaller.flow.is_empty() || !self.accepts(smaller) {
                break;
            }
        }
        for index in 0..self.best.flow.len() {
            let mut smaller = self.best.clone();
            (smaller.flow[index].up, smaller.flow[index].down) = (0, 0);
            self.accepts(smaller);
        }
    }

    fn lessen_bytes(&mut self) {
        for index in 0..self.best.flow.len() {
            for up in [true, false] {
                loop {
                    let mut smaller = self.best.clone();
                    let flow = &mut smaller.flow[index];
                    let bytes = if up { &mut flow.up } else { &mut flow.down };
                    if *bytes < 2 {
                        break;
                    }
                    *bytes /= 2;
                    if !self.accepts(smaller) {
                        break;
                    }
                }
            }
        }
    }

    /// Settings, middleboxes and habits of applications that do not matter.
    fn simplify(&mut self) {
        for index in 0..self.best.host.len() {
            for name in self.best.host[index].sysctl.clone().into_keys() {
                let mut smaller = self.best.clone();
                smaller.host[index].sysctl.remove(&name);
                self.accepts(smaller);
            }
            let mut smaller = self.best.clone();
            (smaller.host[index].offloads, smaller.host[index].ring) = (false, 0);
            self.accepts(smaller);
        }
        for index in 0..self.best.link.len() {
            let mut smaller = self.best.clone();
            smaller.link[index].middlebox.clear();
            self.accepts(smaller);
            let mut smaller = self.best.clone();
            let pair = &mut smaller.link[index];
            pair.forward = pair.forward.without_faults();
            pair.backward = pair.backward.as_ref().map(|config| config.without_faults());
            self.accepts(smaller);
        }
        for index in 0..self.best.flow.len() {
            for client in [true, false] {
                let mut smaller = self.best.clone();
                let flow = &mut smaller.flow[index];
                *(if client { &mut flow.client } else { &mut flow.server }) =
                    Application::default();
                self.accepts(smaller);
            }
        }
    }
}
