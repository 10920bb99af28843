//! SNMP counters of the engine, under Linux's names.
//!
//! A counter has one writer and any number of readers. [`Counters`] is the writer: it is not `Sync`
//! and cannot be cloned, so only one thread at a time can count with it. Counting is a load and a
//! store without a locked instruction. [`Values`] hold the numbers, which any thread may read at
//! any time. A caller that polls from many threads keeps one [`Counters`] for each and adds up the
//! values on request. Only values created for it ([`Values::for_many`]) have several writers, which
//! count with locked instructions.

use alloc::sync::Arc;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use portable_atomic::AtomicU64;

macro_rules! counters {
    ($($variant:ident => $name:literal, $doc:literal;)*) => {
        /// A counter; its name is Linux's, as `nstat` prints it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Counter {
            $(#[doc = $doc] $variant,)*
        }

        impl Counter {
            /// All counters, in the order of their declaration.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),*];

            /// The name as `nstat` prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name),* }
            }

            /// The description, in one sentence.
            pub const fn description(self) -> &'static str {
                match self { $(Counter::$variant => $doc),* }
            }
        }
    };
}

counters! {
    ActiveOpens => "TcpActiveOpens", "Transitions from CLOSED to SYN-SENT.";
    PassiveOpens => "TcpPassiveOpens", "Transitions from LISTEN to SYN-RECEIVED.";
    AttemptFails => "TcpAttemptFails", "Opens that failed before ESTABLISHED.";
    EstabResets => "TcpEstabResets", "Resets of a connection in ESTABLISHED or CLOSE-WAIT.";
    InSegs => "TcpInSegs", "Wire segments received, also those in error.";
    OutSegs => "TcpOutSegs", "Wire segments sent, without those that only retransmit.";
    RetransSegs => "TcpRetransSegs", "Wire segments retransmitted.";
    InErrs => "TcpInErrs", "Segments received in error.";
    OutRsts => "TcpOutRsts", "Segments sent with RST.";
    InCsumErrors => "TcpInCsumErrors", "Segments received with a bad checksum.";
    DelayedAcks => "TcpExtDelayedACKs", "Pure ACKs sent by the delayed-ACK timer.";
    DelayedAckLost => "TcpExtDelayedACKLost", "Segments received again because our ACK came late or was lost.";
    ListenOverflows => "TcpExtListenOverflows", "Handshakes completed while the accept queue was full.";
    ListenDrops => "TcpExtListenDrops", "SYNs to a listener that were dropped.";
    TcpPureAcks => "TcpExtTCPPureAcks", "ACKs received without data on the slow path.";
    TcpHpAcks => "TcpExtTCPHPAcks", "ACKs received without data on the fast path.";
    TcpHpHits => "TcpExtTCPHPHits", "Data segments received on the fast path.";
    PawsActive => "TcpExtPAWSActive", "SYN-ACKs rejected by their timestamp in SYN-SENT.";
    PawsEstab => "TcpExtPAWSEstab", "Segments rejected by PAWS on a synchronised connection.";
    TcpAckSkippedChallenge => "TcpExtTCPACKSkippedChallenge", "Challenge ACKs left out because of the rate limit.";
    TcpAckSkippedSeq => "TcpExtTCPACKSkippedSeq", "Duplicate ACKs for out-of-window segments left out because of the rate limit.";
    TcpAckSkippedPaws => "TcpExtTCPACKSkippedPAWS", "Duplicate ACKs for PAWS failures left out because of the rate limit.";
    TcpChallengeAck => "TcpExtTCPChallengeACK", "Challenge ACKs sent (RFC 5961).";
    TcpSynChallenge => "TcpExtTCPSYNChallenge", "Challenge ACKs sent because of a SYN (RFC 5961).";
    TcpBacklogDrop => "TcpExtTCPBacklogDrop", "Segments dropped because the backlog of their socket was full.";
    TcpBacklogCoalesce => "TcpExtTCPBacklogCoalesce", "Segments merged with the one before in a backlog.";
    TcpMemoryPressures => "TcpExtTCPMemoryPressures", "Times that the memory of all connections came under pressure.";
    TcpRcvCollapsed => "TcpExtTCPRcvCollapsed", "Ranges of a receive queue copied together for want of memory.";
    TcpPruneCalled => "TcpExtPruneCalled", "Times that a receiver had to make room for data for want of memory.";
    TcpRcvPruned => "TcpExtRcvPruned", "Times that a receiver could not make enough room, so that data was dropped.";
    TcpOfoPruned => "TcpExtOfoPruned", "Times that out-of-order data was thrown away to make room.";
    TcpRcvQDrop => "TcpExtTCPRcvQDrop", "In-order segments dropped for want of memory, wholly or in part.";
    TcpOfoQueue => "TcpExtTCPOFOQueue", "Out-of-order segments queued.";
    TcpOfoDrop => "TcpExtTCPOFODrop", "Out-of-order segments dropped for want of memory.";
    TcpOfoMerge => "TcpExtTCPOFOMerge", "Out-of-order segments that overlapped others.";
    TcpRcvCoalesce => "TcpExtTCPRcvCoalesce", "Data segments coalesced with the one before in the receive queue.";
    TcpZeroWindowDrop => "TcpExtTCPZeroWindowDrop", "Segments dropped because our window was zero.";
    TcpFromZeroWindowAdv => "TcpExtTCPFromZeroWindowAdv", "Our window opened from zero.";
    TcpToZeroWindowAdv => "TcpExtTCPToZeroWindowAdv", "Our window closed to zero.";
    TcpDsackOldSent => "TcpExtTCPDSACKOldSent", "DSACKs sent for segments received again.";
    TcpDsackOfoSent => "TcpExtTCPDSACKOfoSent", "DSACKs sent for segments that were held behind a hole already.";
    TcpDsackRecv => "TcpExtTCPDSACKRecv", "DSACKs received.";
    TcpSackDiscard => "TcpExtTCPSACKDiscard", "SACK blocks received that no receiver of our data can have sent.";
    TcpDsackOfoRecv => "TcpExtTCPDSACKOfoRecv", "DSACKs received for segments above the acknowledgement.";
    TcpDsackRecvSegs => "TcpExtTCPDSACKRecvSegs", "Wire segments that DSACKs named.";
    TcpDsackIgnoredDubious => "TcpExtTCPDSACKIgnoredDubious", "DSACKs that cannot be true.";
    TcpSackReorder => "TcpExtTCPSACKReorder", "Late arrivals found by SACK.";
    TcpRenoReorder => "TcpExtTCPRenoReorder", "Late arrivals found by duplicate ACKs.";
    TcpTsReorder => "TcpExtTCPTSReorder", "Late arrivals found by timestamps.";
    TcpFullUndo => "TcpExtTCPFullUndo", "Recoveries undone at their end.";
    TcpPartialUndo => "TcpExtTCPPartialUndo", "Recoveries undone by an acknowledgement of a part.";
    TcpDsackUndo => "TcpExtTCPDSACKUndo", "Reductions undone because DSACKs named everything that was retransmitted.";
    TcpLossUndo => "TcpExtTCPLossUndo", "Timeouts undone.";
    TcpSpuriousRtos => "TcpExtTCPSpuriousRTOs", "Timeouts that F-RTO found to be spurious.";
    TcpSackRecoveryFail => "TcpExtTCPSackRecoveryFail", "Timeouts in a recovery with SACK.";
    TcpRenoRecoveryFail => "TcpExtTCPRenoRecoveryFail", "Timeouts in a recovery without SACK.";
    TcpLossFailures => "TcpExtTCPLossFailures", "Timeouts while recovering from an earlier timeout.";
    TcpSackFailures => "TcpExtTCPSackFailures", "Timeouts with SACK before a recovery began.";
    TcpRenoFailures => "TcpExtTCPRenoFailures", "Timeouts without SACK before a recovery began.";
    TcpLossProbes => "TcpExtTCPLossProbes", "Tail loss probes sent.";
    TcpLossProbeRecovery => "TcpExtTCPLossProbeRecovery", "Losses that a tail loss probe repaired.";
    TcpSackReneging => "TcpExtTCPSACKReneging", "Timeouts that found SACKed data unacknowledged at the front.";
    TcpSackRecovery => "TcpExtTCPSackRecovery", "Recoveries entered with SACK.";
    TcpRenoRecovery => "TcpExtTCPRenoRecovery", "Recoveries entered without SACK.";
    TcpRetransFail => "TcpExtTCPRetransFail", "Retransmissions that a full queue below did not take.";
    TcpFastRetrans => "TcpExtTCPFastRetrans", "Segments retransmitted in recovery.";
    TcpSlowStartRetrans => "TcpExtTCPSlowStartRetrans", "Segments retransmitted after a timeout.";
    TcpLostRetransmit => "TcpExtTCPLostRetransmit", "Retransmissions that were lost again.";
    TcpTimeouts => "TcpExtTCPTimeouts", "Retransmission timeouts.";
    TcpHystartTrainDetect => "TcpExtTCPHystartTrainDetect", "Slow starts ended because a train of ACKs filled the path.";
    TcpHystartTrainCwnd => "TcpExtTCPHystartTrainCwnd", "Congestion windows of these, in segments, added up.";
    TcpHystartDelayDetect => "TcpExtTCPHystartDelayDetect", "Slow starts ended because the round trip rose.";
    TcpHystartDelayCwnd => "TcpExtTCPHystartDelayCwnd", "Congestion windows of these, in segments, added up.";
    TcpSpuriousRtxHostQueues => "TcpExtTCPSpuriousRtxHostQueues", "Retransmissions left out because the packet was still below us.";
    TcpDeferAcceptDrop => "TcpExtTCPDeferAcceptDrop", "Last ACKs of a handshake that did not count, as data is awaited.";
    TcpAbortOnData => "TcpExtTCPAbortOnData", "Resets because data arrived after close.";
    TcpAbortOnClose => "TcpExtTCPAbortOnClose", "Resets because close found unread data.";
    TcpAbortOnTimeout => "TcpExtTCPAbortOnTimeout", "Connections ended by too many retransmissions, probes or the user timeout.";
    TcpAbortOnLinger => "TcpExtTCPAbortOnLinger", "Orphans in FIN-WAIT-2 ended at once.";
    TcpAbortOnMemory => "TcpExtTCPAbortOnMemory", "Connections ended for want of memory or orphan slots.";
    TcpKeepAlive => "TcpExtTCPKeepAlive", "Keepalive probes sent.";
    TcpWinProbe => "TcpExtTCPWinProbe", "Zero-window probes sent.";
    TcpOrigDataSent => "TcpExtTCPOrigDataSent", "Wire segments with original data sent, without retransmissions and ACKs.";
    TcpDelivered => "TcpExtTCPDelivered", "Wire segments delivered, by ACK or SACK.";
    EcnMarksReceived => "plimsoll.EcnMarksReceived", "Segments received with a CE mark on connections with ECN.";
    TcpDeliveredCe => "TcpExtTCPDeliveredCE", "Wire segments delivered with a congestion mark, as far as ACKs reported it.";
    TcpMd5NotFound => "TcpExtTCPMD5NotFound", "Segments dropped because they should have been signed.";
    TcpMd5Unexpected => "TcpExtTCPMD5Unexpected", "Segments dropped because they were signed without an agreed key.";
    TcpMd5Failure => "TcpExtTCPMD5Failure", "Segments dropped because their signature was wrong.";
    TcpMtupFail => "TcpExtTCPMTUPFail", "Probes of the path MTU that were lost while what followed them was not.";
    TcpMtupSuccess => "TcpExtTCPMTUPSuccess", "Probes of the path MTU that arrived.";
    TcpReqQFullDrop => "TcpExtTCPReqQFullDrop", "SYNs dropped because the SYN queue was full.";
    TcpReqQFullDoCookies => "TcpExtTCPReqQFullDoCookies", "SYNs answered with a cookie because the SYN queue was full.";
    SyncookiesSent => "TcpExtSyncookiesSent", "SYN cookies sent.";
    SyncookiesRecv => "TcpExtSyncookiesRecv", "ACKs received with a good SYN cookie.";
    SyncookiesFailed => "TcpExtSyncookiesFailed", "ACKs received with a SYN cookie that was not good.";
    TcpSynRetrans => "TcpExtTCPSynRetrans", "SYNs and SYN-ACKs retransmitted.";
    TcpTimeWaitOverflow => "TcpExtTCPTimeWaitOverflow", "TIME-WAIT connections dropped because the table was full.";
    TcpFastOpenActive => "TcpExtTCPFastOpenActive", "Active opens whose SYN carried data that the peer took.";
    TcpFastOpenActiveFail => "TcpExtTCPFastOpenActiveFail", "Active opens whose SYN carried data that had to be retransmitted.";
    TcpFastOpenPassive => "TcpExtTCPFastOpenPassive", "Passive opens whose data was taken before the handshake ended.";
    TcpFastOpenPassiveFail => "TcpExtTCPFastOpenPassiveFail", "SYNs with a Fast Open cookie that was not good.";
    TcpFastOpenListenOverflow => "TcpExtTCPFastOpenListenOverflow", "SYNs that could not open at once because too many had.";
    TcpFastOpenCookieReqd => "TcpExtTCPFastOpenCookieReqd", "SYNs that asked for a Fast Open cookie.";
    TcpFastOpenPassiveAltKey => "TcpExtTCPFastOpenPassiveAltKey", "Passive opens whose cookie was of the older key.";
    TcpFastOpenBlackhole => "TcpExtTCPFastOpenBlackhole", "Times that active Fast Open was switched off because something swallowed it.";
    TimeWaitEntered => "TcpExtTW", "Connections that ended their TIME-WAIT by its timer.";
    TimeWaitRecycled => "TcpExtTWRecycled", "TIME-WAIT connections reused (RFC 6191).";
    TcpAutoCorking => "TcpExtTCPAutoCorking", "Packets that were held for a completion, however many writes joined them.";
    HoldPacing => "plimsoll.HoldPacing", "Sends held until their departure time.";
    HoldCwnd => "plimsoll.HoldCwnd", "Sends held by the congestion window.";
    HoldRwnd => "plimsoll.HoldRwnd", "Sends held by the peer's window.";
    HoldSillyWindow => "plimsoll.HoldSillyWindow", "Sends held by sender silly-window avoidance.";
    HoldNagle => "plimsoll.HoldNagle", "Sends held by Nagle's rule.";
    HoldCork => "plimsoll.HoldCork", "Sends held by TCP_CORK or MSG_MORE.";
    HoldMtuProbe => "plimsoll.HoldMtuProbe", "Sends that waited for the windows to take a probe of the path MTU.";
    HoldTsoDefer => "plimsoll.HoldTsoDefer", "Sends that waited for a fuller super-segment.";
    HoldSmallQueue => "plimsoll.HoldSmallQueue", "Sends held because enough was below us (TSQ).";
    HoldRefused => "plimsoll.HoldRefused", "Packets that what lies below did not take; they were kept and offered again.";
    HalfCloseTimeouts => "plimsoll.HalfCloseTimeouts", "Half-closed connections reset because no data moved for `half_close_timeout`.";
    BbrProbeUp => "plimsoll.BbrProbeUp", "Times that BBR began to look for more bandwidth.";
    BbrProbeRtt => "plimsoll.BbrProbeRtt", "Times that BBR began to look for a shorter round trip.";
    BbrExcessLoss => "plimsoll.BbrExcessLoss", "Times that BBR left Startup or a probe because more than 2 % was lost.";
    SuperSegs => "plimsoll.SuperSegs", "Packets of more than one wire segment handed down.";
    AcksSent => "plimsoll.AcksSent", "Pure ACKs sent.";
    TcpAckCompressed => "TcpExtTCPAckCompressed", "ACKs of out-of-order data that one ACK stood for.";
    AckReaderLate => "plimsoll.AckReaderLate", "ACKs left to an answer that did not come in half a millisecond.";
    AcksDeferred => "plimsoll.AcksDeferred", "Segments whose ACK was due and was left to the end of their batch.";
    AcksDeferredDevice => "plimsoll.AcksDeferredDevice", "The same, of segments that a device had.";
    AcksDeferredBacklog => "plimsoll.AcksDeferredBacklog", "The same, of segments that waited in the backlog of an owned socket.";
    AcksDeferredPrequeue => "plimsoll.AcksDeferredPrequeue", "The same, of segments that waited for a blocked reader.";
    AckFlushDuplicate => "plimsoll.AckFlushDuplicate", "ACKs that left within a batch because the peer counts duplicates.";
    AckFlushFin => "plimsoll.AckFlushFin", "ACKs that left within a batch because of the peer's FIN.";
    AckFlushWindow => "plimsoll.AckFlushWindow", "ACKs that left within a batch because the window opened from zero.";
    AckFlushCongestion => "plimsoll.AckFlushCongestion", "ACKs that left within a batch because what they say of congestion changed.";
    AckFlushPush => "plimsoll.AckFlushPush", "ACKs that left within a batch because a write of one full segment ended.";
    AckFlushQuarter => "plimsoll.AckFlushQuarter", "ACKs that left within a batch because a quarter of the window was unacknowledged.";
}

