//! The server name in the first message of TLS (RFC 8446, section 4.1.2; RFC 6066, section 3).

/// The most bytes in which a ClientHello has to be whole.
pub const LONGEST: usize = 16 * 1024;

/// A handshake message's record type, and the record types that TLS may send at all.
const HANDSHAKE: u8 = 22;
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=26;
/// Bytes of a record's head: type, version, length.
const RECORD_HEAD: usize = 5;
/// Bytes of a handshake message's head: type, length.
const MESSAGE_HEAD: usize = 4;
const CLIENT_HELLO: u8 = 1;
/// Bytes of the version and the random number.
const VERSION_AND_RANDOM: usize = 34;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// They are not all there.
    Incomplete,
    /// They are no TLS.
    Other,
    /// They begin as TLS, and are no ClientHello.
    Malformed,
    /// A ClientHello without a server name.
    Nameless,
    /// A ClientHello with this server name, in small letters. With an encrypted ClientHello it is
    /// the outer one.
    Name(String),
}

/// A part of the message, read from its front.
struct Part<'a>(&'a [u8]);

impl<'a> Part<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |sum, &byte| (sum << 8) | usize::from(byte)))
    }

    /// A value with its length before it, which has so many bytes.
    fn value(&mut self, length_bytes: usize) -> Option<Part<'a>> {
        let len = self.number(length_bytes)?;
        self.take(len).map(Part)
    }
}

/// Reads the first bytes of a client.
pub fn read(bytes: &[u8]) -> Hello {
    let Some(&first) = bytes.first() else { return Hello::Incomplete };
    // Every version since SSL 3.0 has 3 there.
    if !RECORD_TYPES.contains(&first) || bytes.get(1).is_some_and(|&major| major != 3) {
        return Hello::Other;
    }
    if first != HANDSHAKE {
        // A server may pass such a record over, and read a ClientHello after it.
        return if bytes.len() > 1 { Hello::Malformed } else { Hello::Incomplete };
    }
    match message(bytes) {
        Ok(message) => server_name(&message).unwrap_or(Hello::Malformed),
        Err(found) => found,
    }
}

/// The first handshake message, which may be in several records.
fn message(mut bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut message = Vec::new();
    loop {
        if let Some(&[kind, a, b, c]) = message.first_chunk::<MESSAGE_HEAD>() {
            let len = MESSAGE_HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
            if kind != CLIENT_HELLO || len > LONGEST {
                return Err(Hello::Malformed);
            }
            if message.len() >= len {
                message.truncate(len);
                return Ok(message);
            }
        }
        let Some(&[kind, major, _, high, low]) = bytes.first_chunk::<RECORD_HEAD>() else {
            return Err(Hello::Incomplete);
        };
        if kind != HANDSHAKE || major != 3 {
            return Err(Hello::Malformed);
        }
        let end = RECORD_HEAD + usize::from(u16::from_be_bytes([high, low]));
        let Some(record) = bytes.get(RECORD_HEAD..end) else {
            return Err(Hello::Incomplete);
        };
        message.extend_from_slice(record);
        bytes = &bytes[end..];
    }
}

/// `None` if it is malformed.
fn server_name(message: &[u8]) -> Option<Hello> {
    let mut part = Part(message.get(MESSAGE_HEAD..)?);
    part.take(VERSION_AND_RANDOM)?;
    // The session, the ciphers, the compressions.
    for length_bytes in [1, 2, 1] {
        part.value(length_bytes)?;
    }
    if part.0.is_empty() {
        // Before TLS 1.2 there may be no extensions.
        return Some(Hello::Nameless);
    }
    let mut extensions = part.value(2)?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let value = extensions.value(2)?;
        if kind == usize::from(SERVER_NAME) && found.replace(host_name(value)?).is_some() {
            // Servers differ in which of two they take.
            return None;
        }
    }
    let empty_rest = part.0.is_empty();
    empty_rest.then(|| found.map_or(Hello::Nameless, Hello::Name))
}

fn host_name(mut value: Part<'_>) -> Option<String> {
    let mut list = value.value(2)?;
    let kind = list.number(1)?;
    let name = list.value(2)?.0;
    let alone = kind == usize::from(HOST_NAME) && list.0.is_empty() && value.0.is_empty();
    let name = std::str::from_utf8(name).ok().filter(|name| alone && name.is_ascii())?;
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello with these extensions, in records of at most `longest` bytes.
    fn hello(extensions: &[(u16, Vec<u8>)], longest: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let mut all = Vec::new();
        for (kind, value) in extensions {
            all.extend(kind.to_be_bytes());
            all.extend((value.len() as u16).to_be_bytes());
            all.extend(value);
        }
        body.extend((all.len() as u16).to_be_bytes());
        body.extend(all);
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        let mut bytes = Vec::new();
        for part in message.chunks(longest) {
            bytes.extend([22, 3, 1]);
            bytes.extend((part.len() as u16).to_be_bytes());
            bytes.extend(part);
        }
        bytes
    }

    fn name(name: &str) -> (u16, Vec<u8>) {
        let len = name.len() as u16;
        let mut value = (len + 3).to_be_bytes().to_vec();
        value.push(0);
        value.extend(len.to_be_bytes());
        value.extend(name.bytes());
        (0, value)
    }

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let encrypted = (0xfe0d, vec![0; 200]);
        for longest in [1, 3, 40, 16_384] {
            let bytes = hello(&[encrypted.clone(), name("A.Example.")], longest);
            assert_eq!(read(&bytes), Hello::Name("a.example".into()));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Hello::Incomplete, "{longest} {end}");
            }
        }
        assert_eq!(read(&hello(&[encrypted], 100)), Hello::Nameless);
    }

    #[test]
    fn other_bytes_are_no_hello() {
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", &[22, 2, 0], &[0x80, 0x2e, 1]] {
            assert_eq!(read(other), Hello::Other, "{other:?}");
        }
        // An alert, and a record of the change of ciphers, before the hello.
        for first in [20, 21] {
            let mut bytes = vec![first, 3, 3, 0, 1, 1];
            bytes.extend(hello(&[name("a.example")], 500));
            assert_eq!(read(&bytes), Hello::Malformed);
        }
        let twice = hello(&[name("a.example"), name("b.example")], 500);
        assert_eq!(read(&twice), Hello::Malformed);
        let mut long = hello(&[name("a.example")], 500);
        long[6] = 1;
        assert_eq!(read(&long), Hello::Malformed);
        let mut cut = hello(&[name("a.example")], 500);
        cut[5 + 4 + 34] = 200;
        assert_eq!(read(&cut), Hello::Malformed);
    }
}
