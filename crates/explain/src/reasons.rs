//! Why, where one kind of finding has several causes that a capture tells apart.

use serde::Serialize;

/// One of the causes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No answer to the SYN passed: it was lost further on, or the server dropped it.
    SynLost,
    /// The SYN reached the server's host, which did not answer.
    SynIgnored,
    /// The server had answered the SYN, and the client repeated it.
    AnswerLost,
    /// No SYN had any answer.
    NobodyThere,
    /// The SYN-ACK or the ACK for it was lost.
    SynAckLost,
    /// The server's host had the client's ACK and did not take it.
    AckIgnored,
    /// The same, or the ACK was lost further on.
    AckLostOrIgnored,
    /// No packet of the server followed its SYN-ACK, however often the client sent its data.
    NotTaken,
    /// A reset answered the SYN.
    PortClosed,
    /// An ICMP error of the host itself.
    PortUnreachable,
    /// An ICMP error of a packet filter.
    Prohibited,
    /// An ICMP error of a router.
    NoRoute,
    /// An ICMP error said what the path takes, and the sender followed.
    SizeReported,
    /// An ICMP error said what the path takes, and the sender did not follow.
    SizeIgnored,
    /// Large segments never arrived, and smaller ones did.
    BlackHole,
    /// Large segments never arrived, and nothing tells whether smaller ones would.
    PerhapsBlackHole,
    /// Large segments never came to the receiver, where this was captured.
    LargeNeverCame,
    /// A reset that a program's end causes.
    Aborted,
    /// Data came for an end that had closed.
    ClosedBefore,
    /// The host knows no such connection.
    NotKnown,
    /// The same, right behind the handshake.
    RefusedLate,
    /// A reset that came another way than the packets of its address.
    ByDevice,
}

/// What a reason is about.
enum About {
    Opening,
    Sizes,
    Ending,
}

impl Reason {
    fn about(self) -> About {
        match self {
            Reason::SizeReported
            | Reason::SizeIgnored
            | Reason::BlackHole
            | Reason::PerhapsBlackHole
            | Reason::LargeNeverCame => About::Sizes,
            Reason::Aborted
            | Reason::ClosedBefore
            | Reason::NotKnown
            | Reason::RefusedLate
            | Reason::ByDevice => About::Ending,
            _ => About::Opening,
        }
    }

    /// What happened.
    pub fn cause(self) -> &'static str {
        match self.about() {
            About::Opening => opening_cause(self),
            About::Sizes => sizes_cause(self),
            About::Ending => ending_cause(self),
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self.about() {
            About::Opening => opening_remedy(self),
            About::Sizes => sizes_remedy(self),
            About::Ending => ending_remedy(self),
        }
    }
}

fn opening_cause(reason: Reason) -> &'static str {
    match reason {
        Reason::SynLost => {
            "No answer to the first SYN passed here. Either the SYN or its answer was lost \
             between here and the server, or the server dropped the SYN: Linux does so when \
             the program's queue of connections is full, and packet filters do."
        }
        Reason::SynIgnored => {
            "The SYN reached the server's host, where this was captured, and the host did not \
             answer it: the program's queue of connections was full, or a packet filter \
             dropped it."
        }
        Reason::AnswerLost => {
            "The server answered the SYN, but the client repeated it: the SYN-ACK was lost on \
             its way to the client, or a packet filter there dropped it."
        }
        Reason::NobodyThere => {
            "No SYN had an answer, not even a reset or an ICMP error: there is no such host, a \
             packet filter drops the SYNs, or they or their answers are lost on the way."
        }
        Reason::SynAckLost => {
            "The server repeated its SYN-ACK, and no ACK had passed before: the SYN-ACK was \
             lost between here and the client, or the client's ACK was."
        }
        Reason::AckIgnored => {
            "The client's ACK reached the server's host, where this was captured, but the host \
             ignored it and the data behind it: the program does not accept its connections \
             fast enough, and their queue is full."
        }
        Reason::AckLostOrIgnored => {
            "The client had acknowledged the SYN-ACK, and the server sent it again: the \
             queue of connections that the program has not accepted yet is full, and the ACK \
             is ignored as Linux does then; or the ACK was lost between here and the server."
        }
        Reason::NotTaken => {
            "The client repeated its first data, and no packet of the server followed its \
             SYN-ACK: the data or its ACKs were lost, or the server ignored both, as Linux \
             does when the queue of connections that the program has not accepted yet is full."
        }
        Reason::PortClosed => {
            "A reset answered the SYN: no program listens at this address and port, or a \
             packet filter rejects connections in its place."
        }
        Reason::PortUnreachable => {
            "An ICMP error answered: the port, or TCP itself, is not reachable there. Hosts \
             answer TCP with resets; so this is most likely a packet filter that rejects."
        }
        Reason::Prohibited => {
            "An ICMP error answered: a packet filter or an access list on the way prohibits \
             this connection."
        }
        _ => {
            "An ICMP error answered: a router on the way has no route to the network, or the \
             host does not answer in its own network, or packets run in a circle."
        }
    }
}

