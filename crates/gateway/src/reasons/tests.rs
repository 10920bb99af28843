use super::*;

fn at(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[test]
fn the_costliest_cause_is_first_and_cheap_ones_are_left_out() {
    let (reasons, start) = (Reasons::new(), Instant::now());
    let names = Names::new("10.0.2.0/24".parse().unwrap());
    let to: SocketAddr = "192.0.2.1:80".parse().unwrap();
    {
        let mut book = reasons.book();
        book.record(to, Cause::Loss, (at(start, 0), at(start, 1500)));
        book.record(to, Cause::SlowServer, (at(start, 2000), at(start, 9000)));
        // Two of them overlap, and they are fewer than five.
        book.record(to, Cause::Reconnects, (at(start, 0), at(start, 2000)));
        let quiet = "198.51.100.1:443".parse().unwrap();
        let destination = book.destination(quiet).unwrap();
        (destination.name, destination.connections) = (Some("b.example".to_owned()), 2);
    }
    let report = reasons.report(&names);
    let place = |words: &str| report.find(words).unwrap_or_else(|| panic!("{words}: {report}"));
    assert!(place("192.0.2.1:80") < place(Cause::SlowServer.title()), "{report}");
    assert!(place(Cause::SlowServer.title()) < place(Cause::Loss.title()), "{report}");
    assert!(place("7.00 s") < place("1.50 s"), "{report}");
    assert!(!report.contains(Cause::Reconnects.title()), "{report}");
    assert!(report.contains("b.example (198.51.100.1:443): 2 connections, "), "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
}

#[test]
fn lookups_count_from_the_first_query_to_the_answer() {
    let (reasons, now) = (Reasons::new(), Instant::now());
    let names = Names::new("10.0.2.0/24".parse().unwrap());
    let server: SocketAddr = "10.0.2.3:53".parse().unwrap();
    reasons.asked(server, 1, &[0, 7, 1]);
    reasons.answered(1, &[0, 7, 1, 1]);
    assert!(reasons.report(&names).starts_with("plimsoll: nothing held it up"));
    for number in 0..2 {
        reasons.asked(server, 1, &[0, number, 1]);
        reasons.asked(server, 1, &[0, number, 1]);
    }
    // One is repeated three seconds later, and one answered.
    let earlier = now.checked_sub(Duration::from_secs(3)).unwrap();
    reasons.book().queries.values_mut().for_each(|query| query.first = earlier);
    reasons.answered(1, &[0, 1]);
    let report = reasons.report(&names);
    assert!(report.contains("name server (10.0.2.3:53): 3 lookups, 9 B up, 6 B down"), "{report}");
    assert!(report.contains(Cause::SlowNames.title()) && report.contains("2 times"), "{report}");
    // They overlap.
    assert!(report.contains(": 3.00 s"), "{report}");
}

#[test]
fn destinations_are_bounded() {
    let reasons = Reasons::new();
    let mut book = reasons.book();
    for number in 0..=MAX_DESTINATIONS as u32 {
        let ip = std::net::Ipv4Addr::from(0xc633_0000 + number);
        book.destination(SocketAddr::new(ip.into(), 80));
    }
    assert_eq!((book.destinations.len(), book.left_out), (MAX_DESTINATIONS, 1));
}
