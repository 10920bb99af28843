//! The names of ICMP messages.

/// Type and code of a message, by their names.
///
/// # Errors
/// The text names what is unknown.
pub fn numbers(v6: bool, kind: &str, code: Option<&str>) -> Result<(u8, u8), String> {
    let kinds: &[(&str, u8)] = if v6 { KINDS_V6 } else { KINDS_V4 };
    let number = numbered(kind, "type_").or_else(|| find(kinds, kind));
    let family = if v6 { "ICMPv6" } else { "ICMP" };
    let number = number.ok_or_else(|| format!("{family} has no type {kind}"))?;
    let Some(code) = code else { return Ok((number, 0)) };
    let codes: &[(&str, u8)] = match (v6, kind) {
        (false, "unreachable") => UNREACHABLE_V4,
        (true, "unreachable") => UNREACHABLE_V6,
        (false, "time_exceeded") => &[("ttl", 0), ("frag_time", 1)],
        (true, "time_exceeded") => &[("exceeded_hop_limit", 0), ("exceeded_frag_time", 1)],
        (true, "parameter_problem") => PROBLEM_V6,
        _ => &[],
    };
    let code_number = numbered(code, "code_").or_else(|| find(codes, code));
    let code_number = code_number.ok_or_else(|| format!("{family} {kind} has no code {code}"))?;
    Ok((number, code_number))
}

fn numbered(name: &str, prefix: &str) -> Option<u8> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn find(table: &[(&str, u8)], name: &str) -> Option<u8> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

/// The names of type and code, for a message.
pub fn names(v6: bool, kind: u8, code: u8) -> String {
    let kinds: &[(&str, u8)] = if v6 { KINDS_V6 } else { KINDS_V4 };
    let name = kinds.iter().find(|(_, value)| *value == kind).map(|(name, _)| *name);
    let name = name.map_or_else(|| format!("type_{kind}"), str::to_owned);
    let codes: &[(&str, u8)] = match (v6, name.as_str()) {
        (false, "unreachable") => UNREACHABLE_V4,
        (true, "unreachable") => UNREACHABLE_V6,
        _ => &[],
    };
    match codes.iter().find(|(_, value)| *value == code) {
        Some((code, _)) => format!("{name} {code}"),
        None if code == 0 => name,
        None => format!("{name} code_{code}"),
    }
}

const KINDS_V4: &[(&str, u8)] = &[
    ("echo_reply", 0),
    ("unreachable", 3),
    ("source_quench", 4),
    ("redirect", 5),
    ("echo_request", 8),
    ("time_exceeded", 11),
    ("parameter_problem", 12),
    ("timestamp_request", 13),
    ("timestamp_reply", 14),
    ("information_request", 15),
    ("information_reply", 16),
    ("address_mask_request", 17),
    ("address_mask_reply", 18),
];

const UNREACHABLE_V4: &[(&str, u8)] = &[
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("source_route_failed", 5),
    ("net_unknown", 6),
    ("host_unknown", 7),
    ("source_host_isolated", 8),
    ("net_prohibited", 9),
    ("host_prohibited", 10),
    ("net_unreachable_for_tos", 11),
    ("host_unreachable_for_tos", 12),
    ("packet_filtered", 13),
    ("precedence_violation", 14),
    ("precedence_cutoff", 15),
];

const KINDS_V6: &[(&str, u8)] = &[
    ("unreachable", 1),
    ("packet_too_big", 2),
    ("time_exceeded", 3),
    ("parameter_problem", 4),
    ("echo_request", 128),
    ("echo_reply", 129),
];

const UNREACHABLE_V6: &[(&str, u8)] = &[
    ("no_route", 0),
    ("net_unreachable", 0),
    ("admin_prohibited", 1),
    ("not_neighbour", 2),
    ("address_unreachable", 3),
    ("addr_unreachable", 3),
    ("port_unreachable", 4),
];

const PROBLEM_V6: &[(&str, u8)] =
    &[("header_field", 0), ("unknown_next_header", 1), ("unknown_option", 2)];