fn sizes_cause(reason: Reason) -> &'static str {
    match reason {
        Reason::SizeReported => {
            "The path takes smaller packets than both ends do. A router said so by ICMP, and \
             the sender cut its segments smaller, but what was on its way was lost."
        }
        Reason::SizeIgnored => {
            "The path takes smaller packets than both ends do. A router said so by ICMP, but \
             the sender went on with large ones: a packet filter in front of it or on it drops \
             the ICMP errors, or it does not believe them."
        }
        Reason::BlackHole => {
            "A black hole: the path takes smaller packets than both ends do, and drops larger \
             ones without a word (RFC 2923, section 2.1). No ICMP error is in the capture: a \
             filter drops them, or a tunnel sends none. Segments above a size were lost every \
             time, while smaller ones arrived."
        }
        Reason::PerhapsBlackHole => {
            "Large segments were lost every time they were sent, though smaller ones had \
             arrived before: the path takes smaller packets than both ends do and drops larger \
             ones without a word (a black hole; RFC 2923, section 2.1); or the path or the \
             receiver went away just then, or ignores the connection."
        }
        _ => {
            "Segments as large as both ends allow never came here, and smaller ones filled the \
             gaps: the path takes smaller packets than both ends do and drops larger ones."
        }
    }
}

fn ending_cause(reason: Reason) -> &'static str {
    match reason {
        Reason::Aborted => {
            "The end sent a reset of its own accord (RST with ACK) instead of a FIN: its \
             program closed the socket while received data was still unread, or with \
             SO_LINGER at zero, or it was killed; or its host gave the connection up after a \
             timeout."
        }
        Reason::ClosedBefore => {
            "The end had closed the connection, and data came for it afterwards. Nobody can \
             read that data, so its host answered with a reset."
        }
        Reason::NotKnown => {
            "The reset answers a packet of the other end, and its sender does not know the \
             connection: the program has closed it, the host has restarted, or a firewall, \
             NAT or load balancer on the way has forgotten it."
        }
        Reason::RefusedLate => {
            "The reset came right behind the handshake, before any data: the listening program \
             ended, its queue of connections was full (net.ipv4.tcp_abort_on_overflow), or the \
             client had given up before the SYN-ACK came."
        }
        _ => {
            "The reset has another TTL than the other packets with its source address. \
             Probably that host did not send it, but a firewall or another device on the way."
        }
    }
}

