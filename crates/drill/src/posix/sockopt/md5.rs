//! TCP_MD5SIG: keys for peers, set before the connection exists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plimsoll_stack::Listener;
use plimsoll_tcp::{MAX_MD5_KEY_LEN, Md5Key, Options};

use super::Arg;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::socket::{Link, Socket};

/// Where the fields of `struct tcp_md5sig` are. The address is a `sockaddr_storage`.
const FLAGS_AT: usize = 128;
const PREFIX_AT: usize = 129;
const KEY_LEN_AT: usize = 130;
const KEY_AT: usize = 136;
const LEN: usize = KEY_AT + MAX_MD5_KEY_LEN;
/// The prefix length counts.
const FLAG_PREFIX: u8 = 1;

impl Socket {
    /// TCP_MD5SIG and TCP_MD5SIG_EXT, before connect or on a listener; an open connection keeps its
    /// key. A key of no bytes takes the key of the peer away.
    pub(super) fn set_md5(&mut self, name: i32, arg: Arg<'_>) -> Result<(), Errno> {
        if arg.len < LEN {
            return Err(Errno::EINVAL);
        }
        let bytes = arg.bytes(LEN)?;
        let (peer, width) = peer_of(bytes).ok_or(Errno::EINVAL)?;
        let with_prefix = name == TCP_MD5SIG_EXT && bytes[FLAGS_AT] & FLAG_PREFIX != 0;
        let prefix = if with_prefix { bytes[PREFIX_AT] } else { width };
        let key_len = usize::from(u16::from_ne_bytes([bytes[KEY_LEN_AT], bytes[KEY_LEN_AT + 1]]));
        if prefix > width || key_len > MAX_MD5_KEY_LEN || matches!(self.link, Link::Stream(_)) {
            return Err(Errno::EINVAL);
        }
        let key = Md5Key::new(&bytes[KEY_AT..KEY_AT + key_len]);
        let removes = key.is_none();
        if !self.set.md5_keys.set(peer, prefix, key) && removes {
            return Err(Errno::ENOENT);
        }
        if let Link::Listener(listener) = &self.link {
            self.apply_md5(listener);
        }
        Ok(())
    }

    /// Tells a listener what was set.
    pub(crate) fn apply_md5(&self, listener: &Listener) {
        listener.set_md5_keys(self.set.md5_keys.clone());
    }

    /// The options of a connection to `peer`.
    pub(crate) fn options_to(&self, peer: IpAddr) -> Options {
        self.tcp.clone().md5_key(self.set.md5_keys.find(peer).cloned())
    }
}

/// The address, and how many bits it has.
fn peer_of(bytes: &[u8]) -> Option<(IpAddr, u8)> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    match family {
        AF_INET => {
            let octets: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some((Ipv4Addr::from(octets).into(), 32))
        }
        AF_INET6 => {
            let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
            let ip = Ipv6Addr::from(octets);
            Some(ip.to_ipv4_mapped().map_or((ip.into(), 128), |ip| (ip.into(), 32)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `struct tcp_md5sig` for 192.0.2.7.
    fn sig(flags: u8, prefix: u8, key: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        bytes[0] = AF_INET as u8;
        bytes[4..8].copy_from_slice(&[192, 0, 2, 7]);
        (bytes[FLAGS_AT], bytes[PREFIX_AT]) = (flags, prefix);
        bytes[KEY_LEN_AT..][..2].copy_from_slice(&(key.len() as u16).to_ne_bytes());
        let fits = key.len().min(MAX_MD5_KEY_LEN);
        bytes[KEY_AT..][..fits].copy_from_slice(&key[..fits]);
        bytes
    }

    fn set(socket: &mut Socket, name: i32, bytes: &[u8]) -> Result<(), Errno> {
        socket.set_md5(name, Arg { value: Some(bytes), len: bytes.len() })
    }

    #[test]
    fn keys_are_for_peers() {
        let mut socket = Socket::new(AF_INET);
        let (peer, other) = ([192, 0, 2, 7].into(), [192, 0, 2, 8].into());
        set(&mut socket, TCP_MD5SIG, &sig(FLAG_PREFIX, 24, b"one")).unwrap();
        assert_eq!(socket.options_to(peer).md5_key, Md5Key::new(b"one"));
        assert_eq!(socket.options_to(other).md5_key, None, "only the other name has prefixes");
        set(&mut socket, TCP_MD5SIG_EXT, &sig(FLAG_PREFIX, 24, b"two")).unwrap();
        assert_eq!(socket.options_to(other).md5_key, Md5Key::new(b"two"));
        set(&mut socket, TCP_MD5SIG, &sig(0, 0, b"")).unwrap();
        assert_eq!(socket.options_to(peer).md5_key, Md5Key::new(b"two"));
    }

    #[test]
    fn wrong_arguments() {
        let mut socket = Socket::new(AF_INET);
        let mut of_no_family = sig(0, 0, b"key");
        of_no_family[0] = 99;
        for (name, bytes, expected) in [
            (TCP_MD5SIG, sig(0, 0, b""), Errno::ENOENT),
            (TCP_MD5SIG, sig(0, 0, &[1; 81]), Errno::EINVAL),
            (TCP_MD5SIG_EXT, sig(FLAG_PREFIX, 33, b"key"), Errno::EINVAL),
            (TCP_MD5SIG, sig(0, 0, b"key")[..LEN - 1].to_vec(), Errno::EINVAL),
            (TCP_MD5SIG, of_no_family, Errno::EINVAL),
        ] {
            assert_eq!(set(&mut socket, name, &bytes), Err(expected), "{bytes:?}");
        }
        let null = Arg { value: None, len: LEN };
        assert_eq!(socket.set_md5(TCP_MD5SIG, null), Err(Errno::EFAULT));
    }
}
