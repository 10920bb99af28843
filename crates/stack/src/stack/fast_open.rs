//! Fast Open for listeners (RFC 7413): keys, cookies, and whether a SYN may open at once.
//!
//! # Theory of operation
//!
//! A cookie is SipHash-2-4 over the two addresses of the SYN under a key of 16 bytes, as on Linux.
//! So servers that share a key accept each other's cookies. The key is the socket's
//! (`TCP_FASTOPEN_KEY`), or else the setting's (`net.ipv4.tcp_fastopen_key`), or else one derived
//! from the stack's secret. With a second key, cookies of either are valid; new ones are made with
//! the first.
//!
//! A SYN opens at once only while fewer connections than the listener's queue length
//! (`TCP_FASTOPEN`) have not ended their handshake. A connection that a reset ended before that,
//! after it was accepted, keeps its place for a minute: spoofed SYNs draw such resets.

use plimsoll_tcp::{Counter, FastOpenAnswer, Segment};
use plimsoll_wire::tcp::FastOpenOption;

use crate::flow::FlowKey;
use crate::sockets::endpoint::ListenerInner;
use crate::sockets::fast_open::{FastOpenKeys, SERVER_ENABLE};
use crate::stack::Stack;
use crate::stack::work::Work;

const SERVER_NO_COOKIE: u32 = 0x200;

impl Stack {
    /// The keys that `net.ipv4.tcp_fastopen_key` was set to.
    pub fn fast_open_keys(&self) -> Option<FastOpenKeys> {
        self.settings().tcp_fastopen_key
    }
}

impl Work<'_> {
    /// How `syn` is answered.
    pub(crate) fn answer_fast_open(
        &self,
        listener: &ListenerInner,
        key: &FlowKey,
        syn: &Segment,
    ) -> FastOpenAnswer {
        let shown = syn.repr.options.syn().fast_open;
        let asks = shown.is_some_and(|option| option.cookie.is_empty());
        if asks {
            self.tcp().bump(Counter::TcpFastOpenCookieReqd);
        }
        let bits = self.settings.tcp_fastopen;
        let wanted = shown.is_some() || !syn.payload.is_empty();
        if bits & SERVER_ENABLE == 0 || !wanted || !self.has_fast_open_place(listener) {
            return FastOpenAnswer::default();
        }
        let free = listener.options().fastopen_no_cookie
            || self.stack.interfaces.routes().metrics(key.remote).fastopen_no_cookie;
        if bits & SERVER_NO_COOKIE != 0 || free {
            self.tcp().bump(Counter::TcpFastOpenPassive);
            return FastOpenAnswer { option: None, early: true };
        }
        let Some(shown) = shown else { return FastOpenAnswer::default() };
        let keys = self.fast_open_keys(listener);
        let given = FastOpenOption { cookie: keys.cookie(key.remote, key.local), ..shown };
        let refused = FastOpenAnswer { option: Some(given), early: false };
        if asks {
            return refused;
        }
        match keys.find(key.remote, key.local, shown.cookie) {
            None => {
                self.tcp().bump(Counter::TcpFastOpenPassiveFail);
                refused
            }
            Some(index) => {
                self.tcp().bump(Counter::TcpFastOpenPassive);
                let outdated = index > 0;
                if outdated {
                    self.tcp().bump(Counter::TcpFastOpenPassiveAltKey);
                }
                FastOpenAnswer { option: outdated.then_some(given), early: true }
            }
        }
    }

    fn has_fast_open_place(&self, listener: &ListenerInner) -> bool {
        let found = listener.fast_open(|queue| queue.check(self.now));
        found.unwrap_or_else(|()| {
            self.tcp().bump(Counter::TcpFastOpenListenOverflow);
            false
        })
    }

    /// The keys that count for `listener`.
    fn fast_open_keys(&self, listener: &ListenerInner) -> FastOpenKeys {
        let own = listener.fast_open(|queue| queue.keys());
        own.or(self.settings.tcp_fastopen_key)
            .unwrap_or_else(|| FastOpenKeys::one(self.stack.policies.secrets().fast_open_key()))
    }
}

#[cfg(test)]
mod tests;