fn opening_remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::SynLost | Reason::SynIgnored => {
            "Look on the server first: nstat counts TcpExtListenOverflows and \
             TcpExtListenDrops when a queue of connections is full. Then accept faster, or \
             raise the backlog of listen and net.core.somaxconn. If they stay at zero, look \
             for a packet filter and for loss on the way with a capture at the server."
        }
        Reason::AnswerLost => {
            "Look for loss and for packet filters on the way from the server to the client; \
             the answers of a server with several routes may take another way. A capture at \
             the client shows whether the SYN-ACK arrives."
        }
        Reason::NobodyThere => {
            "Check the address and the route, and the packet filters of both hosts and on the \
             way; a capture at the server shows whether the SYNs arrive. Let filters reject \
             instead of drop, so that clients fail at once; set a shorter timeout for connect \
             in the program (on Linux TCP_SYNCNT or TCP_USER_TIMEOUT)."
        }
        Reason::SynAckLost => {
            "Look for loss and for packet filters between the server and the client. SYN-ACKs \
             to addresses that do not answer at all come from forged SYNs (a SYN flood): \
             net.ipv4.tcp_syncookies = 1 keeps them from filling the queue."
        }
        Reason::AckIgnored | Reason::AckLostOrIgnored => {
            "Accept connections faster, or raise the backlog of listen and \
             net.core.somaxconn: TcpExtListenOverflows counts on the server, and ss -ltn \
             shows the queue (Recv-Q) and its bound (Send-Q)."
        }
        Reason::NotTaken => {
            "Look on the server first: nstat counts TcpExtListenOverflows when the queue is \
             full. Then accept faster, or raise the backlog of listen and net.core.somaxconn. \
             If it stays at zero, look for loss on the way with a capture at the server."
        }
        Reason::PortClosed => {
            "Start the server, or correct the address or port; see with ss -ltn which address \
             it listens on. A client that retries should wait longer from time to time."
        }
        Reason::PortUnreachable | Reason::Prohibited => {
            "Look for the packet filter whose address sent the ICMP error, and allow the \
             connection there; or correct the address or port."
        }
        _ => {
            "See which router sent the ICMP error, and check its routes; check that the host \
             is up and has the address."
        }
    }
}

fn sizes_remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::SizeReported => {
            "Clamp the MSS at the router in front of the narrow link, so that no flow has to \
             find out (nft: tcp flags syn tcp option maxseg size set rt mtu); or lower the MTU \
             of the ends' devices or of their route."
        }
        Reason::SizeIgnored => {
            "Let ICMP \"fragmentation needed\" (type 3, code 4) and ICMPv6 \"packet too big\" \
             (type 2) pass to the sender. Until then clamp the MSS at the router in front of \
             the narrow link (nft: tcp flags syn tcp option maxseg size set rt mtu), or have \
             the sender probe for the size (PLPMTUD, RFC 4821 and RFC 8899; \
             net.ipv4.tcp_mtu_probing = 1)."
        }
        _ => {
            "Clamp the MSS at the router in front of the tunnel or narrow link (nft: tcp flags \
             syn tcp option maxseg size set rt mtu), or have the sender probe for the size \
             (PLPMTUD, RFC 4821 and RFC 8899; net.ipv4.tcp_mtu_probing = 1), or lower the MTU \
             of the route. Let ICMP errors pass. `ping -M do -s SIZE` shows what gets through."
        }
    }
}

fn ending_remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::Aborted => {
            "Read up to the end (a read of 0 bytes) before close, or call shutdown and read \
             the rest; leave SO_LINGER out. If data had waited long for an ACK, look for what \
             interrupts the path."
        }
        Reason::ClosedBefore => {
            "Have the end that closes first read what still comes: shutdown(SHUT_WR), read to \
             the end, close. Have the other end stop when the program's protocol says so."
        }
        Reason::NotKnown => {
            "If the connection was idle before, keep it alive (SO_KEEPALIVE with TCP_KEEPIDLE \
             below the timeout of the devices on the way) or close it sooner on the side that \
             sends. Otherwise look why the program closed it or the host restarted."
        }
        Reason::RefusedLate => {
            "See whether the server's program runs and accepts: TcpExtListenOverflows counts \
             full queues. Leave net.ipv4.tcp_abort_on_overflow at 0."
        }
        _ => {
            "Compare with a capture at the other end, which shows who sent it. Then look for \
             the rule or the timeout of the firewall or load balancer."
        }
    }
}
