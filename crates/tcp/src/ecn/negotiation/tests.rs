use super::*;

/// The rows of tables 2 and 4 of RFC 9768, and the effect of `tcp_ecn` on them.
#[test]
fn a_syn_gets_what_is_agreed_to() {
    use Mode::{Accurate, Classic, Off};
    let table: [(u8, [Mode; 8]); 6] = [
        (0, [Off; 8]),
        (1, [Off, Off, Off, Classic, Off, Off, Off, Classic]),
        (2, [Off, Off, Off, Classic, Off, Off, Off, Classic]),
        (3, [Off, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate]),
        (4, [Off, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate]),
        (5, [Off, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate]),
    ];
    for (tcp_ecn, by_ace) in table {
        let policy = Policy::new(tcp_ecn, CongestionAlgorithm::Cubic, false);
        for (ace, expected) in (0..8).zip(by_ace) {
            let flags = TcpFlags::SYN | ace_flags(ace);
            assert_eq!(policy.answer(flags, Ecn::NotEct), expected, "tcp_ecn {tcp_ecn}, {ace:03b}");
        }
    }
    let asks = [0, 1, 2, 3, 4, 5].map(|n| Policy::new(n, CongestionAlgorithm::Cubic, false).ask);
    assert_eq!(asks, [Off, Classic, Off, Accurate, Classic, Off]);
}

#[test]
fn a_marked_syn_agrees_to_accurate_ecn_only() {
    let policy = Policy::new(3, CongestionAlgorithm::Cubic, false);
    for codepoint in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        assert_eq!(policy.answer(CLASSIC, codepoint), Mode::Off);
        assert_eq!(policy.answer(ACE, codepoint), Mode::Accurate);
    }
    let dctcp = Policy::new(0, CongestionAlgorithm::Dctcp, false);
    assert_eq!((dctcp.ask, dctcp.agree), (Mode::Classic, Mode::Classic));
    assert_eq!(dctcp.answer(CLASSIC, Ecn::Ect0), Mode::Classic, "it marks its SYN");
}

#[test]
fn a_syn_ack_answers_what_was_asked() {
    use Mode::{Accurate, Classic, Off};
    let accurate = [Off, Classic, Accurate, Accurate, Accurate, Classic, Accurate, Off];
    let classic = [Off, Classic, Off, Off, Off, Classic, Off, Off];
    let codepoints = [None, None, Some(Ecn::NotEct), Some(Ecn::Ect1), Some(Ecn::Ect0), None]
        .into_iter()
        .chain([Some(Ecn::Ce), None]);
    for (ace, codepoint) in (0..8).zip(codepoints) {
        let flags = TcpFlags::SYN | TcpFlags::ACK | ace_flags(ace);
        let at = usize::from(ace);
        assert_eq!(agreed(Accurate, flags).0, accurate[at], "{ace:03b}");
        assert_eq!(agreed(Classic, flags).0, classic[at], "{ace:03b}");
        assert_eq!(agreed(Off, flags).0, Off, "{ace:03b}");
        assert_eq!(codepoint_of_handshake(ace), codepoint, "{ace:03b}");
        if let Some(codepoint) = codepoint {
            assert_eq!(agreed(Accurate, flags).1, codepoint);
            assert_eq!(handshake_ace(codepoint), ace);
        }
    }
}

#[test]
fn the_ace_field_is_three_flags() {
    for value in 0..8 {
        assert_eq!(ace(ace_flags(value) | TcpFlags::ACK | TcpFlags::PSH), value);
    }
    assert_eq!(ace_flags(0b100), TcpFlags::AE);
    assert_eq!(ace_flags(0b010), TcpFlags::CWR);
    assert_eq!(ace_flags(0b001 | 8), TcpFlags::ECE);
}
