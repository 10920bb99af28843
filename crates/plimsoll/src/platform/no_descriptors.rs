//! Devices on systems without descriptors to watch: each device wakes its loop by a call.

use std::io;
use std::task::Context;

use plimsoll_stack::StackError;
use plimsoll_stack::device::WaitSource;

use super::Watch;

/// Has nothing to watch.
#[derive(Default)]
pub(crate) struct DeviceWatcher;

impl DeviceWatcher {
    #[allow(clippy::unnecessary_wraps, reason = "with descriptors, this fails")]
    pub(crate) fn probe() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn forget(&mut self, _cx: &mut Context<'_>) -> Result<(), StackError> {
        Ok(())
    }

    pub(crate) fn watch(
        &mut self,
        _devices: impl Iterator<Item = (WaitSource, bool)>,
        _cx: &mut Context<'_>,
    ) -> Result<Watch, StackError> {
        Ok(Watch::Same)
    }
}
