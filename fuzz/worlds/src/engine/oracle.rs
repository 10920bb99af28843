//! What every packet that leaves a connection must obey, whatever has arrived before.

use plimsoll_tcp::{SendKind, Serial, Transmit};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MAX_HEADER_LEN, TcpFlags, TcpRepr};

/// What one side has shown of itself in its packets, and what it was told in those that arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// MTU that the connection was opened with.
    mtu: usize,
    ip_header_len: usize,
    max_super_segment: usize,
    /// Its initial sequence number.
    pub iss: SeqNum,
    /// The end of the highest sequence range it has sent.
    pub snd_end: SeqNum,
    /// The last acknowledgement number it has sent.
    pub ack: Option<SeqNum>,
    /// The right edge of the window that it last advertised.
    pub edge: Option<SeqNum>,
    /// Memory is short at times: when data was dropped, a window may be closed.
    pub short: bool,
    /// The window that its SYN offered, which is never scaled.
    offered: Option<u16>,
    /// The window scale that it announced, if it sent a SYN with one.
    pub own_scale: Option<u8>,
    /// The window scale in the last SYN that was delivered to it.
    pub peer_scale: Option<u8>,
    /// The last TSval that it sent.
    pub ts_val: u32,
    /// The last TSval that was delivered to it.
    pub peer_ts_val: u32,
    /// The highest right edge that was delivered to it.
    pub allowed: Option<SeqNum>,
    /// Shifts of the windows that it sends and receives, as the connection itself says.
    pub trusted_shifts: Option<(u8, u8)>,
    /// Whether it has sent a reset.
    pub sent_rst: bool,
    last_serial: Serial,
}

impl Seen {
    /// Nothing yet.
    pub fn new(mtu: usize, ip_header_len: usize, max_super_segment: usize, iss: SeqNum) -> Seen {
        Seen {
            mtu,
            ip_header_len,
            max_super_segment,
            iss,
            snd_end: iss,
            ack: None,
            edge: None,
            short: false,
            offered: None,
            own_scale: None,
            peer_scale: None,
            ts_val: 0,
            peer_ts_val: 0,
            allowed: None,
            trusted_shifts: None,
            sent_rst: false,
            last_serial: Serial(0),
        }
    }

    /// The shift of the windows that this side sends: in force if both SYNs had the option. Among
    /// forged SYNs only the connection knows which ones count.
    fn own_shift(&self) -> u8 {
        let seen = self.own_scale.filter(|_| self.peer_scale.is_some()).unwrap_or(0).min(14);
        self.trusted_shifts.map_or(seen, |shifts| shifts.0)
    }

    /// The shift of the windows that it receives.
    fn peer_shift(&self) -> u8 {
        let seen = self.peer_scale.filter(|_| self.own_scale.is_some()).unwrap_or(0).min(14);
        self.trusted_shifts.map_or(seen, |shifts| shifts.1)
    }

    /// Notes a segment that is about to be delivered to this side.
    pub fn deliver(&mut self, repr: &TcpRepr) {
        let syn = repr.flags.contains(TcpFlags::SYN);
        if syn {
            self.peer_scale = repr.options.syn().window_scale;
        }
        if let Some(times) = repr.options.timestamps {
            self.peer_ts_val = times.val;
        }
        if repr.flags.contains(TcpFlags::ACK) || syn {
            let shift = if syn { 0 } else { self.peer_shift() };
            let base = if repr.flags.contains(TcpFlags::ACK) { repr.ack } else { self.iss + 1 };
            let edge = base + (u32::from(repr.window) << shift);
            self.allowed = Some(self.allowed.map_or(edge, |allowed| allowed.max(edge)));
        }
    }

    /// Notes what a header that left this side shows, without judging it.
    pub fn observe(&mut self, repr: &TcpRepr, payload_len: usize) {
        let syn = repr.flags.contains(TcpFlags::SYN);
        if syn {
            self.iss = repr.seq;
            self.snd_end = repr.seq;
            self.own_scale = repr.options.syn().window_scale;
        }
        let fin = repr.flags.contains(TcpFlags::FIN);
        let end = repr.seq + payload_len as u32 + u32::from(syn) + u32::from(fin);
        self.snd_end = self.snd_end.max(end);
        if let Some(times) = repr.options.timestamps {
            self.ts_val = times.val;
        }
        if repr.flags.contains(TcpFlags::ACK) {
            let shift = if syn { 0 } else { self.own_shift() };
            self.ack = Some(repr.ack);
            self.edge = Some(repr.ack + (u32::from(repr.window) << shift));
        }
    }

