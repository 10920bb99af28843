//! splice(2) and sendfile(2).

use plimsoll_tcp::Instant;

use crate::call::SpliceEnd;
use crate::errno::Errno;
use crate::process::{Process, Step, Wait};

impl Process {
    pub(crate) fn splice(
        &mut self,
        _now: Instant,
        _ends: (SpliceEnd, SpliceEnd),
        _len: usize,
        _flags: u32,
        _wait: &mut Wait,
    ) -> Step {
        Step::error(Errno::ENOSYS)
    }

    pub(crate) fn sendfile(
        &mut self,
        _now: Instant,
        _fds: (i32, i32),
        _offset: Option<i64>,
        _count: usize,
        _wait: &mut Wait,
    ) -> Step {
        Step::error(Errno::ENOSYS)
    }
}
