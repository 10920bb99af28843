use plimsoll_tcp::Instant;

use super::*;
use crate::interfaces::space::{SpaceWaiter, SpaceWaiters};
use crate::kick::Kick;
use crate::pollers::completion::Completions;
use crate::sockets::udp::UdpKind;
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::wakers::WakeList;

const ALONE: (Versions, Sharing) = (Versions::Both, Sharing::Alone);

fn table() -> UdpTable {
    UdpTable::new([7; 16])
}

fn make(table: &UdpTable, local: &str) -> Arc<UdpEndpoint> {
    let completions = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
    let options = UdpOptions {
        ttl: 0,
        multicast_ttl: 1,
        tos: 0,
        broadcast: false,
        multicast_loop: true,
        multicast_interface: None,
        path_mtu_discovery: Default::default(),
        rcvbuf: 1000,
        sndbuf: 1000,
    };
    let local = local.parse().unwrap();
    let made = table
        .make(|id| UdpEndpoint::new((id, 0, completions), (local, None), options, UdpKind::Bound));
    made.unwrap()
}

#[test]
fn a_place_is_used_again_under_another_number() {
    let table = table();
    let first = make(&table, "192.0.2.1:1");
    assert!(table.get(first.id).is_some());
    table.unmake(first.id);
    table.unmake(first.id);
    assert!(table.get(first.id).is_none());
    let second = make(&table, "192.0.2.1:1");
    assert_eq!(second.id.slot, first.id.slot);
    assert_ne!(second.id, first.id);
    assert_eq!(table.all().len(), 1);
}

#[test]
fn a_socket_waits_for_each_interface_that_has_refused_it() {
    let table = table();
    let socket = make(&table, "192.0.2.1:1");
    let mut lists = [SpaceWaiters::new(1), SpaceWaiters::new(2)];
    for _ in 0..2 {
        lists.iter_mut().for_each(|list| list.push(&socket));
    }
    assert_eq!(([1, 2].map(|at| socket.is_waiting(at)), socket.readiness().1), ([true; 2], false));
    let taken = lists[1].take(9);
    assert_eq!((taken.len(), [1, 2].map(|at| socket.is_waiting(at))), (1, [true, false]));
    taken[0].go_on();
    socket.take_up(&mut WakeList::default());
    assert!(socket.readiness().1, "it may try what the other takes");
    lists[1].push(&socket);
    assert!(!socket.readiness().1);
    assert_eq!(socket.end_waits(), 0b110);
    lists.iter_mut().for_each(|list| list.forget(&socket));
    lists.iter_mut().for_each(|list| list.push(&socket));
    assert!(lists.iter().all(SpaceWaiters::is_empty), "it was closed");
}

#[test]
fn groups_are_forgotten_with_their_last_member() {
    let table = table();
    let (one, two) = (make(&table, "0.0.0.0:1"), make(&table, "0.0.0.0:2"));
    let group = "239.0.0.1".parse().unwrap();
    for each in [&one, &two] {
        table.bind(each, ALONE).unwrap();
        table.join(each, group).unwrap();
    }
    table.leave(&one, group).unwrap();
    assert!(table.is_joined(group));
    table.unbind(&two);
    assert!(!table.is_joined(group));
    for n in 0..MAX_MEMBERSHIPS as u8 {
        table.join(&one, IpAddr::from([239, 0, 1, n])).unwrap();
    }
    assert_eq!(table.join(&one, group), Err(SocketError::NoBufferSpace));
    table.unbind(&one);
    assert!(table.read().groups.is_empty() && table.read().by_port.is_empty());
}

#[test]
fn nobody_is_found_where_nobody_is() {
    let table = table();
    let from = "192.0.2.9:9".parse().unwrap();
    let found = table.find(from, "192.0.2.1:1".parse().unwrap(), true, || 0);
    assert!(matches!(found, Found::Nobody));
    let one = make(&table, "0.0.0.0:1");
    table.bind(&one, ALONE).unwrap();
    let wild = |ours| table.find(from, "192.0.2.1:1".parse().unwrap(), ours, || 0);
    assert!(matches!(wild(true), Found::Socket(_)));
    assert!(matches!(wild(false), Found::Nobody), "a wildcard means addresses of ours");
    assert_eq!(table.flows_end(), None::<Instant>);
}

#[test]
fn a_group_shares_its_port_by_the_hash() {
    let table = table();
    let shared = (Versions::Both, Sharing::Group);
    let group: Vec<_> = (0..3).map(|_| make(&table, "192.0.2.1:1")).collect();
    group.iter().for_each(|one| table.bind(one, shared).unwrap());
    let wild = make(&table, "0.0.0.0:1");
    table.bind(&wild, shared).unwrap();
    for local in ["192.0.2.1:1", "[::]:1"] {
        assert_eq!(table.bind(&make(&table, local), ALONE), Err(SocketError::AddrInUse));
    }
    assert!(!table.is_free("192.0.2.1:1".parse().unwrap(), Versions::Both));
    let found = |to: &str, hash: u64| {
        let from = "192.0.2.9:9".parse().unwrap();
        match table.find(from, to.parse().unwrap(), true, || hash) {
            Found::Socket(found) => group.iter().position(|one| Arc::ptr_eq(one, &found)),
            _ => panic!("nobody"),
        }
    };
    let thirds = [0, u64::MAX / 2, u64::MAX];
    assert_eq!(thirds.map(|hash| found("192.0.2.1:1", hash)), [Some(0), Some(1), Some(2)]);
    assert_eq!(found("192.0.2.2:1", u64::MAX), None, "the wildcard is alone there");
    // One that is connected gets all that its peer sends.
    table.connect(&group[1], group[1].local(), Some("192.0.2.9:9".parse().unwrap()));
    assert_eq!(thirds.map(|hash| found("192.0.2.1:1", hash)), [Some(1); 3]);
    let all = table.find_all("192.0.2.8:8".parse().unwrap(), "192.0.2.1:1".parse().unwrap());
    assert_eq!(all.len(), 3, "all but the one that is connected to somebody else");
}