    /// Judges a packet that leaves this side and notes what it shows. `honest` says that nothing
    /// forged has been delivered, so that windows and numbers make sense.
    pub fn judge(&mut self, transmit: &Transmit, honest: bool) {
        self.judge_shape(transmit);
        let repr = &transmit.repr;
        if repr.flags.contains(TcpFlags::RST) {
            self.sent_rst = true;
            assert!(transmit.payload.is_empty(), "a reset carries data");
            return;
        }
        self.judge_serial(transmit);
        let syn = repr.flags.contains(TcpFlags::SYN);
        if syn {
            assert!(transmit.payload.is_empty(), "a SYN carries data");
            self.own_scale = repr.options.syn().window_scale;
            let offered = *self.offered.get_or_insert(repr.window);
            assert_eq!(repr.window, offered, "copies of a SYN offer different windows");
        }
        let len = transmit.payload.len() as u32
            + u32::from(syn)
            + u32::from(repr.flags.contains(TcpFlags::FIN));
        let end = repr.seq + len;
        if honest && !transmit.payload.is_empty() && transmit.kind != SendKind::WindowProbe {
            let allowed = self.allowed.expect("data before any window was seen");
            let data_end = repr.seq + transmit.payload.len() as u32;
            assert!(data_end <= allowed, "data up to {data_end} beyond the edge {allowed}");
        }
        self.snd_end = self.snd_end.max(end);
        if let Some(times) = repr.options.timestamps {
            self.ts_val = times.val;
        }
        if repr.flags.contains(TcpFlags::ACK) {
            self.judge_ack(repr, syn, honest);
        }
    }

    /// The lengths and counts of a packet fit each other, and the header can be written.
    fn judge_shape(&self, transmit: &Transmit) {
        let (len, size) = (transmit.payload.len(), usize::from(transmit.segment_size));
        let header_len = transmit.repr.header_len();
        let mut bytes = [0; MAX_HEADER_LEN];
        let written = transmit.repr.emit(&mut bytes);
        let parsed = TcpRepr::parse(&bytes[..written]).expect("our own header");
        assert_eq!(parsed.0, transmit.repr, "the header does not survive the wire");
        if len == 0 {
            assert_eq!(transmit.segs, 1, "an empty packet of several segments");
            return;
        }
        assert!(size > 0, "data in segments of size zero");
        assert_eq!(usize::from(transmit.segs), len.div_ceil(size), "wrong number of segments");
        let first = len.min(size);
        let on_wire = self.ip_header_len + header_len + first;
        assert!(on_wire <= self.mtu, "a wire segment of {on_wire} bytes, MTU {}", self.mtu);
        let limit = self.max_super_segment.max(size);
        assert!(len <= limit, "a packet of {len} bytes, limit {limit}");
    }

    fn judge_serial(&mut self, transmit: &Transmit) {
        match transmit.serial {
            Some(serial) => {
                assert!(serial > self.last_serial, "serials must grow");
                self.last_serial = serial;
            }
            None => assert!(transmit.payload.is_empty(), "data that is not charged"),
        }
    }

    /// Acknowledgements do not go back, and neither does the right edge of the window beyond what
    /// scaling rounds away. The first one acknowledges the peer's SYN and nothing else, unless that
    /// was forged, so that it tells where the window lies that our SYN offered.
    fn judge_ack(&mut self, repr: &TcpRepr, syn: bool, honest: bool) {
        if let Some(offered) = self.offered.filter(|_| honest && self.ack.is_none()) {
            self.edge = Some(repr.ack + u32::from(offered));
        }
        if let Some(before) = self.ack {
            assert!(repr.ack >= before, "ACK went back from {before} to {}", repr.ack);
        }
        self.ack = Some(repr.ack);
        let shift = if syn { 0 } else { self.own_shift() };
        let edge = repr.ack + (u32::from(repr.window) << shift);
        if let Some(before) = self.edge.filter(|_| !syn) {
            if self.short && repr.window == 0 {
                self.edge = Some(edge);
                return;
            }
            // A SYN that is sent again says what its 16 bits can.
            let rounding = (1_u32 << shift) - 1;
            assert!(edge + rounding >= before, "the window's edge went from {before} to {edge}");
            self.edge = Some(before.max(edge));
        } else {
            self.edge = Some(self.edge.map_or(edge, |before| before.max(edge)));
        }
    }
}
