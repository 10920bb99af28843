//! What must hold of a sender's decisions, told from its `TCP_INFO` alone.
//!
//! A [`Sender`] compares what a connection says of itself from one look to the next. It does not
//! repeat the engine's arithmetic: it has one coarse bound for each decision, in the terms of the
//! RFC that asks for it, and slack where a look may have missed a step. Where it cannot tell, it
//! says nothing. BBR has a model of its own, so that the bounds of a window do not hold for it.

use plimsoll_tcp::{CongestionAlgorithm, Duration, Hold, Info};

use crate::scenario::{Event, Happening, LinkPair, Scenario};
use crate::watch::Wrong;

/// The states of recovery in `ca_state`, as Linux numbers them.
const OPEN: u8 = 0;
const DISORDER: u8 = 1;
const CWR: u8 = 2;
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;

/// The longest timeout (RFC 6298, section 2.4; Linux: 120 s), less what rounding takes.
const MAX_RTO: Duration = Duration::from_secs(110);
/// Segments that PRR may be ahead of its bound, since a look may come after the first of them.
const PRR_SLACK: u64 = 4;

/// What the surroundings of a connection do to the packets, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathConditions {
    /// Its ACKs leave in time: nothing below it is slow or paces, its process runs all the time,
    /// and it does not delay them for longer than by default.
    pub(crate) prompt: bool,
    /// Its windows may shrink.
    pub(crate) shrinks: bool,
    /// The longest timeout is that of Linux.
    pub(crate) backs_off: bool,
    /// Nothing but a host makes a second copy of a segment, or cuts segments anew.
    pub(crate) one_copy: bool,
    /// Tail loss probes are on.
    pub(crate) probes: bool,
    /// It hears at once what routers say of the path MTU, and asks for nothing longer by itself.
    pub(crate) believes: bool,
}

#[cfg(test)]
impl PathConditions {
    /// Those in which every rule holds.
    pub(crate) const PLAIN: PathConditions = PathConditions {
        prompt: true,
        shrinks: false,
        backs_off: true,
        one_copy: true,
        probes: true,
        believes: true,
    };
}

impl Scenario {
    /// What is around the connections of a host.
    pub(crate) fn surroundings(&self, host: usize) -> PathConditions {
        let this = &self.host[host];
        let happens = |event: &Event| match &event.what {
            Happening::Stall { host, .. }
            | Happening::Clock { host, .. }
            | Happening::Crash { host, .. } => *host == this.name,
            _ => false,
        };
        let copies = |link: &LinkPair| {
            let twice = [false, true].iter().any(|&way| link.direction(way).duplicate > 0.0);
            twice || !link.middlebox.is_empty()
        };
        let setting = |name: &str| this.sysctl.get(name).map(String::as_str);
        let own = |part: &str| this.sysctl.keys().any(|name| name.contains(part));
        let paces = setting("net.core.default_qdisc").is_some_and(|kind| kind.starts_with("fq"));
        let runs = this.ring == 0 && !self.event.iter().any(happens);
        PathConditions {
            prompt: runs && !paces && !own("tcp_delack"),
            shrinks: setting("net.ipv4.tcp_shrink_window").is_some_and(|value| value != "0"),
            backs_off: !own("tcp_rto_max"),
            one_copy: !self.link.iter().any(copies)
                && !self.fault.iter().any(|fault| fault.fate.duplicate),
            probes: matches!(setting("net.ipv4.tcp_early_retrans").unwrap_or("3"), "3" | "4"),
            believes: runs && !paces && !own("mtu"),
        }
    }
}

/// The decisions of one connection so far.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    last: Option<Info>,
    episode: Option<Episode>,
    /// The last thing that arrived was an ACK that left everything in order, and nothing has left
    /// since.
    quiet: bool,
    /// A timer has sent new data, which may be a tail loss probe: bytes that are acknowledged when
    /// it is. There is one probe at a time (RFC 8985, section 7.2).
    probe: Option<u64>,
    /// cwnd when the last reduction began, at most: what an undo of it puts back (docs/recovery.md,
    /// RecoverFS).
    recover_fs: u32,
}

