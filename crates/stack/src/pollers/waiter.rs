//! Where the poller of a queue sleeps.
//!
//! How it waits is in `stack/wait.rs`.

use plimsoll_tcp::Instant;

use crate::error::StackError;
use crate::interfaces::interface::Interface;
use crate::kick::Kick;
use crate::pollers::waiter_role::WaiterRole;

/// Where the poller of a stack sleeps; see [`Stack::wait`](crate::Stack::wait).
pub struct Waiter {
    kick: Kick,
    role: WaiterRole,
}

impl Waiter {
    /// A waiter whose kick is installed in every device.
    pub(crate) fn new<'a>(
        interfaces: impl Iterator<Item = &'a Interface>,
    ) -> Result<Waiter, StackError> {
        let kick = Kick::new()
            .map_err(|error| StackError::System { call: "eventfd", reason: error.to_string() })?;
        interfaces.for_each(|interface| interface.install(&kick));
        Ok(Waiter { kick, role: WaiterRole::default() })
    }

    /// Another handle to the kick.
    pub(crate) fn handle(&self) -> Kick {
        self.kick.clone()
    }

    /// The kick itself.
    pub(crate) fn kick_ref(&self) -> &Kick {
        &self.kick
    }

    /// The waiters.
    pub(crate) fn role(&self) -> &WaiterRole {
        &self.role
    }

    /// Wakes the poller if it sleeps; otherwise it reads its work before it does.
    pub fn kick(&self) {
        self.kick.kick();
    }

    /// Wakes the poller if it means to sleep beyond `at`.
    pub fn kick_before(&self, at: Instant) {
        self.kick.kick_before(at);
    }

    /// Sets whether another thread polls the devices.
    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.kick.set_quiet(quiet);
    }

    /// Times that a sleeping poller was woken.
    pub fn wakes(&self) -> u64 {
        self.kick.wakes()
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({} wakes)", self.wakes())
    }
}
