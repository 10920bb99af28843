//! ICMP errors about sent datagrams (RFC 1122, section 4.1.3.3).

use std::net::SocketAddr;

use plimsoll_tcp::{ConnectionError, PathMtuDiscovery};

use crate::error::SocketError;
use crate::snmp::IpCounter;
use crate::sockets::quote::UdpQuote;
use crate::sockets::udp::UdpKind;
use crate::stack::Stack;
use crate::stack::ip::icmp::{Delivery, PathError};
use crate::stack::work::Work;
use crate::tables::udp::Found;

impl Stack {
    /// Processes an ICMP error that quotes a datagram. The error is accepted if a socket may have
    /// sent the datagram: one with the quoted address and port that is not connected to another
    /// peer.
    ///
    /// A path MTU is learnt, unless the route has `mtu lock`. As on Linux, only a connected socket
    /// reports an error, since another could not relate it to a datagram. It is reported only if
    /// the datagrams are unwanted: an unreachable host may be reachable the next moment.
    pub(crate) fn udp_path_report(
        &self,
        work: &mut Work<'_>,
        quote: &UdpQuote,
        error: &PathError,
    ) -> Delivery {
        let key = quote.key();
        let routes = self.interfaces.routes();
        let ours = !routes.takes_any_address() || routes.is_ours(key.local);
        drop(routes);
        let remote = SocketAddr::new(key.remote, key.remote_port);
        let local = SocketAddr::new(key.local, key.local_port);
        let hash = || self.hash_of_datagram(remote, local);
        let found = self.tables.udp().find(remote, local, ours, hash);
        let Found::Socket(endpoint) = found else {
            let v4 = key.remote.is_ipv4();
            let errors = if v4 { IpCounter::IcmpInErrors } else { IpCounter::Icmp6InErrors };
            work.count(errors);
            return Delivery::NoMatch;
        };
        let connected = endpoint.is_connected_to(remote);
        match error {
            PathError::TooBig(mtu) => {
                let told = work.told_mtu(key.remote, *mtu);
                let believed = self.learn_mtu(work, key.remote, told);
                let discovery = endpoint.options().path_mtu_discovery;
                if believed && connected && discovery == PathMtuDiscovery::DontFragment {
                    endpoint.fail(SocketError::MessageTooLong, work.wakers());
                }
            }
            PathError::Error(error) if connected && says_unwanted(*error) => {
                endpoint.fail(SocketError::Connection(*error), work.wakers());
            }
            // Such a socket does not record its destinations, so it reports no error.
            PathError::Error(_) if matches!(endpoint.kind, UdpKind::AnyAddress) => {
                return Delivery::NoMatch;
            }
            PathError::Error(_) => {}
        }
        Delivery::Delivered
    }
}

fn says_unwanted(error: ConnectionError) -> bool {
    matches!(
        error,
        ConnectionError::Refused
            | ConnectionError::ProtocolUnreachable
            | ConnectionError::Prohibited
            | ConnectionError::ParameterProblem
    )
}