/// From the first sign of a loss until all is in order again.
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// DSACKs had named every copy that was sent again before, so that those to come are of it.
    alone: bool,
    /// It has had no timeout, after which slow start takes the place of PRR.
    prr: bool,
    /// cwnd when it began.
    recover_fs: u32,
    /// ssthresh when it began.
    ssthresh: u32,
    /// ssthresh since it began.
    reduced: u32,
    /// What was sent and delivered when it began.
    sent: u64,
    delivered: u32,
    mss: u32,
    /// Bytes that are acknowledged when it ends (RFC 6582, `recover`).
    recover: u64,
}

/// Wire segments that are thought to be in the network (RFC 6675, `pipe`).
fn flight(info: &Info) -> u32 {
    (info.unacked + info.retrans).saturating_sub(info.sacked + info.lost)
}

/// Bytes that have left, each counted once.
fn sent_once(info: &Info) -> u64 {
    info.bytes_sent.saturating_sub(info.bytes_retrans)
}

/// Whether a Recovery that began after `last` may be over and undone by now, and its state still
/// be shown. Without SACK the state stays until something beyond RecoveryPoint is acknowledged (RFC
/// 6582, section 3.2; docs/recovery.md, row A6), though a timestamp has told that nothing was lost
/// (RFC 3522) and ssthresh is what it was. Then all that had left is acknowledged; where a loss is
/// being repaired, its first segment is not.
fn is_undone_in_recovery(last: &Info, now: &Info) -> bool {
    let again = now.total_retrans > last.total_retrans;
    !now.sack && now.timestamps && again && now.lost == 0 && now.bytes_acked >= sent_once(last)
}

fn delivered(now: &Info, since: u32) -> u32 {
    now.delivered.wrapping_sub(since)
}

impl Sender {
    /// Compares with what was seen before.
    pub(crate) fn check(&mut self, now: &Info, around: PathConditions) -> Result<(), Wrong> {
        check_hold(now)?;
        let Some(last) = self.last.replace(now.clone()) else { return Ok(()) };
        if now.congestion == CongestionAlgorithm::Bbr || last.congestion != now.congestion {
            return check_backoff(&last, now, around);
        }
        self.check_entry(&last, now)?;
        check_backoff(&last, now, around)?;
        self.note_probe(&last, now);
        self.check_probe(&last, now, around)?;
        self.note_reduction(&last, now);
        self.follow(&last, now);
        self.check_prr(now)?;
        self.check_undo(now, around)
    }

    /// The most that cwnd can have been when a reduction began between two looks. The ACK that
    /// begins one may bring the DSACK that undoes the one before: first the undo puts cwnd back,
    /// then all that is outstanding is judged again (docs/recovery.md, rows O2, O3 and O8).
    fn most_cwnd(&self, last: &Info, now: &Info) -> u32 {
        let put_back = if now.dsack_dups > last.dsack_dups { self.recover_fs } else { 0 };
        last.snd_cwnd.max(put_back).saturating_add(delivered(now, last.delivered))
    }

    /// Notes with which cwnd a reduction began.
    fn note_reduction(&mut self, last: &Info, now: &Info) {
        let most = self.most_cwnd(last, now);
        let in_trouble = now.ca_state >= RECOVERY;
        if in_trouble && last.ca_state <= DISORDER {
            self.recover_fs = most;
        } else if in_trouble && now.ca_state != last.ca_state
            || now.snd_ssthresh < last.snd_ssthresh
        {
            // Perhaps the same reduction goes on, or slow start has just ended.
            self.recover_fs = self.recover_fs.max(most);
        }
    }

