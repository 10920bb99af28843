//! The gateway's name server.
//!
//! It answers queries for the host's name and for names in the host's `/etc/hosts`, passes all
//! others to the host's name servers as they are, and keeps the names of the addresses in their
//! answers.

pub(crate) mod files;
pub(crate) mod stream;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::network::Network;

/// The port of DNS.
pub(crate) const PORT: u16 = 53;
/// The host's name inside.
const HOST: &str = "host.plimsoll";
/// The domain whose names are all the gateway's.
const DOMAIN: &str = "plimsoll";
/// Seconds for which an answer of the gateway's own holds.
const TTL: u32 = 60;
/// Addresses whose names are kept. One more replaces the one that would end first.
const MAX_LEARNED: usize = 8192;
/// For how long a name is kept, whatever its record says.
const KEPT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// The treatment of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// This is the answer.
    Answer(Vec<u8>),
    /// The host's name servers answer it.
    Forward,
    /// It is no query, and gets no answer.
    Drop,
}

/// The name of an address, and until when it is kept.
struct Learned {
    name: String,
    until: Instant,
}

/// The name server's state.
pub struct Names {
    network: Network,
    learned: Mutex<HashMap<IpAddr, Learned>>,
}

/// A name as in a rule or a file: in small letters, without the dot at its end.
fn plain(name: &hickory_proto::rr::Name) -> String {
    let mut text = name.to_ascii();
    if text.ends_with('.') {
        text.pop();
    }
    text.make_ascii_lowercase();
    text
}

/// The answer to a query that cannot be read, if it has a header (RFC 1035, section 4.1.1).
fn refused(bytes: &[u8]) -> Treatment {
    let Some(&[high, low, flags]) = bytes.get(..12).and_then(<[u8]>::first_chunk) else {
        return Treatment::Drop;
    };
    if flags & 0x80 != 0 {
        return Treatment::Drop;
    }
    let id = u16::from_be_bytes([high, low]);
    let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
    error.to_vec().map_or(Treatment::Drop, Treatment::Answer)
}

impl Names {
    /// The name server of a network.
    pub fn new(network: Network) -> Names {
        Names { network, learned: Mutex::default() }
    }

    /// Whether this is the name server's address.
    pub(crate) fn serves(&self, to: SocketAddr) -> bool {
        to == SocketAddr::new(IpAddr::V4(self.network.name_server()), PORT)
    }

    /// The treatment of a query of the command.
    pub fn treat(&self, bytes: &[u8]) -> Treatment {
        let Ok(query) = Message::from_vec(bytes) else { return refused(bytes) };
        if query.metadata.message_type != MessageType::Query {
            return Treatment::Drop;
        }
        let [question] = &*query.queries else { return Treatment::Drop };
        let Some(records) = self.own_records(question) else { return Treatment::Forward };
        let op_code = OpCode::Query;
        let mut answer = Message::response(query.metadata.id, op_code);
        answer.metadata.authoritative = true;
        answer.metadata.recursion_available = true;
        answer.metadata.recursion_desired = query.metadata.recursion_desired;
        answer.add_query(question.clone());
        match records {
            Ok(records) => answer.insert_answers(records),
            Err(code) => answer.metadata.response_code = code,
        }
        if query.edns.is_some() {
            // RFC 6891, section 7.
            answer.set_edns(Edns::new());
        }
        let Ok(bytes) = answer.to_vec() else { return Treatment::Drop };
        self.learn(&bytes, Instant::now());
        Treatment::Answer(bytes)
    }

    /// The records of a name that is the gateway's to answer, none if it has none of that type, or
    /// an error.
    fn own_records(&self, question: &Query) -> Option<Result<Vec<Record>, ResponseCode>> {
        if question.query_class() != DNSClass::IN {
            return None;
        }
        let name = plain(question.name());
        let addresses = if name == HOST {
            vec![self.network.gateway().into(), self.network.gateway_v6().into()]
        } else if name == DOMAIN || name.ends_with(&format!(".{DOMAIN}")) {
            return Some(Err(ResponseCode::NXDomain));
        } else if [RecordType::A, RecordType::AAAA].contains(&question.query_type()) {
            files::addresses_in_hosts(&name)
        } else {
            return None;
        };
        if addresses.is_empty() {
            return None;
        }
        let data = |ip| match (ip, question.query_type()) {
            (IpAddr::V4(ip), RecordType::A) => Some(RData::A(ip.into())),
            (IpAddr::V6(ip), RecordType::AAAA) => Some(RData::AAAA(ip.into())),
            _ => None,
        };
        let record = |data| Record::from_rdata(question.name().clone(), TTL, data);
        Some(Ok(addresses.into_iter().filter_map(data).map(record).collect()))
    }

