//! Code blocks over `TCP_INFO`.

use super::flow::Flow;
use super::{Runner, tcp_info};
use crate::expr::{CodeError, Scope};
use crate::failure::Failure;
use crate::lang::ast::Span;

/// Names that every block knows.
const CONSTANTS: &[(&str, i64)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
    ("TCPI_OPT_TIMESTAMPS", 1),
    ("TCPI_OPT_SACK", 2),
    ("TCPI_OPT_WSCALE", 4),
    ("TCPI_OPT_ECN", 8),
    ("TCPI_OPT_ECN_SEEN", 16),
    ("TCPI_OPT_SYN_DATA", 32),
    ("TCPI_OPT_USEC_TS", 64),
    ("TCPI_OPT_TFO_CHILD", 128),
    ("TCP_INFINITE_SSTHRESH", 0x7fff_ffff),
];

/// A scope with the constants.
pub(super) fn constants() -> Scope {
    let mut scope = Scope::default();
    for &(name, value) in CONSTANTS {
        scope.give(name, value);
    }
    scope
}

impl Runner<'_> {
    /// Runs a block with the figures of the socket that packets are about.
    pub(super) fn code(&mut self, text: &str, span: &Span) -> Result<(), Failure> {
        let open = |flow: &Flow| flow.live_fd.is_some() && !flow.closed;
        if !self.under_test.is_some_and(|at| open(&self.flows[at])) && self.slack() > 0 {
            // On a real clock, the call that gives the descriptor may be a moment late.
            self.await_idle()?;
        }
        let flow = self.under_test.map(|at| &self.flows[at]);
        let fd = flow.and_then(|flow| flow.live_fd.filter(|_| !flow.closed));
        let fd = fd.ok_or_else(|| {
            Failure::script(span, "there is no open socket whose figures the code could look at")
        })?;
        let bytes = self.host.tcp_info(fd).map_err(super::broken(span))?;
        for (name, value) in tcp_info::fields(&bytes) {
            self.scope.give(name, value);
        }
        let outcome = self.scope.run(text, &mut self.traces.printed);
        outcome.map_err(|error| match error {
            CodeError::Wrong(text) => Failure::script(span, text),
            CodeError::Failed { condition, values, message } => {
                let known: Vec<String> =
                    values.iter().map(|(name, value)| format!("{name} is {value}")).collect();
                let mut text = format!("the assertion does not hold: {condition}");
                let said = message.filter(|said| values.iter().all(|(_, value)| value != said));
                if let Some(said) = said {
                    text.push_str(&format!(" ({said})"));
                }
                let failure = Failure::stack(span, text);
                if known.is_empty() { failure } else { failure.with(condition, known.join(", ")) }
            }
        })
    }
}