    /// Entering Recovery or Loss reduces the window (RFC 5681, section 3.2 and 3.1).
    fn check_entry(&self, last: &Info, now: &Info) -> Result<(), Wrong> {
        let grown = delivered(now, last.delivered);
        if now.ca_state == RECOVERY && last.ca_state <= DISORDER {
            let most = self.most_cwnd(last, now).max(2);
            let kept = is_undone_in_recovery(last, now) && now.snd_ssthresh <= last.snd_ssthresh;
            if now.snd_ssthresh > most && !kept {
                return wrong("a loss reduces the window", last, now);
            }
        }
        let timed_out = now.retransmits > last.retransmits && now.ca_state == LOSS;
        if timed_out && now.snd_cwnd > flight(now).saturating_add(grown).saturating_add(2) {
            return wrong("a timeout leaves one segment to send", last, now);
        }
        Ok(())
    }

    /// Begins and ends episodes.
    fn follow(&mut self, last: &Info, now: &Info) {
        let in_trouble = |info: &Info| info.ca_state >= RECOVERY;
        // One may end and the next begin with the same ACK.
        let over = |episode: Episode| now.bytes_acked >= episode.recover;
        let goes_on = in_trouble(last) && now.ca_state == RECOVERY;
        let next = goes_on && self.episode.is_some_and(over);
        if in_trouble(now) && (!in_trouble(last) || next) {
            self.episode = Some(Episode {
                alone: last.total_retrans == last.dsack_dups,
                // One that goes on with a reduction for marks has the proportion of that, which may
                // have begun with less than ssthresh. Of one that follows another with the same ACK
                // nobody has seen the cwnd that it began with.
                prr: now.ca_state == RECOVERY && last.ca_state != CWR && !next,
                recover_fs: last.snd_cwnd,
                ssthresh: last.snd_ssthresh,
                reduced: now.snd_ssthresh,
                sent: now.data_segs_out,
                // With what the ACK delivered that it began with, for which PRR sends as well.
                delivered: last.delivered,
                mss: now.snd_mss,
                recover: sent_once(last),
            });
        } else if now.ca_state > DISORDER && !in_trouble(now) || now.ca_state == LOSS {
            // Another reduction, or one that PRR has no part in.
            self.episode = self.episode.filter(|_| now.ca_state == LOSS).map(|episode| {
                let alone = episode.alone && now.backoff == 0;
                Episode { alone, prr: false, ..episode }
            });
        }
        if now.segs_in != last.segs_in {
            let in_order = |info: &Info| info.ca_state == OPEN && info.sacked + info.lost == 0;
            self.quiet = now.bytes_acked > last.bytes_acked && in_order(last) && in_order(now);
        }
        if now.data_segs_out != last.data_segs_out && now.segs_in == last.segs_in {
            self.quiet = false;
        }
        // Below ssthresh as much leaves as is delivered, and more than in proportion.
        if now.ca_state == RECOVERY && flight(now) < now.snd_ssthresh {
            self.episode = self.episode.map(|episode| Episode { prr: false, ..episode });
        }
        // What the reordering timer finds leaves as far as the window goes, on Linux too: PRR looks
        // at ACKs.
        if in_trouble(last) && now.lost > last.lost && now.segs_in == last.segs_in {
            self.episode = self.episode.map(|episode| Episode { prr: false, ..episode });
        }
    }

    /// New data that had waited has left, and no ACK has come.
    fn note_probe(&mut self, last: &Info, now: &Info) {
        let written = |info: &Info| sent_once(info) + u64::from(info.notsent_bytes);
        let by_timer = now.segs_in == last.segs_in && written(now) == written(last);
        if by_timer && sent_once(now) > sent_once(last) {
            self.probe = Some(sent_once(now));
        }
        self.probe = self.probe.filter(|&end| now.bytes_acked < end);
    }

