use super::*;

fn access(allow: &[&str], deny: &[&str]) -> Access {
    let all = |texts: &[&str]| texts.iter().flat_map(|text| read(text).unwrap()).collect();
    let rules = Rules { allow: all(allow), deny: all(deny), ..Rules::default() };
    Access::new(rules, "10.0.2.0/24".parse().unwrap(), false)
}

fn keep(access: &Access, name: &str, ip: &str) {
    access.keep(ip.parse().unwrap(), name, Duration::ZERO, Instant::now());
}

fn opens(access: &Access, to: &str) -> bool {
    access.decide(Protocol::Tcp, to.parse().unwrap()).is_ok()
}

fn name(name: &str) -> Hello {
    Hello::Name(name.to_owned())
}

#[test]
fn without_rules_nothing_is_read_or_refused() {
    let access = access(&[], &[]);
    let to = "192.0.2.1:443".parse().unwrap();
    assert!(access.decide(Protocol::Tcp, to).unwrap().is_none());
    assert!(access.allows_lookup("a.example.com"));
}

#[test]
fn a_name_opens_what_its_answers_gave_and_the_server_name_decides() {
    let access = access(&["a.example.com:443", "c.example.com:443"], &[]);
    assert!(!opens(&access, "192.0.2.1:443"), "never looked up");
    keep(&access, "a.example.com", "192.0.2.1");
    keep(&access, "b.example.com", "192.0.2.2");
    assert!(opens(&access, "192.0.2.1:443"));
    assert!(opens(&access, "[::ffff:192.0.2.1]:443"));
    assert!(!opens(&access, "192.0.2.1:80"));
    assert!(!opens(&access, "192.0.2.2:443"));
    let to = "192.0.2.1:443".parse().unwrap();
    assert!(access.decide(Protocol::Udp, to).is_err());
    let check = access.decide(Protocol::Tcp, to).unwrap().unwrap();
    for (hello, expected) in [
        (name("a.example.com"), true),
        (name("c.example.com"), true),
        (name("b.example.com"), false),
        (Hello::Other, true),
        (Hello::Nameless, true),
        (Hello::Malformed, false),
        (Hello::Incomplete, false),
    ] {
        assert_eq!(access.admits(&check, &hello), expected, "{hello:?}");
    }
    assert!(access.allows_lookup("a.example.com") && !access.allows_lookup("b.example.com"));
}

#[test]
fn names_open_no_private_address_unless_a_rule_says_so() {
    let access = access(&["a.example.com", "b.example.com+private", "10.1.0.0/16"], &[]);
    for (name, ip) in [("a.example.com", "10.0.0.1"), ("b.example.com", "10.0.0.2")] {
        keep(&access, name, ip);
    }
    keep(&access, "a.example.com", "10.1.0.1");
    keep(&access, "a.example.com", "64:ff9b::a00:1");
    assert!(!opens(&access, "10.0.0.1:80") && !opens(&access, "[64:ff9b::a00:1]:80"));
    assert!(opens(&access, "10.0.0.2:80") && opens(&access, "10.1.0.1:80"));
}

#[test]
fn deny_wins() {
    let access = access(&["public", "10.0.0.0/8"], &["10.9.0.0/16", "bad.example.com", "udp://*"]);
    assert!(opens(&access, "10.8.0.1:1") && !opens(&access, "10.9.0.1:1"));
    assert!(!opens(&access, "[64:ff9b::a09:1]:1"), "by another spelling");
    assert!(access.decide(Protocol::Udp, "192.0.2.1:53".parse().unwrap()).is_err());
    assert!(!access.allows_lookup("bad.example.com") && access.allows_lookup("good.example.com"));
    let check = access.decide(Protocol::Tcp, "192.0.2.1:443".parse().unwrap()).unwrap().unwrap();
    assert!(!access.admits(&check, &name("bad.example.com")));
    assert!(access.admits(&check, &name("good.example.com")));
    keep(&access, "bad.example.com", "192.0.2.9");
    assert!(!opens(&access, "192.0.2.9:443"));
    keep(&access, "good.example.com", "192.0.2.9");
    assert!(opens(&access, "192.0.2.9:443"));
}

#[test]
fn the_host_s_name_needs_a_rule_and_no_lookup() {
    let access = access(&["host.plimsoll:5432"], &[]);
    assert!(opens(&access, "10.0.2.2:5432") && !opens(&access, "10.0.2.2:22"));
}

#[test]
fn what_a_run_has_needed_is_a_list_of_rules() {
    let mut learning = access(&[], &[]);
    learning.rules.learn = Some("rules".into());
    for looked_up in ["a.example.com", "only.example.com"] {
        learning.looked_up(looked_up);
    }
    keep(&learning, "a.example.com", "192.0.2.1");
    keep(&learning, "p.example.com", "10.0.0.1");
    for to in ["192.0.2.1:443", "10.0.0.1:80", "[2001:db8::1]:22"] {
        learning.decide(Protocol::Tcp, to.parse().unwrap()).unwrap();
    }
    let check = learning.decide(Protocol::Tcp, "192.0.2.1:443".parse().unwrap()).unwrap().unwrap();
    assert!(learning.admits(&check, &name("cdn.example.com")));
    learning.decide(Protocol::Udp, "198.51.100.1:53".parse().unwrap()).unwrap();
    learning.decide(Protocol::Icmp, "198.51.100.1:0".parse().unwrap()).unwrap();
    let text = learning.needed();
    let rules: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(
        rules,
        [
            "[2001:db8::1]:22",
            "a.example.com:443",
            "cdn.example.com:443",
            "icmp://198.51.100.1",
            "p.example.com+private:80",
            "udp://198.51.100.1:53",
            "dns://only.example.com",
        ]
    );
    for rule in rules {
        rule.parse::<Rule>().unwrap();
    }
}

#[test]
fn a_file_names_the_line_of_a_wrong_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    fs::write(&path, "# all\n\n a.example.com:443 # one\npublic\n").unwrap();
    let of = || read(&format!("@{}", path.display()));
    assert_eq!(of().unwrap().len(), 2);
    fs::write(&path, "public\n*.com\n").unwrap();
    let error = format!("{:#}", of().unwrap_err());
    assert!(error.contains("line 2") && error.contains("column 3"), "{error}");
}
