//! Quantities for people: bytes and rates with a unit.

/// `bytes` with a binary unit.
pub fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.2} {}", units[unit]) }
}

/// `bits` per second with a decimal unit.
pub fn rate(bits: f64) -> String {
    let (value, unit) = match bits {
        bits if bits >= 1e9 => (bits / 1e9, "Gbit/s"),
        bits if bits >= 1e6 => (bits / 1e6, "Mbit/s"),
        bits if bits >= 1e3 => (bits / 1e3, "kbit/s"),
        bits => (bits, "bit/s"),
    };
    format!("{value:.2} {unit}")
}

/// A number of flows.
pub fn flows(flows: u32) -> String {
    if flows == 1 { "1 flow".into() } else { format!("{flows} flows") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(rate(9.41e9), "9.41 Gbit/s");
        assert_eq!(rate(10.0), "10.00 bit/s");
    }
}
