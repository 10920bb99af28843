//! TCP_FASTOPEN and TCP_FASTOPEN_KEY: what a listener does about Fast Open.

use plimsoll_stack::{FastOpenKeys, Listener, Stack};

use super::{Arg, Value, setting};
use crate::posix::errno::Errno;
use crate::posix::socket::{Link, Socket};

/// The setting that bounds every queue.
const SOMAXCONN: &str = "net.core.somaxconn";

impl Socket {
    /// TCP_FASTOPEN: the queue length, also before listen.
    pub(super) fn set_fastopen(&mut self, stack: &Stack, value: i32) -> Result<(), Errno> {
        let len = usize::try_from(value).map_err(|_| Errno::EINVAL)?;
        match &self.link {
            Link::Stream(_) => return Err(Errno::EINVAL),
            Link::Listener(listener) => listener.set_fast_open_queue(len),
            Link::Idle => {}
        }
        let most = setting(stack, SOMAXCONN, 0).and_then(|most| usize::try_from(most).ok());
        self.set.fastopen_queue = len.min(most.unwrap_or(usize::MAX));
        Ok(())
    }

    pub(super) fn fastopen(&self) -> i32 {
        let len = match &self.link {
            Link::Listener(listener) => listener.fast_open_queue(),
            _ => self.set.fastopen_queue,
        };
        i32::try_from(len).unwrap_or(i32::MAX)
    }

    /// TCP_FASTOPEN_KEY: one key, or one and an older one.
    pub(super) fn set_fastopen_key(&mut self, arg: Arg<'_>) -> Result<(), Errno> {
        if !matches!(arg.len, 16 | 32) {
            return Err(Errno::EINVAL);
        }
        let keys = FastOpenKeys::from_bytes(arg.bytes(arg.len)?);
        self.set.fastopen_keys = keys;
        if let Link::Listener(listener) = &self.link {
            listener.set_fast_open_keys(keys);
        }
        Ok(())
    }

    pub(super) fn fastopen_key(&self, stack: &Stack) -> Value {
        let keys = self.set.fastopen_keys.or_else(|| stack.fast_open_keys());
        Value::Bytes(keys.map_or_else(Vec::new, FastOpenKeys::to_bytes))
    }

    /// Tells a new listener what was set before.
    pub(crate) fn apply_fastopen(&self, listener: &Listener) {
        if self.set.fastopen_queue > 0 {
            listener.set_fast_open_queue(self.set.fastopen_queue);
        }
        listener.set_fast_open_keys(self.set.fastopen_keys);
    }
}