impl Counter {
    /// Counters of reductions, in which data was considered lost: recoveries, timeouts, and losses
    /// that a probe repaired.
    pub const REDUCTIONS: [Counter; 4] = [
        Counter::TcpSackRecovery,
        Counter::TcpRenoRecovery,
        Counter::TcpTimeouts,
        Counter::TcpLossProbeRecovery,
    ];

    /// Counters of reductions that were found to be wrong, and undone.
    pub const UNDOS: [Counter; 4] = [
        Counter::TcpFullUndo,
        Counter::TcpPartialUndo,
        Counter::TcpDsackUndo,
        Counter::TcpLossUndo,
    ];
}

/// `N` numbers for writers to count in. Any thread may read them.
#[derive(Debug)]
pub struct Values<const N: usize> {
    numbers: [AtomicU64; N],
    /// There may be several writers.
    many: bool,
}

impl<const N: usize> Values<N> {
    fn new(many: bool) -> Arc<Values<N>> {
        Arc::new(Values { numbers: [const { AtomicU64::new(0) }; N], many })
    }

    /// Numbers for several writers; see [`Writer::join`].
    pub fn for_many() -> Arc<Values<N>> {
        Values::new(true)
    }

    /// The present number with this index.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn get(&self, index: usize) -> u64 {
        self.numbers[index].load(Ordering::Relaxed)
    }
}

