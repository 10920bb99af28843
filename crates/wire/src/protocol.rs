//! Protocol numbers as IPv4's protocol field and IPv6's next-header field carry them (IANA).

/// IPv6 hop-by-hop options (RFC 8200, section 4.3).
pub const HOP_BY_HOP: u8 = 0;
/// ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// TCP (RFC 9293).
pub const TCP: u8 = 6;
/// UDP (RFC 768).
pub const UDP: u8 = 17;
/// IPv6 routing header (RFC 8200, section 4.4).
pub const IPV6_ROUTE: u8 = 43;
/// IPv6 fragment header (RFC 8200, section 4.5).
pub const IPV6_FRAGMENT: u8 = 44;
/// IPsec authentication header (RFC 4302).
pub const AUTHENTICATION: u8 = 51;
/// ICMPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
/// IPv6: nothing follows (RFC 8200, section 4.7).
pub const IPV6_NO_NEXT: u8 = 59;
/// IPv6 destination options (RFC 8200, section 4.6).
pub const IPV6_DEST_OPTIONS: u8 = 60;
