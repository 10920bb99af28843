//! Structures of C that scripts, the kernel and the original tool pass around: addresses and
//! ancillary messages, as bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::posix::ControlMessage;

/// `AF_INET` and `AF_INET6`.
const INET: u16 = 2;
const INET6: u16 = 10;

/// The size of `struct sockaddr_storage`: room for any address.
pub const ADDRESS_ROOM: usize = 128;

/// Stands for an address of the family `AF_UNSPEC` as the destination of data.
pub const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The size of `struct cmsghdr`, and what everything in control data is aligned to.
const CONTROL_HEADER: usize = 16;
const CONTROL_ALIGN: usize = 8;

/// The bytes of `struct sockaddr_in` or `struct sockaddr_in6`.
pub fn address_bytes(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(INET.to_ne_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(INET6.to_ne_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// The address in these bytes; `None` if there is none of the two families.
pub fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into())
        }
        INET6 => {
            let flow = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Control data that holds these messages.
pub fn control_bytes(messages: &[ControlMessage]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend((CONTROL_HEADER + message.data.len()).to_ne_bytes());
        bytes.extend(message.level.to_ne_bytes());
        bytes.extend(message.kind.to_ne_bytes());
        bytes.extend(&message.data);
        bytes.resize(bytes.len().next_multiple_of(CONTROL_ALIGN), 0);
    }
    bytes
}

/// The messages in control data, as far as they are whole.
pub fn control(bytes: &[u8]) -> Vec<ControlMessage> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while let Some((head, body)) = rest.split_at_checked(CONTROL_HEADER) {
        let word = |at: usize| head[at..at + 4].try_into().map_or(0, i32::from_ne_bytes);
        let size = head[..8].try_into().map_or(0, usize::from_ne_bytes);
        let data = size.checked_sub(CONTROL_HEADER).and_then(|len| body.get(..len));
        let Some(data) = data else { break };
        messages.push(ControlMessage { level: word(8), kind: word(12), data: data.to_vec() });
        rest = body.get(data.len().next_multiple_of(CONTROL_ALIGN)..).unwrap_or(&[]);
    }
    messages
}

#[cfg(test)]
mod tests {
    use crate::posix::ControlMessage;

    use super::{address, address_bytes, control, control_bytes};

    #[test]
    fn addresses_there_and_back() {
        for text in ["192.0.2.1:8080", "[2001:db8::1]:443", "[::ffff:198.51.100.7]:1"] {
            let written = text.parse().unwrap();
            assert_eq!(address(&address_bytes(written)), Some(written));
        }
        assert_eq!(address(&[]), None);
        assert_eq!(address(&[0; 16]), None);
    }

    #[test]
    fn control_messages_there_and_back() {
        let messages = vec![
            ControlMessage { level: 1, kind: 2, data: vec![1, 2, 3, 4] },
            ControlMessage { level: 6, kind: 36, data: vec![5; 17] },
        ];
        let bytes = control_bytes(&messages);
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(control(&bytes), messages);
        assert_eq!(control(&bytes[..30]), messages[..1]);
        assert_eq!(control(&[0; 64]), []);
    }
}
