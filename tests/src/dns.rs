//! The least of a name server: it knows one address of each IP version, whatever it is asked for.

use anyhow::{Context, Result, ensure};

/// The address that every name has.
pub(crate) const ANSWER: [u8; 4] = [198, 51, 100, 77];
/// The same for IPv6: 2001:db8:9::77.
pub(crate) const ANSWER6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77];

const HEADER_LEN: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

/// The answer to a query with one question (RFC 1035, section 4.1).
pub(crate) fn answer(query: &[u8]) -> Result<Vec<u8>> {
    ensure!(query.len() > HEADER_LEN, "a query of {} bytes", query.len());
    let mut end = HEADER_LEN;
    loop {
        let len = *query.get(end).context("the name has no end")?;
        end += 1 + usize::from(len);
        if len == 0 {
            break;
        }
    }
    let fields = query.get(end..end + 4).context("the question is cut short")?;
    let asked = u16::from_be_bytes([fields[0], fields[1]]);
    let data: &[u8] = match asked {
        TYPE_A => &ANSWER,
        TYPE_AAAA => &ANSWER6,
        _ => &[],
    };
    let mut out = query[..2].to_vec();
    // A response, authoritative, recursion as desired and available.
    out.extend([0x84 | (query[2] & 1), 0x80]);
    let counts: [u16; 4] = [1, u16::from(!data.is_empty()), 0, 0];
    counts.iter().for_each(|count| out.extend(count.to_be_bytes()));
    out.extend(&query[HEADER_LEN..end + 4]);
    if !data.is_empty() {
        // The name is that of the question, the class the Internet.
        out.extend([0xc0, HEADER_LEN as u8]);
        out.extend(asked.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 60]);
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    Ok(out)
}
