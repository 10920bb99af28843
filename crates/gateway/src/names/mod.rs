//! The gateway's name server.
//!
//! It answers queries for the host's name and for names in the host's `/etc/hosts`, passes all
//! others to the host's name servers as they are, and keeps the names of the addresses in their
//! answers.

pub(crate) mod files;
pub(crate) mod stream;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::network::Network;
use crate::rules::{Access, RefuseNames, Rules};

/// The port of DNS.
pub(crate) const PORT: u16 = 53;
/// The host's name inside.
pub(crate) const HOST: &str = "host.plimsoll";
/// The domain whose names are all the gateway's.
const DOMAIN: &str = "plimsoll";
/// Seconds for which an answer of the gateway's own holds.
const TTL: u32 = 60;
/// The option of EDNS for an extended error (RFC 8914), and the error that rules have refused it
/// ("Blocked").
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;

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

/// The name server.
pub struct Names {
    access: Access,
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
    /// The name server of a network, without rules.
    pub fn new(network: Network) -> Names {
        Names::with(Access::new(Rules::default(), network, false))
    }

    /// A name server that answers for allowed names only.
    pub fn with(access: Access) -> Names {
        Names { access }
    }

    /// The rules.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Whether this is the name server's address.
    pub(crate) fn serves(&self, to: SocketAddr) -> bool {
        self.access.network().serves_names_at(to)
    }

    /// The treatment of a query of the command.
    pub fn treat(&self, bytes: &[u8]) -> Treatment {
        let Ok(query) = Message::from_vec(bytes) else { return refused(bytes) };
        if query.metadata.message_type != MessageType::Query {
            return Treatment::Drop;
        }
        let [question] = &*query.queries else { return Treatment::Drop };
        let allowed = self.access.allows_lookup(&plain(question.name()));
        let records = match self.own_records(question) {
            _ if !allowed => Err(match self.access.refuse_names() {
                RefuseNames::NxDomain => ResponseCode::NXDomain,
                RefuseNames::Refused => ResponseCode::Refused,
            }),
            Some(records) => records,
            None => return Treatment::Forward,
        };
        let op_code = OpCode::Query;
        let mut answer = Message::response(query.metadata.id, op_code);
        answer.metadata.authoritative = allowed;
        answer.metadata.recursion_available = true;
        answer.metadata.recursion_desired = query.metadata.recursion_desired;
        answer.add_query(question.clone());
        match records {
            Ok(records) => answer.insert_answers(records),
            Err(code) => answer.metadata.response_code = code,
        }
        if query.edns.is_some() {
            // RFC 6891, section 7.
            let mut edns = Edns::new();
            if !allowed {
                let data = BLOCKED.to_be_bytes().to_vec();
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, data));
            }
            answer.set_edns(edns);
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
            {
                let network = self.access.network();
                vec![network.gateway().into(), network.gateway_v6().into()]
            }
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
        if !response.answers.is_empty() && response.metadata.response_code == ResponseCode::NoError
        {
            self.access.looked_up(&name);
        }
        for record in &response.answers {
            let ip = match record.data {
                RData::A(ip) => IpAddr::V4(ip.0),
                RData::AAAA(ip) => IpAddr::V6(ip.0),
                _ => continue,
            };
            self.access.keep(ip, &name, Duration::from_secs(record.ttl.into()), now);
        }
    }

    /// The name by which the command has learnt of an address.
    pub fn name_of(&self, ip: IpAddr, now: Instant) -> Option<String> {
        self.access.name_of(ip, now)
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
        let at = |seconds| names.name_of(ip, now + Duration::from_secs(seconds));
        assert_eq!(at(599), Some("a.example".to_owned()));
        assert_eq!(at(600), None);
    }

    #[test]
    fn names_that_no_rule_allows_are_not_passed_on() {
        let rules = |refuse_names| Rules {
            allow: vec!["a.example.com".parse().unwrap()],
            refuse_names,
            ..Rules::default()
        };
        for (refuse_names, code) in [
            (RefuseNames::NxDomain, ResponseCode::NXDomain),
            (RefuseNames::Refused, ResponseCode::Refused),
        ] {
            let network = "10.0.2.0/24".parse().unwrap();
            let names = Names::with(Access::new(rules(refuse_names), network, false));
            let allowed = names.treat(&query("A.example.com.", RecordType::TXT));
            assert_eq!(allowed, Treatment::Forward);
            for name in ["b.example.com.", "host.plimsoll.", "x.a.example.com."] {
                let mut asked = Message::from_vec(&query(name, RecordType::A)).unwrap();
                asked.set_edns(Edns::new());
                let found = answer(names.treat(&asked.to_vec().unwrap()));
                assert_eq!((found.metadata.response_code, found.answers.len()), (code, 0));
                let edns = found.edns.unwrap();
                let blocked = EdnsOption::Unknown(15, vec![0, 15]);
                assert_eq!(edns.option(15.into()), Some(&blocked));
            }
        }
    }
}