/// Counts in [`Values`]. One thread at a time owns it: it may be sent, but not shared.
#[derive(Debug)]
pub struct Writer<const N: usize> {
    values: Arc<Values<N>>,
    not_sync: PhantomData<Cell<()>>,
}

impl<const N: usize> Writer<N> {
    /// The only writer of new values, which are zero.
    pub fn new() -> Writer<N> {
        Writer { values: Values::new(false), not_sync: PhantomData }
    }

    /// Another writer of values that were made for several; `None` if these were not.
    pub fn join(values: &Arc<Values<N>>) -> Option<Writer<N>> {
        values.many.then(|| Writer { values: values.clone(), not_sync: PhantomData })
    }

    /// The values that it counts in.
    pub fn values(&self) -> &Arc<Values<N>> {
        &self.values
    }

    /// Adds `count` to the number with this index.
    ///
    /// # Panics
    /// If there is no such index.
    #[inline]
    pub fn add(&self, index: usize, count: u64) {
        let number = &self.values.numbers[index];
        if self.values.many {
            number.fetch_add(count, Ordering::Relaxed);
        } else {
            // No other thread writes, as the type guarantees.
            number.store(number.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Default for Writer<N> {
    fn default() -> Writer<N> {
        Writer::new()
    }
}

/// The values of the engine's counters.
pub type CounterValues = Values<{ Counter::ALL.len() }>;

/// One set of counters, and the right to count in it.
#[derive(Debug, Default)]
pub struct Counters(Writer<{ Counter::ALL.len() }>);

impl Counters {
    /// All zero.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// Counts in values with several writers; `None` if these have only one.
    pub fn join(values: &Arc<CounterValues>) -> Option<Counters> {
        Writer::join(values).map(Counters)
    }

    /// The values, for readers.
    pub fn values(&self) -> &Arc<CounterValues> {
        self.0.values()
    }

    /// Adds one.
    #[inline]
    pub fn bump(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        self.0.add(counter as usize, count);
    }

    /// The present value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values().get(counter as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_made_for_it_have_several_writers() {
        let alone = Writer::<2>::new();
        assert!(Writer::join(alone.values()).is_none());
        alone.add(1, 3);
        let many = Values::<2>::for_many();
        let writers = [Writer::join(&many), Writer::join(&many)];
        writers.iter().flatten().for_each(|writer| writer.add(0, 2));
        assert_eq!((many.get(0), alone.values().get(1)), (4, 3));
    }

    /// A writer may move to another thread, but two threads cannot own it at once. The test is that
    /// this compiles: with `Writer: Sync` the name would have two implementations.
    #[test]
    fn a_writer_is_sent_and_not_shared() {
        trait Shared<Marker> {
            fn is_not() {}
        }
        struct IfSync;
        impl<T> Shared<()> for T {}
        impl<T: Sync> Shared<IfSync> for T {}
        <Counters as Shared<_>>::is_not();
        fn is_sent<T: Send>() {}
        is_sent::<Counters>();
    }
}
