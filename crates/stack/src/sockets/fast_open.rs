//! The keys of Fast Open, and a listener's queue of connections that opened by it.
//!
//! The code that uses them is in `stack/fast_open.rs`.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::tcp::FastOpenCookie;
use siphasher::sip::SipHasher24;

/// Bits of `net.ipv4.tcp_fastopen`.
pub(crate) const SERVER_ENABLE: u32 = 0x2;
/// Every listener has Fast Open, also without TCP_FASTOPEN.
const EVERY_LISTENER: u32 = 0x400;

/// How long a connection that a reset ended early keeps its place.
const RESET_HOLDS: Duration = Duration::from_secs(60);

/// Bytes of a key.
const KEY_LEN: usize = 16;

/// One or two keys that cookies are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenKeys {
    primary: [u8; KEY_LEN],
    backup: Option<[u8; KEY_LEN]>,
}

impl FastOpenKeys {
    /// The keys with the given `bytes`, one after the other (`TCP_FASTOPEN_KEY`); `None` unless
    /// there are 16 or 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<FastOpenKeys> {
        let (keys, []) = bytes.as_chunks::<KEY_LEN>() else { return None };
        match *keys {
            [primary] => Some(FastOpenKeys { primary, backup: None }),
            [primary, backup] => Some(FastOpenKeys { primary, backup: Some(backup) }),
            _ => None,
        }
    }

    /// One key.
    pub(crate) fn one(primary: [u8; KEY_LEN]) -> FastOpenKeys {
        FastOpenKeys { primary, backup: None }
    }

    /// The bytes of the keys, one after the other.
    pub fn to_bytes(self) -> Vec<u8> {
        [&self.primary[..], self.backup.as_ref().map_or(&[], |key| &key[..])].concat()
    }

    /// Parses the keys in `text`: four groups of hexadecimal digits, joined by dashes, and after a
    /// comma the same for a second one (`net.ipv4.tcp_fastopen_key`).
    pub(crate) fn parse(text: &str) -> Option<FastOpenKeys> {
        let mut keys = text.split(',').map(|key| parse_key(key.trim()));
        let primary = keys.next()??;
        let backup = match keys.next() {
            Some(key) => Some(key?),
            None => None,
        };
        keys.next().is_none().then_some(FastOpenKeys { primary, backup })
    }

    /// The cookie that `remote` gets from `local`.
    pub(crate) fn cookie(&self, remote: IpAddr, local: IpAddr) -> FastOpenCookie {
        cookie(&self.primary, remote, local)
    }

    /// Which key, counted from zero, gave `remote` the cookie `shown`, if any did.
    pub(crate) fn find(
        &self,
        remote: IpAddr,
        local: IpAddr,
        shown: FastOpenCookie,
    ) -> Option<usize> {
        let keys = [Some(&self.primary), self.backup.as_ref()];
        keys.iter().flatten().position(|key| cookie(key, remote, local) == shown)
    }
}

impl fmt::Display for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_key(&self.primary, f)?;
        if let Some(backup) = &self.backup {
            f.write_str(",")?;
            show_key(backup, f)?;
        }
        Ok(())
    }
}

/// The groups of a key are numbers with the low byte first.
fn parse_key(text: &str) -> Option<[u8; KEY_LEN]> {
    let mut groups = text.split('-').map(|group| u32::from_str_radix(group, 16));
    let mut key = [0; KEY_LEN];
    for part in key.as_chunks_mut::<4>().0 {
        *part = groups.next()?.ok()?.to_le_bytes();
    }
    groups.next().is_none().then_some(key)
}

fn show_key(key: &[u8; KEY_LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, group) in key.as_chunks::<4>().0.iter().enumerate() {
        let dash = if index > 0 { "-" } else { "" };
        write!(f, "{dash}{:08x}", u32::from_le_bytes(*group))?;
    }
    Ok(())
}

fn cookie(key: &[u8; KEY_LEN], remote: IpAddr, local: IpAddr) -> FastOpenCookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for ip in [remote, local] {
        match ip {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
    }
    FastOpenCookie::new(&hasher.finish().to_le_bytes()).unwrap_or_default()
}

/// The connections of one listener that opened at once and have not ended their handshake.
#[derive(Debug, Default)]
pub(crate) struct FastOpenQueue {
    /// TCP_FASTOPEN: how many there may be.
    limit: usize,
    /// TCP_FASTOPEN_KEY.
    keys: Option<FastOpenKeys>,
    /// The number of them, including those that a reset ended recently.
    taken: usize,
    /// When their places are free again.
    resets: VecDeque<Instant>,
}

impl FastOpenQueue {
    /// How many connections there may be.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Changes how many connections there may be.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The keys of the listener itself.
    pub(crate) fn keys(&self) -> Option<FastOpenKeys> {
        self.keys
    }

    /// Changes the keys of the listener itself.
    pub(crate) fn set_keys(&mut self, keys: Option<FastOpenKeys>) {
        self.keys = keys;
    }

    /// Whether there is a place. `Err` if Fast Open is on and there is none.
    pub(crate) fn check(&mut self, now: Instant) -> Result<bool, ()> {
        if self.taken >= self.limit && self.limit > 0 {
            match self.resets.front() {
                Some(&until) if until <= now => {
                    self.resets.pop_front();
                    self.taken -= 1;
                }
                _ => return Err(()),
            }
        }
        Ok(self.limit > 0)
    }

    /// Takes a place.
    pub(crate) fn begin(&mut self) {
        self.taken += 1;
    }

    /// A handshake has ended; `reset` if by a reset that has to be paid for.
    pub(crate) fn end(&mut self, now: Instant, reset: bool) {
        if reset {
            self.resets.push_back(now + RESET_HOLDS);
        } else {
            self.taken = self.taken.saturating_sub(1);
        }
    }
}

/// The queue length of a listener without TCP_FASTOPEN.
pub(crate) fn default_queue(tcp_fastopen: u32, backlog: usize) -> usize {
    let everywhere = SERVER_ENABLE | EVERY_LISTENER;
    if tcp_fastopen & everywhere == everywhere { backlog } else { 0 }
}