    /// A timeout comes after a probe (RFC 8985, section 7.2).
    fn check_probe(&self, last: &Info, now: &Info, around: PathConditions) -> Result<(), Wrong> {
        let timed_out = now.retransmits > last.retransmits && now.ca_state == LOSS;
        let none = last.total_retrans == 0 && self.probe.is_none();
        let expected = around.probes && around.prompt && now.sack && none;
        let no_ack = now.segs_in == last.segs_in && last.ca_state == OPEN;
        if timed_out && expected && no_ack && self.quiet && last.unacked > 0 {
            return wrong("a probe goes before a timeout", last, now);
        }
        Ok(())
    }

    /// Within Recovery what leaves is in proportion to what arrives (RFC 9937, section 6.2), unless
    /// less than ssthresh is in flight.
    fn check_prr(&self, now: &Info) -> Result<(), Wrong> {
        let Some(episode) = self.episode.filter(|episode| episode.prr && now.ca_state == RECOVERY)
        else {
            return Ok(());
        };
        // Nothing is repaired any more once the reduction was taken back, and cwnd grows again.
        let repairs = now.lost + now.retrans > 0 && now.snd_cwnd < episode.recover_fs;
        if !repairs
            || now.snd_ssthresh != episode.reduced
            || now.snd_mss != episode.mss
            || flight(now) <= now.snd_ssthresh + 1
        {
            return Ok(());
        }
        let out = now.data_segs_out - episode.sent;
        let scaled = u64::from(delivered(now, episode.delivered)) * u64::from(now.snd_ssthresh);
        let most = scaled.div_ceil(u64::from(episode.recover_fs.max(1))) + PRR_SLACK;
        if out > most {
            let what = format!("{out} segments have left, {most} may: {episode:?}, {now:?}");
            return Err(("a reduction is in proportion to what is delivered", what));
        }
        Ok(())
    }

    /// When every copy was reported to be one too many, nothing was lost, and the reduction is
    /// taken back (RFC 3708). This is told only while every copy before was named as well: the
    /// report of an older one says nothing of this reduction.
    fn check_undo(&mut self, now: &Info, around: PathConditions) -> Result<(), Wrong> {
        let Some(episode) = self.episode.filter(|_| now.ca_state == OPEN) else { return Ok(()) };
        let all_named = now.retrans == 0 && now.dsack_dups == now.total_retrans;
        // A timeout has signs of its own (F-RTO), and what it makes of DSACKs is not told here.
        // A mark asks for a reduction of its own, which is not taken back.
        let told = all_named && episode.alone && episode.prr && now.delivered_ce == 0;
        if told && around.one_copy && now.snd_mss == episode.mss {
            self.episode = None;
            // What was put back may have become less since: slow start has ended.
            if now.snd_ssthresh < episode.ssthresh && now.snd_cwnd < episode.recover_fs {
                let what = format!("{episode:?}, {now:?}");
                return Err(("a reduction that was not needed is taken back", what));
            }
        }
        Ok(())
    }
}

/// What waits for a completion or an ACK has something below or in flight that will bring it. Looks
/// come when all is done that could be done, so that none has just come.
fn check_hold(now: &Info) -> Result<(), Wrong> {
    let comes = match now.hold {
        Some(Hold::Autocork | Hold::SmallQueue) => !now.completions || now.below > 0,
        Some(Hold::Cwnd | Hold::Nagle) => now.unacked > 0,
        _ => true,
    };
    if !comes {
        return Err(("every hold has what restarts it", format!("{now:?}")));
    }
    Ok(())
}

/// A timeout that follows another doubles it (RFC 6298, section 5.5).
fn check_backoff(last: &Info, now: &Info, around: PathConditions) -> Result<(), Wrong> {
    let again = around.backs_off
        && now.retransmits > last.retransmits
        && now.segs_in == last.segs_in
        && last.unacked > 0
        && last.ca_state == LOSS
        && now.ca_state == LOSS;
    if again && now.rto < MAX_RTO && now.rto < last.rto * 15 / 8 {
        return wrong("each timeout is twice as long as the one before", last, now);
    }
    Ok(())
}

