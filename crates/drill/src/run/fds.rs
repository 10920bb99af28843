//! Descriptors of the script and those of the host.

use super::Runner;
use super::flow::Flow;

/// A descriptor that is no socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    script: i32,
    live: i32,
    closed: bool,
}

impl Runner<'_> {
    /// The host's descriptor for one of the script.
    ///
    /// # Errors
    /// If the script has none such; the text names it.
    pub(super) fn live_fd(&self, script: i32) -> Result<i32, String> {
        let socket = self.flow_of(script).and_then(|at| self.flows[at].live_fd);
        let other = || {
            let found = self.others.iter().find(|fd| !fd.closed && fd.script == script);
            found.map(|fd| fd.live)
        };
        socket.or_else(other).ok_or_else(|| format!("the script has no descriptor {script}"))
    }

    /// The place of the socket with the script's descriptor `script`.
    pub(super) fn flow_of(&self, script: i32) -> Option<usize> {
        let is_it = |flow: &Flow| !flow.closed && flow.script_fd == Some(script);
        self.flows.iter().rposition(is_it)
    }

    /// Checks that a new descriptor is new.
    pub(super) fn check_new(&self, script: i32, live: i32) -> Result<(), String> {
        if self.live_fd(script).is_ok() {
            return Err(format!("the script has a descriptor {script} already"));
        }
        self.check_live(live)
    }

    /// Checks that a new descriptor of the host is new. Sockets that a script accepts may have the
    /// same number in it; the last one counts.
    pub(super) fn check_live(&self, live: i32) -> Result<(), String> {
        let taken = |flow: &Flow| !flow.closed && flow.live_fd == Some(live);
        if self.flows.iter().any(taken)
            || self.others.iter().any(|fd| !fd.closed && fd.live == live)
        {
            return Err(format!("the host gave descriptor {live} twice"));
        }
        Ok(())
    }

    /// Notes a descriptor that is no socket.
    pub(super) fn add_other(&mut self, script: i32, live: i32) -> Result<(), String> {
        self.check_new(script, live)?;
        self.others.push(Other { script, live, closed: false });
        Ok(())
    }

    /// Notes that a descriptor was closed.
    pub(super) fn note_closed(&mut self, script: i32) {
        if let Some(at) = self.flow_of(script) {
            self.flows[at].closed = true;
        } else if let Some(fd) = self.others.iter_mut().find(|fd| !fd.closed && fd.script == script)
        {
            fd.closed = true;
        }
    }
}
