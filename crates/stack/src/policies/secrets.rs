//! Values that must not be predictable: initial sequence numbers, ports, timestamp offsets, hash
//! keys.

use std::hash::Hasher;
use std::net::IpAddr;

use plimsoll_tcp::Instant;
use plimsoll_wire::SeqNum;
use siphasher::sip::SipHasher24;

use crate::flow::{FlowKey, write_ip};

/// The use of a keyed hash; the same four-tuple gives unrelated values for each.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Isn,
    TimestampOffset,
    Seed,
    PortOffset,
    PortCounter,
    FlowLabel,
    FastOpenKey,
    Cookie,
    CookieMinute,
    FragmentIdent,
    DatagramPort,
}

/// The stack's secret, divided up.
pub(crate) struct Secrets {
    /// Key of the tables' hashes.
    table_key: [u8; 16],
    /// Key of everything that peers get to see.
    value_key: [u8; 16],
    seed: u64,
}

impl Secrets {
    /// The key of the tables' hashes.
    pub(crate) fn table_key(&self) -> &[u8; 16] {
        &self.table_key
    }

    pub(crate) fn new(secret: [u8; 32], seed: u64) -> Secrets {
        let mut table_key = [0; 16];
        let mut value_key = [0; 16];
        table_key.copy_from_slice(&secret[..16]);
        value_key.copy_from_slice(&secret[16..]);
        Secrets { table_key, value_key, seed }
    }

    fn hash(&self, purpose: Purpose, key: &FlowKey) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.value_key);
        hasher.write_u8(purpose as u8);
        key.write_to(&mut hasher);
        hasher.finish()
    }

    /// The hashes of SYN cookies: one for the four-tuple, and one for it in each minute.
    pub(crate) fn cookie_hash(&self, key: &FlowKey, minute: Option<u32>) -> u32 {
        let Some(minute) = minute else { return self.hash(Purpose::Cookie, key) as u32 };
        let mut hasher = SipHasher24::new_with_key(&self.value_key);
        hasher.write_u8(Purpose::CookieMinute as u8);
        key.write_to(&mut hasher);
        hasher.write_u32(minute);
        hasher.finish() as u32
    }

    /// The key of Fast Open cookies, if none is set.
    pub(crate) fn fast_open_key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        for (half, part) in key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let mut hasher = SipHasher24::new_with_key(&self.value_key);
            hasher.write_u8(Purpose::FastOpenKey as u8);
            hasher.write_u8(half as u8);
            *part = hasher.finish().to_le_bytes();
        }
        key
    }

    /// The initial sequence number of RFC 6528.
    pub(crate) fn isn(&self, key: &FlowKey, now: Instant) -> SeqNum {
        plimsoll_tcp::initial_sequence_number(now, self.hash(Purpose::Isn, key) as u32)
    }

    /// The offset of the timestamp clock (RFC 7323, section 5.4). It is the same for every
    /// connection of a four-tuple, so that TIME-WAIT can be reused.
    pub(crate) fn ts_offset(&self, key: &FlowKey) -> u32 {
        self.hash(Purpose::TimestampOffset, key) as u32
    }

    /// The seed of a connection's own randomness.
    pub(crate) fn connection_seed(&self, key: &FlowKey) -> u64 {
        self.hash(Purpose::Seed, key) ^ self.seed
    }

    /// The flow label of RFC 6437: one value per connection.
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        self.hash(Purpose::FlowLabel, key) as u32 & 0x000f_ffff
    }

    /// Where the identifications of fragments between two addresses begin (RFC 7739, section 5.3).
    pub(crate) fn fragment_ident(&self, src: IpAddr, dst: IpAddr) -> u32 {
        let key = FlowKey { local: src, remote: dst, local_port: 0, remote_port: 0 };
        self.hash(Purpose::FragmentIdent, &key) as u32
    }

    /// Where the search for the port of a UDP socket begins, for the `count`th of them.
    pub(crate) fn datagram_port(&self, count: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.value_key);
        hasher.write_u8(Purpose::DatagramPort as u8);
        hasher.write_u32(count);
        hasher.finish() as u32
    }

    /// F of RFC 6056, section 3.3.3: where the search for a port begins.
    pub(crate) fn port_offset(&self, key: &FlowKey) -> u32 {
        self.hash(Purpose::PortOffset, &FlowKey { local_port: 0, ..*key }) as u32
    }

    /// G of RFC 6056, section 3.3.4: which counter of the table is used.
    pub(crate) fn port_counter(&self, key: &FlowKey) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.value_key);
        hasher.write_u8(Purpose::PortCounter as u8);
        write_ip(key.remote, &mut hasher);
        hasher.write_u16(key.remote_port);
        hasher.finish() as u32
    }
}
