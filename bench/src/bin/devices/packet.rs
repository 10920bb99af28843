//! The packets that are handed over: IPv4, with what stands in front of it on a device.

/// The kernel's side, and ours.
pub(crate) const HOST: [u8; 4] = [192, 0, 2, 1];
pub(crate) const OURS: [u8; 4] = [192, 0, 2, 2];

/// Where the kernel's side listens.
pub(crate) const PORT: u16 = 9;

/// Our port.
pub(crate) const OUR_PORT: u16 = 7;

/// Bytes of a virtio header, an Ethernet header, and one of IPv4.
pub(crate) const VIRTIO: usize = 10;
pub(crate) const ETHERNET: usize = 14;
const IP: usize = 20;

/// Payload of a segment, and how many segments a long packet has.
const MSS: usize = 1448;
const SEGMENTS: usize = 45;

/// What is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A datagram with so many bytes of payload.
    Datagram(usize),
    /// TCP, to be cut by whoever needs it shorter.
    Train,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A socket takes it.
    Delivered,
    /// The sum of its header is wrong: nothing costs the kernel less.
    Dropped,
}

/// What stands in front of a packet on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) virtio: bool,
    /// The addresses of Ethernet: the kernel's side, and ours.
    pub(crate) ethernet: Option<([u8; 6], [u8; 6])>,
}

/// A packet as a device wants it.
pub(crate) fn packet(shape: Shape, fate: Fate, front: Front) -> Vec<u8> {
    let mut out = Vec::new();
    if front.virtio {
        let before = if front.ethernet.is_some() { ETHERNET } else { 0 };
        out.extend(virtio(shape, before));
    }
    if let Some((to, from)) = front.ethernet {
        out.extend(to);
        out.extend(from);
        out.extend([8, 0]);
    }
    let transport = match shape {
        Shape::Datagram(payload) => datagram(payload),
        Shape::Train => segment(),
    };
    out.extend(ip(shape, fate, transport.len()));
    out.extend(transport);
    out
}

/// `struct virtio_net_hdr` for a packet behind so many bytes.
fn virtio(shape: Shape, before: usize) -> [u8; VIRTIO] {
    let mut header = [0; VIRTIO];
    if shape == Shape::Train {
        // The checksum is to be filled in, and it is TCP over IPv4.
        (header[0], header[1]) = (1, 1);
        let transport = (before + IP) as u16;
        let fields = [transport + 32, MSS as u16, transport, 16];
        for (place, field) in header[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
    }
    header
}

fn ip(shape: Shape, fate: Fate, payload: usize) -> [u8; IP] {
    let mut header = [0; IP];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IP + payload) as u16).to_be_bytes());
    // Not to be fragmented.
    header[6] = 0x40;
    header[8] = 64;
    header[9] = if shape == Shape::Train { 6 } else { 17 };
    header[12..16].copy_from_slice(&OURS);
    header[16..20].copy_from_slice(&HOST);
    let mut sum = !folded(&header);
    if fate == Fate::Dropped {
        sum ^= 0x0101;
    }
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// The sum of an internet checksum.
fn folded(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// UDP without a checksum, which IPv4 allows.
fn datagram(payload: usize) -> Vec<u8> {
    let fields = [OUR_PORT, PORT, (8 + payload) as u16, 0];
    let mut out: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
    out.resize(8 + payload, 0x5a);
    out
}

/// TCP with timestamps, whose checksum the kernel is asked to fill in.
fn segment() -> Vec<u8> {
    let mut out = vec![0; 32 + SEGMENTS * MSS];
    out[..2].copy_from_slice(&OUR_PORT.to_be_bytes());
    out[2..4].copy_from_slice(&PORT.to_be_bytes());
    // Eight words of header; ACK.
    (out[12], out[13]) = (0x80, 0x10);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_as_long_as_they_say() {
        let front = Front { virtio: true, ethernet: Some(([1; 6], [2; 6])) };
        let bytes = packet(Shape::Datagram(1472), Fate::Delivered, front);
        assert_eq!(bytes.len(), VIRTIO + ETHERNET + 1500);
        assert_eq!(folded(&bytes[VIRTIO + ETHERNET..][..IP]), 0xffff, "the sum is right");
        assert_eq!(bytes[..VIRTIO], [0; VIRTIO], "nothing is left to the kernel");
        let train = packet(Shape::Train, Fate::Dropped, Front { virtio: true, ethernet: None });
        assert_eq!(train.len(), VIRTIO + IP + 32 + SEGMENTS * MSS);
        assert_ne!(folded(&train[VIRTIO..][..IP]), 0xffff, "the sum is wrong");
        assert_eq!(train[2..4], 52_u16.to_ne_bytes(), "the headers of a segment");
    }
}
