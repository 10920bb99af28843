//! MSG_ERRQUEUE: reports of the error queue as ancillary messages.

use plimsoll_tcp::{ErrorReport, Instant, TxStage};

use crate::posix::call::ControlMessage;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::Step;
use crate::posix::receive::{Receiving, fit_control, received};
use crate::posix::socket::Socket;

/// Bytes of sockaddr_in and sockaddr_in6, which follow a sock_extended_err.
const OFFENDER: [usize; 2] = [16, 28];

impl Socket {
    pub(crate) fn receive_error_queue(&self, receiving: &Receiving<'_>) -> Step {
        let report = self.stream().and_then(|stream| stream.take_report());
        let Some(report) = report else { return Step::error(Errno::EAGAIN) };
        let mut control = Vec::new();
        let mut flags = MSG_ERRQUEUE;
        match report {
            ErrorReport::ZeroCopy { first, last, copied } => {
                let code = if copied { SO_EE_CODE_ZEROCOPY_COPIED } else { 0 };
                control.push(self.extended_error(0, (SO_EE_ORIGIN_ZEROCOPY, code), (first, last)));
            }
            ErrorReport::Timestamp { stage, key, at } => {
                if self.set.timestamping & SOF_TIMESTAMPING_SOFTWARE != 0 {
                    control.push(timestamp(at));
                }
                let stage = match stage {
                    TxStage::Sent => SCM_TSTAMP_SND,
                    TxStage::Sched => SCM_TSTAMP_SCHED,
                    TxStage::Acked => SCM_TSTAMP_ACK,
                };
                control.push(self.extended_error(
                    Errno::ENOMSG.0,
                    (SO_EE_ORIGIN_TIMESTAMPING, 0),
                    (stage as u32, key),
                ));
                // Linux has the packet with it; here it is left out, as if there were no room.
                if self.set.timestamping & SOF_TIMESTAMPING_OPT_TSONLY == 0 {
                    flags |= MSG_TRUNC;
                }
            }
            // What Linux's queue has no message for.
            _ => return Step::error(Errno::EAGAIN),
        }
        if !fit_control(&mut control, receiving.control_len) {
            flags |= MSG_CTRUNC;
        }
        received(Vec::new(), 0, flags, control)
    }

    /// A `sock_extended_err` with an empty address of the offender.
    fn extended_error(
        &self,
        errno: i32,
        (origin, code): (i32, i32),
        (info, data): (u32, u32),
    ) -> ControlMessage {
        let v6 = self.domain == AF_INET6;
        let mut bytes = Vec::with_capacity(16 + OFFENDER[usize::from(v6)]);
        bytes.extend_from_slice(&errno.to_ne_bytes());
        // ee_origin, ee_type, ee_code, ee_pad.
        bytes.extend_from_slice(&[origin as u8, 0, code as u8, 0]);
        bytes.extend_from_slice(&info.to_ne_bytes());
        bytes.extend_from_slice(&data.to_ne_bytes());
        bytes.resize(16 + OFFENDER[usize::from(v6)], 0);
        let (level, kind) = if v6 { (SOL_IPV6, IPV6_RECVERR) } else { (SOL_IP, IP_RECVERR) };
        ControlMessage { level, kind, data: bytes }
    }
}

/// A `scm_timestamping`: three times, of which the first is the software's.
fn timestamp(at: Instant) -> ControlMessage {
    let nanos = at.as_nanos();
    let mut data = vec![0; 48];
    data[..8].copy_from_slice(&(nanos / 1_000_000_000).to_ne_bytes());
    data[8..16].copy_from_slice(&(nanos % 1_000_000_000).to_ne_bytes());
    ControlMessage { level: SOL_SOCKET, kind: SCM_TIMESTAMPING, data }
}