fn wrong(rule: &'static str, last: &Info, now: &Info) -> Result<(), Wrong> {
    Err((rule, format!("before {last:?}, now {now:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one look shows: as another, with some figures changed.
    macro_rules! info {
        ($base:expr, $($field:ident: $value:expr),+ $(,)?) => {{
            let mut info: Info = $base;
            $(info.$field = $value;)+
            info
        }};
    }

    /// No reduction was ever made.
    const UNLIMITED: u32 = 0x7fff_ffff;

    fn open() -> Info {
        info!(
            Info::default(), congestion: CongestionAlgorithm::Cubic, sack: true,
            rto: Duration::from_millis(250), snd_mss: 1000, snd_cwnd: 20,
            snd_ssthresh: UNLIMITED, unacked: 20, segs_in: 100, data_segs_out: 120,
            delivered: 100, bytes_acked: 100_000, bytes_sent: 120_000,
        )
    }

    fn check(looks: &[Info]) -> Option<&'static str> {
        let mut sender = Sender::default();
        looks
            .iter()
            .find_map(|info| sender.check(info, PathConditions::PLAIN).err().map(|(rule, _)| rule))
    }

    #[test]
    fn entering_recovery_reduces() {
        let entered = info!(open(), ca_state: RECOVERY, snd_ssthresh: 14);
        assert_eq!(check(&[open(), entered.clone()]), None);
        let kept = info!(entered.clone(), snd_ssthresh: UNLIMITED);
        assert_eq!(check(&[open(), kept.clone()]), Some("a loss reduces the window"));
    }

    /// Without SACK, two ACKs between two looks: a duplicate, and the one that shows it to have
    /// been overtaken. As of seeds 73550 and 90662.
    #[test]
    fn a_recovery_that_is_undone_may_still_be_shown() {
        let before = info!(open(), sack: false, timestamps: true, unacked: 2, bytes_acked: 118_000);
        let undone = info!(
            before.clone(), ca_state: RECOVERY, segs_in: 102, unacked: 0, snd_cwnd: 2,
            bytes_acked: 120_000, bytes_sent: 121_000, bytes_retrans: 1000, total_retrans: 1,
            delivered: 102,
        );
        assert_eq!(check(&[before.clone(), undone.clone()]), None);
        let rule = Some("a loss reduces the window");
        let wrong = [
            // What was outstanding is not acknowledged, so nothing can have been undone at its end.
            info!(undone.clone(), bytes_acked: 119_000, unacked: 1),
            info!(undone.clone(), lost: 1),
            // Nothing was sent again, or nothing tells the copies apart.
            info!(undone.clone(), total_retrans: 0),
            info!(undone.clone(), timestamps: false),
            // With SACK the state ends with the ACK of RecoveryPoint.
            info!(undone.clone(), sack: true),
        ];
        for now in wrong {
            assert_eq!(check(&[before.clone(), now]), rule);
        }
        // An undo puts back what was, and no more.
        let low = info!(before, snd_ssthresh: 15);
        assert_eq!(check(&[low.clone(), info!(undone.clone(), snd_ssthresh: 15)]), None);
        assert_eq!(check(&[low, undone]), rule);
    }

    /// The ACK names the last copy of a timeout that was not needed: cwnd is 20 again, and then
    /// another segment is lost. As of seed 41047.
    #[test]
    fn a_dsack_may_undo_one_reduction_before_the_next() {
        let lost = info!(
            open(), ca_state: LOSS, retransmits: 1, backoff: 1, snd_cwnd: 1, snd_ssthresh: 10,
            lost: 20, retrans: 1, total_retrans: 1, data_segs_out: 121, bytes_sent: 121_000,
            bytes_retrans: 1000,
        );
        let over = info!(
            lost.clone(), ca_state: OPEN, retransmits: 0, backoff: 0, snd_cwnd: 3, unacked: 2,
            lost: 0, retrans: 0, segs_in: 101, delivered: 120, bytes_acked: 120_000,
            bytes_sent: 123_000,
        );
        let again = info!(
            over.clone(), ca_state: RECOVERY, segs_in: 102, delivered: 121, dsack_dups: 1,
            snd_cwnd: 2, lost: 1, total_retrans: 2, retrans: 1,
        );
        let looks = |now: Info| check(&[open(), lost.clone(), over.clone(), now]);
        assert_eq!(looks(again.clone()), None);
        let rule = Some("a loss reduces the window");
        assert_eq!(looks(info!(again.clone(), dsack_dups: 0)), rule, "nothing is undone");
        assert_eq!(looks(info!(again, snd_ssthresh: 22)), rule, "more than was put back");
    }

    #[test]
    fn proportion() {
        let entered =
            info!(open(), ca_state: RECOVERY, snd_ssthresh: 10, snd_cwnd: 19, sacked: 1, lost: 1);
        let looks = |each: u64| {
            let entered = &entered;
            let later = (1..18).map(move |step| {
                info!(
                    entered.clone(), delivered: 100 + step as u32, sacked: 1,
                    data_segs_out: 120 + each * step / 2,
                )
            });
            [open(), entered.clone()].into_iter().chain(later).collect::<Vec<_>>()
        };
        assert_eq!(check(&looks(1)), None);
        assert_eq!(check(&looks(2)), Some("a reduction is in proportion to what is delivered"));
        // Of twelve that its first ACK delivered, six may leave after the look. As of seed 10154.
        let begun = info!(entered.clone(), delivered: 112);
        let left = |count: u64| info!(begun.clone(), data_segs_out: 120 + count);
        assert_eq!(check(&[open(), begun.clone(), left(10)]), None);
        let more = check(&[open(), begun.clone(), left(11)]);
        assert_eq!(more, Some("a reduction is in proportion to what is delivered"));
        // One that comes later, from Open, is held to its proportion as well.
        let second = looks(2)
            .into_iter()
            .map(|look| info!(look, bytes_acked: 121_000, bytes_sent: 141_000, total_retrans: 1));
        assert_eq!(
            check(&looks(1).into_iter().take(2).chain(second).collect::<Vec<_>>()),
            Some("a reduction is in proportion to what is delivered")
        );
        // As if the one before had ended with this ACK, or had not: as of seed 7428.
        let mut again = looks(2);
        for look in &mut again[2..] {
            look.bytes_acked = 121_000;
        }
        assert_eq!(check(&again), None);
    }

    #[test]
    fn timeouts() {
        // An ACK that leaves all in order, and then nothing but the timeout.
        let acked = info!(open(), segs_in: 101, bytes_acked: 101_000, delivered: 101);
        let lost = info!(
            acked.clone(), ca_state: LOSS, retransmits: 1, backoff: 1, total_retrans: 1,
            snd_cwnd: 1, lost: 20, retrans: 1, rto: Duration::from_millis(500),
            data_segs_out: 121,
        );
        assert_eq!(
            check(&[open(), acked.clone(), lost.clone()]),
            Some("a probe goes before a timeout")
        );
        // Of new data: the next ACK leaves it in flight, and the timeout finds it there. As of a
        // kernel: seed 7741.
        let full = info!(open(), notsent_bytes: 5000);
        let probed =
            info!(full.clone(), bytes_sent: 121_000, notsent_bytes: 4000, data_segs_out: 121);
        let again = info!(
            probed.clone(), segs_in: 101, bytes_acked: 101_000, delivered: 101, notsent_bytes: 2000,
            bytes_sent: 123_000, data_segs_out: 123,
        );
        let late = info!(
            again.clone(), ca_state: LOSS, retransmits: 1, backoff: 1, total_retrans: 1,
            snd_cwnd: 1, lost: 20, retrans: 1, rto: Duration::from_millis(500),
            data_segs_out: 124, bytes_sent: 124_000, bytes_retrans: 1000,
        );
        assert_eq!(check(&[full.clone(), probed, again.clone(), late.clone()]), None);
        assert_eq!(check(&[full, again, late]), Some("a probe goes before a timeout"));
        let probed = info!(acked.clone(), total_retrans: 1, data_segs_out: 121);
        let lost = info!(lost.clone(), total_retrans: 2, data_segs_out: 122);
        assert_eq!(check(&[open(), acked.clone(), probed.clone(), lost.clone()]), None);
        let again = info!(lost.clone(), retransmits: 2, rto: Duration::from_secs(1));
        assert_eq!(
            check(&[open(), acked.clone(), probed.clone(), lost.clone(), again.clone()]),
            None
        );
        let same = info!(again.clone(), rto: lost.rto);
        let doubled = "each timeout is twice as long as the one before";
        assert_eq!(
            check(&[open(), acked.clone(), probed.clone(), lost.clone(), same.clone()]),
            Some(doubled)
        );
        let wide = info!(lost.clone(), snd_cwnd: 20);
        assert_eq!(
            check(&[open(), acked.clone(), probed.clone(), wide.clone()]),
            Some("a timeout leaves one segment to send")
        );
    }

    #[test]
    fn holds_have_what_restarts_them() {
        let rule = Some("every hold has what restarts it");
        let corked = info!(open(), hold: Some(Hold::Autocork), completions: true, below: 100);
        assert_eq!(check(core::slice::from_ref(&corked)), None);
        assert_eq!(check(&[info!(corked.clone(), below: 0)]), rule);
        // Nobody tells of completions, and so nothing waits for one.
        assert_eq!(check(&[info!(corked.clone(), below: 0, completions: false)]), None);
        let full = info!(open(), hold: Some(Hold::Cwnd));
        assert_eq!(check(core::slice::from_ref(&full)), None);
        assert_eq!(check(&[info!(full.clone(), unacked: 0)]), rule);
    }

    #[test]
    fn what_was_not_needed_is_undone() {
        let entered =
            info!(open(), ca_state: RECOVERY, snd_ssthresh: 14, total_retrans: 1, retrans: 1);
        let named = info!(entered.clone(), ca_state: OPEN, retrans: 0, snd_cwnd: 14, dsack_dups: 1);
        let undone = info!(named.clone(), snd_cwnd: 20, snd_ssthresh: UNLIMITED);
        assert_eq!(check(&[open(), entered.clone(), undone.clone()]), None);
        let rule = "a reduction that was not needed is taken back";
        assert_eq!(check(&[open(), entered.clone(), named.clone()]), Some(rule));
        let needed = info!(named.clone(), dsack_dups: 0);
        assert_eq!(check(&[open(), entered.clone(), needed.clone()]), None);
    }

    /// As of a kernel: seed 27040 of the small scenarios.
    #[test]
    fn a_recovery_may_end_and_the_next_begin_with_one_ack() {
        let sent = open();
        let entered =
            info!(sent.clone(), ca_state: RECOVERY, snd_ssthresh: 14, total_retrans: 1, retrans: 1);
        // All that was in flight is acknowledged, but what was sent again since then is not named.
        // So the first reduction stays, and the second one begins.
        let again = info!(
            entered.clone(), bytes_acked: 120_000, bytes_sent: 130_000, total_retrans: 2,
            snd_cwnd: 14, snd_ssthresh: 7,
        );
        // Both are named now: the second one is undone.
        let undone = info!(
            again.clone(), ca_state: OPEN, bytes_acked: 130_000, retrans: 0, dsack_dups: 2,
            snd_ssthresh: 14,
        );
        let looks = [sent.clone(), entered.clone(), again.clone(), undone.clone()];
        assert_eq!(check(&looks), None);
        // Of one recovery it would be wrong.
        let first = info!(again.clone(), bytes_acked: 119_000, snd_ssthresh: 14);
        let rule = Some("a reduction that was not needed is taken back");
        assert_eq!(check(&[sent, entered, first, undone]), rule);
    }
}
