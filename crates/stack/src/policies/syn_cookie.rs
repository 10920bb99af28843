//! SYN cookies: initial sequence numbers that encode a SYN, so that the listener need not store it.
//! The other parts of the SYN are in the engine's `syn_cookie.rs`.
//!
//! A cookie is a hash of the four-tuple, plus the peer's sequence number, plus the minute in the
//! upper eight bits. Below them it adds a hash of the four-tuple and the minute, with the datum
//! added. It is valid for two minutes. Only listeners that have sent cookies recently accept them,
//! so that no attacker can guess one at leisure.

use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::SeqNum;

use crate::flow::FlowKey;
use crate::policies::secrets::Secrets;

/// The bits below the minute.
const DATA_BITS: u32 = 24;
const DATA_MASK: u32 = (1 << DATA_BITS) - 1;

/// Minutes for which a cookie is valid, including the one in which it was made.
const MOST_MINUTES: u32 = 2;

/// The time for which a listener that has sent a cookie accepts its return.
pub(crate) const VALIDITY: Duration = Duration::from_secs(60 * MOST_MINUTES as u64);

fn minute(now: Instant) -> u32 {
    (now.as_millis() / 60_000) as u32
}

/// The cookie that encodes `data` for a peer whose SYN has the number `irs`.
pub(crate) fn make(
    secrets: &Secrets,
    key: &FlowKey,
    now: Instant,
    irs: SeqNum,
    data: u8,
) -> SeqNum {
    let minute = minute(now);
    let low = secrets.cookie_hash(key, Some(minute)).wrapping_add(u32::from(data)) & DATA_MASK;
    let number = secrets
        .cookie_hash(key, None)
        .wrapping_add(irs.0)
        .wrapping_add(minute << DATA_BITS)
        .wrapping_add(low);
    SeqNum(number)
}

/// The datum of the cookie, if it is still valid. An invalid cookie decodes to any number up to
/// 2^24: most such numbers are recognised because they are too large.
pub(crate) fn check(
    secrets: &Secrets,
    key: &FlowKey,
    now: Instant,
    irs: SeqNum,
    cookie: SeqNum,
) -> Option<u8> {
    let number = cookie.0.wrapping_sub(secrets.cookie_hash(key, None)).wrapping_sub(irs.0);
    let minute = minute(now);
    let age = minute.wrapping_sub(number >> DATA_BITS) & (u32::MAX >> DATA_BITS);
    if age >= MOST_MINUTES {
        return None;
    }
    let hash = secrets.cookie_hash(key, Some(minute.wrapping_sub(age)));
    u8::try_from(number.wrapping_sub(hash) & DATA_MASK).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> FlowKey {
        let local = "192.0.2.1".parse().unwrap();
        let remote = "192.0.2.2".parse().unwrap();
        FlowKey { local, remote, local_port: 80, remote_port: 5 }
    }

    proptest! {
        #[test]
        fn come_back_within_two_minutes(irs: u32, data: u8, at in 0_u64..1 << 40) {
            let secrets = Secrets::new([7; 32], 0);
            let made = Instant::from_millis(at);
            let cookie = make(&secrets, &key(), made, SeqNum(irs), data);
            let check = |millis, cookie| {
                check(&secrets, &key(), Instant::from_millis(at + millis), SeqNum(irs), cookie)
            };
            prop_assert_eq!(check(0, cookie), Some(data));
            prop_assert_eq!(check(60_000, cookie), Some(data));
            prop_assert_eq!(check(120_000, cookie), None);
        }
    }

    #[test]
    fn belong_to_one_flow_and_one_secret() {
        let secrets = Secrets::new([7; 32], 0);
        let now = Instant::from_millis(1);
        let irs = SeqNum(99);
        let cookie = make(&secrets, &key(), now, irs, 3);
        let other = FlowKey { remote_port: 6, ..key() };
        assert_ne!(make(&secrets, &other, now, irs, 3), cookie);
        // One guess in 2^21 finds a datum; these do not.
        assert_eq!(check(&secrets, &other, now, irs, cookie).filter(|&data| data < 8), None);
        let others = Secrets::new([8; 32], 0);
        assert_eq!(check(&others, &key(), now, irs, cookie).filter(|&data| data < 8), None);
        let shifted = check(&secrets, &key(), now, irs + 5, cookie);
        assert_eq!(shifted.filter(|&data| data < 8), None);
    }
}