    /// Keeps the name that was looked up, for each address in a response.
    pub fn learn(&self, bytes: &[u8], now: Instant) {
        let Ok(response) = Message::from_vec(bytes) else { return };
        let [question] = &*response.queries else { return };
        if response.metadata.message_type != MessageType::Response {
            return;
        }
        let name = plain(question.name());
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        for record in &response.answers {
            let ip = match record.data {
                RData::A(ip) => IpAddr::V4(ip.0),
                RData::AAAA(ip) => IpAddr::V6(ip.0),
                _ => continue,
            };
            let held = Duration::from_secs(record.ttl.into()).clamp(KEPT.0, KEPT.1);
            if learned.len() >= MAX_LEARNED && !learned.contains_key(&ip) {
                learned.retain(|_, learned| learned.until > now);
                let first = learned.iter().min_by_key(|(_, learned)| learned.until);
                if let Some(ip) = first.map(|(&ip, _)| ip).filter(|_| learned.len() >= MAX_LEARNED)
                {
                    learned.remove(&ip);
                }
            }
            learned.insert(ip, Learned { name: name.clone(), until: now + held });
        }
    }

    /// The name by which the command has learnt of an address.
    pub fn name_of(&self, ip: IpAddr, now: Instant) -> Option<String> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.get(&ip).filter(|learned| learned.until > now).map(|learned| learned.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use hickory_proto::rr::Name;

    use super::*;

    fn names() -> Names {
        Names::new("10.0.2.0/24".parse().unwrap())
    }

    fn query(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    fn answer(treatment: Treatment) -> Message {
        let Treatment::Answer(bytes) = treatment else { panic!("{treatment:?}") };
        Message::from_vec(&bytes).unwrap()
    }

    #[test]
    fn the_host_s_name_is_answered_and_others_are_passed_on() {
        let names = names();
        let of = |name, kind| answer(names.treat(&query(name, kind)));
        let four = of("Host.Plimsoll.", RecordType::A);
        assert_eq!(four.metadata.id, 7);
        let gateway = RData::A(hickory_proto::rr::rdata::A::new(10, 0, 2, 2));
        assert_eq!(four.answers.iter().map(|it| &it.data).collect::<Vec<_>>(), [&gateway]);
        assert_eq!(of("host.plimsoll.", RecordType::AAAA).answers.len(), 1);
        assert_eq!(of("host.plimsoll.", RecordType::MX).answers.len(), 0);
        let other = of("other.plimsoll.", RecordType::A);
        assert_eq!(other.metadata.response_code, ResponseCode::NXDomain);
        let elsewhere = query("nothere.example.", RecordType::A);
        assert_eq!(names.treat(&elsewhere), Treatment::Forward);
        let cut = answer(names.treat(&elsewhere[..20]));
        assert_eq!((cut.metadata.id, cut.metadata.response_code), (7, ResponseCode::FormErr));
        assert_eq!(names.treat(&elsewhere[..11]), Treatment::Drop);
        assert_eq!(names.treat(b""), Treatment::Drop);
    }

    #[test]
    fn addresses_in_answers_have_the_name_that_was_looked_up() {
        let names = names();
        let mut response = Message::from_vec(&query("a.example.", RecordType::A)).unwrap();
        response.metadata.message_type = MessageType::Response;
        let alias = Name::from_str("b.example.").unwrap();
        let data = RData::A(hickory_proto::rr::rdata::A::new(192, 0, 2, 9));
        response.add_answer(Record::from_rdata(alias, 5, data));
        let (now, ip) = (Instant::now(), "192.0.2.9".parse().unwrap());
        names.learn(&response.to_vec().unwrap(), now);
        assert_eq!(names.name_of(ip, now + Duration::from_secs(59)), Some("a.example".to_owned()));
        assert_eq!(names.name_of(ip, now + KEPT.0), None);
        for number in 0..=MAX_LEARNED as u32 {
            let data = RData::A(std::net::Ipv4Addr::from(0xc633_0000 + number).into());
            response.answers.clear();
            response.add_answer(Record::from_rdata(Name::root(), 60 + number, data));
            names.learn(&response.to_vec().unwrap(), now);
        }
        assert_eq!(names.learned.lock().unwrap().len(), MAX_LEARNED);
    }
}
