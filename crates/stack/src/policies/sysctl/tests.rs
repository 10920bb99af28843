use super::*;

#[test]
fn every_setting_accepts_its_own_value() {
    let table = SysctlTable::new(None);
    let list = table.list();
    assert!(list.len() > 40);
    for (name, value) in list {
        table.set(name, &value).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(table.get(name), Ok(value));
        assert!(table.describe(name).unwrap().ends_with('.'));
        let error = table.set(name, "nonsense").unwrap_err().to_string();
        assert!(error.starts_with(name) && error.contains("nonsense"), "{error}");
    }
}

#[test]
fn every_setting_is_described() {
    let all = SysctlInfo::all();
    assert_eq!(all.len(), SysctlTable::new(None).list().len());
    for (info, (name, value)) in all.iter().zip(SysctlTable::new(None).list()) {
        assert_eq!((info.name, &info.default), (name, &value));
        assert!(!info.allowed.is_empty(), "{name}");
        assert!(info.doc.ends_with('.') && !info.doc.contains('\n'), "{name}: {}", info.doc);
        assert!(info.linux.is_empty() || info.linux.ends_with('.'), "{name}: {}", info.linux);
        assert!(!name.starts_with("plimsoll.tcp_sndbuf") || info.allowed.contains("bytes"));
    }
}

#[test]
fn values_and_units() {
    let table = SysctlTable::new(None);
    assert_eq!(table.get("net.ipv4.tcp_sack").as_deref(), Ok("1"));
    assert_eq!(table.get("net.ipv4.tcp_keepalive_time").as_deref(), Ok("7200"));
    assert_eq!(table.get("net.ipv4.tcp_rto_min_us").as_deref(), Ok("200000"));
    table.set("net.ipv4.tcp_rmem", "4096 65536\t1048576\n").unwrap();
    assert_eq!(table.snapshot().tcp.tcp_rmem, [4096, 65_536, 1_048_576]);
    assert_eq!(table.get("net.ipv4.tcp_rmem").as_deref(), Ok("4096\t65536\t1048576"));
    table.set("net.ipv4.tcp_congestion_control", "reno").unwrap();
    table.set("net.ipv4.ip_local_port_range", "1000 1000").unwrap();
    assert_eq!(table.snapshot().ip_local_port_range, (1000, 1000));
}

#[test]
fn every_congestion_control_is_available_and_can_be_chosen() {
    let table = SysctlTable::new(None);
    let available = table.get("net.ipv4.tcp_available_congestion_control").unwrap();
    let names = plimsoll_tcp::CongestionAlgorithm::ALL.map(|algorithm| algorithm.name());
    assert_eq!(available, names.join(" "));
    for name in names {
        table.set("net.ipv4.tcp_congestion_control", name).unwrap();
        assert_eq!(table.get("net.ipv4.tcp_congestion_control").as_deref(), Ok(name));
    }
    table.set("net.ipv4.tcp_available_congestion_control", "reno").unwrap_err();
}

#[test]
fn refusals_name_the_field_and_what_is_allowed() {
    let table = SysctlTable::new(None);
    let refused = |name, value| table.set(name, value).unwrap_err().to_string();
    assert_eq!(
        refused("net.ipv4.tcp_sack", "2"),
        "net.ipv4.tcp_sack: `2` is not allowed; give 0 or 1"
    );
    assert_eq!(
        refused("net.ipv4.ip_default_ttl", "256"),
        "net.ipv4.ip_default_ttl: `256` is not allowed; give a whole number of hops from 1 to 255"
    );
    assert!(refused("net.ipv4.tcp_wmem", "5 4 3").contains("none below the one before"));
    assert!(refused("net.ipv4.tcp_wmem", "4096 8192").contains("three"));
    assert!(refused("net.ipv4.ip_local_port_range", "9 3").contains("two ports"));
    assert_eq!(
        refused("tcp_sack", "1"),
        "tcp_sack: no such setting; did you mean net.ipv4.tcp_sack?"
    );
    assert_eq!(refused("net.foo", "1"), "net.foo: no such setting");
}

#[test]
fn the_memory_of_connections_follows_the_machine() {
    let get = |memory| SysctlTable::new(memory).get("net.ipv4.tcp_mem").unwrap();
    assert_eq!(get(None), get(Some(16 << 30)));
    assert_eq!(get(Some(1 << 30)), "12288\t16384\t24576");
    assert_eq!(get(Some(0)), "96\t128\t192", "the least");
}
