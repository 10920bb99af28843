//! The picture: two lifelines and an arrow for each packet.
//!
//! # Theory of operation
//!
//! It is made for a width of 360 pixels, so that it can be read on a phone as it is. The packets
//! stand one below the other in the order of the capture; between those that lie apart in time
//! there is room in proportion, up to a bound, beyond which the lifelines are broken. Packets of
//! one kind that left together for the same reason are a *run*: their arrows stand close and have
//! one label.
//!
//! Arrows are as thick as the packets are long. A super-segment is divided where its segments are,
//! and what is no full segment has a colour of its own. A bar beside a lifeline is the time for
//! which a packet was held.

use maud::{Markup, html};

use super::stretch::{Packet, Stretch};
use super::why::{bytes, held, note, time, wrapped};
use plimsoll_explain::TcpFlags;

/// Width of the picture.
const WIDTH: f64 = 360.0;
/// Where the client's lifeline is; times stand left of it.
const LEFT: f64 = 62.0;
/// Where the server's is.
const RIGHT: f64 = 350.0;
/// How far an arrow falls on its way.
const FALL: f64 = 8.0;
/// Between lines of text.
const LINE: f64 = 15.0;
/// Between the arrows of a run.
const CLOSE: f64 = 7.0;
/// The most room for time that passes.
const MOST_GAP: f64 = 44.0;
/// Room for the time that passes most commonly.
const USUAL_GAP: f64 = 14.0;
/// Characters in a line of a note.
const NOTE_WIDTH: usize = 42;
/// Arrows of one run that are drawn.
const MOST_OF_RUN: usize = 48;
/// Segments of a packet that are still told apart.
const MOST_DIVIDED: u32 = 16;
/// Characters in a line of a remark, which is bold.
const REMARK_WIDTH: usize = 36;
/// Fewer packets are no run: each has its own label.
const LEAST_RUN: usize = 4;
/// Packets that lie at most this far apart in time left together: nanoseconds.
const TOGETHER: u64 = 2_000;

/// The rule for a packet, which is not seen in the capture; `None` for nothing.
pub(crate) type Remark = fn(&Packet) -> Option<&'static str>;

/// How a stretch is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// What the two ends are called, the client first.
    pub(crate) ends: [&'static str; 2],
    /// What is said beside what the capture says.
    pub(crate) remark: Option<Remark>,
}

/// Packets of one kind that left together.
struct Run<'a> {
    packets: &'a [Packet],
}

fn runs(packets: &[Packet]) -> Vec<Run<'_>> {
    let together = |a: &Packet, b: &Packet| {
        a.sent == b.sent
            && (a.len > 0) == (b.len > 0)
            && a.why == b.why
            && b.time.saturating_sub(a.time) <= TOGETHER
    };
    let split = |run| if <[Packet]>::len(run) < LEAST_RUN { 1 } else { run.len() };
    let runs = packets.chunk_by(together).flat_map(|run| run.chunks(split(run)));
    runs.map(|packets| Run { packets }).collect()
}

/// What is known while the picture is made from top to bottom.
struct Pen<'a> {
    stretch: &'a Stretch,
    look: Look,
    y: f64,
    /// Where the times of packets are: nanoseconds and pixels.
    anchors: Vec<(u64, f64)>,
    /// Pixels per nanosecond between packets.
    scale: f64,
    marks: Vec<Markup>,
    /// Holds, drawn below the arrows once all times have their places: since, until, and at which
    /// side.
    holds: Vec<(u64, f64, bool)>,
    /// Where the lifelines are broken.
    breaks: Vec<f64>,
    /// The last time that was written.
    clock: String,
    /// What notes have told.
    told: Vec<String>,
}

/// One sentence about a stretch: how many packets in how much time.
pub(crate) fn title(stretch: &Stretch) -> String {
    let data = stretch.packets.iter().filter(|packet| packet.len > 0).count();
    let acks = stretch.packets.len() - data;
    let total: u64 = stretch.packets.iter().map(|packet| u64::from(packet.len)).sum();
    let took = span(&stretch.packets);
    let acks = match acks {
        0 => "no pure ACK".to_owned(),
        1 => "1 pure ACK".to_owned(),
        many => format!("{many} pure ACKs"),
    };
    let data = if data == 1 { "1 packet".into() } else { format!("{data} packets") };
    format!("{} in {data} of data, {acks}, {}", bytes(total), time(took))
}

fn span(packets: &[Packet]) -> u64 {
    let ends = packets.first().zip(packets.last());
    ends.map_or(0, |(first, last)| last.time.saturating_sub(first.time))
}

/// The picture of a stretch, as an element `svg`.
pub(crate) fn picture(stretch: &Stretch, look: Look, name: &str) -> Markup {
    let mut pen = Pen {
        stretch,
        look,
        y: 26.0,
        anchors: Vec::new(),
        scale: scale(&stretch.packets),
        marks: Vec::new(),
        holds: Vec::new(),
        breaks: Vec::new(),
        clock: String::new(),
        told: Vec::new(),
    };
    let start = stretch.packets.first().map_or(0, |packet| packet.time);
    let mut before = start;
    for run in runs(&stretch.packets) {
        if let Some(first) = run.packets.first() {
            pen.gap(first.time.saturating_sub(before));
            pen.run(&run, start);
            before = run.packets.last().map_or(before, |last| last.time);
        }
    }
    let height = pen.y + 10.0;
    let label = format!("{name}: {}. {}", title(stretch), words(&stretch.packets, look));
    html! {
        svg.seq viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" aria-label=(label) {
            (pen.lifelines(height))
            (pen.hold_bars())
            @for mark in &pen.marks { (mark) }
        }
    }
}

/// The same for those who do not see it.
fn words(packets: &[Packet], look: Look) -> String {
    let one = |packet: &Packet| {
        let from = look.ends[usize::from(!packet.sent)];
        let what = if packet.len > 0 { bytes(packet.len.into()) } else { "ACK".into() };
        format!("{from} {what}")
    };
    let mut said: Vec<String> = packets.iter().take(12).map(one).collect();
    if packets.len() > said.len() {
        said.push("and so on".into());
    }
    said.join(", ")
}

/// Pixels per nanosecond so that the middle one of the times between packets gets its usual room.
fn scale(packets: &[Packet]) -> f64 {
    let apart = |pair: &[Packet]| pair[1].time.saturating_sub(pair[0].time);
    let mut times: Vec<u64> = packets.windows(2).map(apart).filter(|&t| t > TOGETHER).collect();
    times.sort_unstable();
    let middle = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(1);
    USUAL_GAP / middle as f64
}

impl Pen<'_> {
    /// Room for time that passes before the next packet.
    fn gap(&mut self, nanos: u64) {
        let gap = nanos as f64 * self.scale;
        if gap > MOST_GAP {
            self.breaks.push(self.y + MOST_GAP / 2.0);
        }
        self.y += gap.min(MOST_GAP);
    }

    fn run(&mut self, run: &Run<'_>, start: u64) {
        let Some(first) = run.packets.first() else { return };
        let sent = first.sent;
        let alone = run.packets.len() == 1;
        self.y += LINE;
        self.label(&label(run, self.stretch.mss), sent);
        self.y += 4.0;
        for (index, packet) in run.packets.iter().take(MOST_OF_RUN).enumerate() {
            let thick = self.thickness(packet, alone);
            self.y += if alone || index == 0 { thick / 2.0 } else { CLOSE };
            let here = if sent { self.y } else { self.y + FALL };
            self.anchors.push((packet.time, here));
            if index == 0 {
                self.time(first.time.saturating_sub(start), here);
                if let Some(held) = held(&packet.why).filter(|_| sent) {
                    self.holds.push((packet.time.saturating_sub(held.nanos), here, sent));
                }
            }
            self.arrow(packet, thick);
            if alone {
                self.y += thick / 2.0;
            }
        }
        self.y += FALL + 2.0;
        let said = note(&first.why, &mut self.told);
        for line in wrapped(&said, NOTE_WIDTH) {
            self.y += LINE;
            self.text("why", LEFT + 12.0, "start", &line);
        }
        let remark = self.look.remark.and_then(|remark| remark(first));
        if let Some(remark) = remark {
            let y = self.y - 2.0;
            self.marks.push(html! {
                circle.mark cx=(LEFT) cy=(px(y)) r="4.5" {}
            });
            for line in wrapped(remark, REMARK_WIDTH) {
                self.y += LINE;
                self.text("rule", LEFT + 12.0, "start", &line);
            }
        }
        self.y += 6.0;
    }

    fn thickness(&self, packet: &Packet, alone: bool) -> f64 {
        let segments = f64::from(packet.len) / f64::from(self.stretch.mss);
        match (packet.len, alone) {
            (0, _) => 1.5,
            (_, true) if segments > 1.0 => (5.0 + 2.2 * segments.log2()).min(15.0),
            (_, true) => 2.5 + 2.0 * segments,
            (_, false) => {
                if segments > 1.0 {
                    5.0
                } else {
                    1.5 + 2.0 * segments
                }
            }
        }
    }

    fn label(&mut self, label: &str, sent: bool) {
        if sent {
            self.text("lab", LEFT + 12.0, "start", label);
        } else {
            self.text("lab", RIGHT - 12.0, "end", label);
        }
    }

    fn text(&mut self, class: &str, x: f64, anchor: &str, words: &str) {
        self.marks.push(html! {
            text class=(class) x=(px(x)) y=(px(self.y)) text-anchor=(anchor) { (words) }
        });
    }

    /// The time of the client's end of an arrow.
    fn time(&mut self, nanos: u64, y: f64) {
        let words = if nanos == 0 { "0".to_owned() } else { time(nanos) };
        if words == self.clock {
            return;
        }
        self.clock.clone_from(&words);
        self.marks.push(html! {
            text.when x=(px(LEFT - 10.0)) y=(px(y + 4.0)) text-anchor="end" { (words) }
        });
    }

    fn arrow(&mut self, packet: &Packet, thick: f64) {
        let (from, to) = if packet.sent { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
        let forward = (to - from).signum();
        let head = (thick * 0.8).max(4.0) + 5.0;
        let half = thick / 2.0 + 3.0;
        // Along the shaft: 0 at the sender, 1 where the head begins.
        let shaft = to - forward * head - from;
        let fall = FALL * (shaft / (to - from));
        let at = |share: f64| (from + shaft * share, self.y + fall * share);
        let (x1, y1) = at(0.0);
        let (x2, y2) = at(1.0);
        let tip = format!(
            "{},{} {},{} {},{}",
            px(to),
            px(self.y + FALL),
            px(x2),
            px(y2 - half),
            px(x2),
            px(y2 + half)
        );
        let mss = self.stretch.mss;
        let rest = packet.len % mss;
        let class = match packet.len {
            0 => "ack",
            len if len < mss => "tail",
            _ => "data",
        };
        let mut inner = Vec::new();
        let segments = packet.len.div_ceil(mss);
        // The first bytes are in front, so the tail is at the sender's end.
        let back = f64::from(rest) / f64::from(packet.len.max(1));
        if segments > 1 && rest > 0 {
            let (x, y) = at(back);
            inner.push(html! {
                line.tail x1=(px(x1)) y1=(px(y1)) x2=(px(x)) y2=(px(y)) stroke-width=(px(thick)) {}
            });
        }
        if (2..=MOST_DIVIDED).contains(&segments) && thick >= 5.0 {
            for index in 0..segments - 1 {
                let full = f64::from(mss) / f64::from(packet.len);
                let first = if rest > 0 { back } else { full };
                let (x, y) = at(first + f64::from(index) * full);
                inner.push(html! {
                    line.cut x1=(px(x)) y1=(px(y - thick / 2.0)) x2=(px(x)) y2=(px(y + thick / 2.0))
                        {}
                });
            }
        }
        self.marks.push(html! {
            g class=(class) {
                @if !packet.why.is_empty() {
                    title { (label_of(packet, mss)) ": " (packet.why) }
                }
                line.shaft x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2))
                    stroke-width=(px(thick)) {}
                @for mark in &inner { (mark) }
                polygon points=(tip) {}
            }
        });
    }

    fn lifelines(&self, height: f64) -> Markup {
        let [client, server] = self.look.ends;
        html! {
            text.end x=(px(LEFT - 10.0)) y="14" text-anchor="start" { (client) }
            text.end x=(px(RIGHT + 8.0)) y="14" text-anchor="end" { (server) }
            @for x in [LEFT, RIGHT] {
                line.life x1=(px(x)) y1="22" x2=(px(x)) y2=(px(height - 4.0)) {}
                @for &y in &self.breaks {
                    line.gap x1=(px(x)) y1=(px(y - 3.0)) x2=(px(x)) y2=(px(y + 3.0)) {}
                    path.break d=(format!("M{} {} l10 -4 M{} {} l10 -4",
                        px(x - 5.0), px(y - 1.0), px(x - 5.0), px(y + 5.0))) {}
                }
            }
        }
    }

    fn hold_bars(&self) -> Markup {
        html! {
            @for &(since, until, sent) in &self.holds {
                @let from = (self.place(since) + 2.0).min(until - 3.0);
                @let x = if sent { LEFT } else { RIGHT };
                rect.hold x=(px(x - 3.5)) y=(px(from)) width="7" height=(px(until - from))
                    rx="2" {}
            }
        }
    }

    /// Where a time is between those of the packets.
    fn place(&self, nanos: u64) -> f64 {
        let top = 24.0;
        let after = self.anchors.partition_point(|&(time, _)| time <= nanos);
        let Some(&(t1, y1)) = after.checked_sub(1).and_then(|n| self.anchors.get(n)) else {
            return top;
        };
        let Some(&(t2, y2)) = self.anchors.get(after) else { return y1 };
        let share = (nanos - t1) as f64 / (t2 - t1).max(1) as f64;
        y1 + (y2 - y1) * share
    }
}

fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// What stands above the arrows of a run.
fn label(run: &Run<'_>, mss: u32) -> String {
    let [first, rest @ ..] = run.packets else { return String::new() };
    if rest.is_empty() {
        return label_of(first, mss);
    }
    let count = run.packets.len();
    if first.len == 0 {
        return format!("{count} × ACK");
    }
    let total: u64 = run.packets.iter().map(|packet| u64::from(packet.len)).sum();
    let alike: Vec<&[Packet]> = run.packets.chunk_by(|a, b| a.len == b.len).collect();
    if alike.len() > 2 {
        return format!("{count} packets, {}", bytes(total));
    }
    let one = |same: &&[Packet]| {
        let len = bytes(same[0].len.into());
        if same.len() > 1 { format!("{} × {len}", same.len()) } else { len }
    };
    alike.iter().map(one).collect::<Vec<_>>().join(" + ")
}

fn label_of(packet: &Packet, mss: u32) -> String {
    if packet.len == 0 {
        return flags(packet.flags);
    }
    let segments = packet.len.div_ceil(mss);
    let of = match segments {
        1 => String::new(),
        many => format!(" in {many} segments"),
    };
    format!("{}{of} · {}", bytes(packet.len.into()), flags(packet.flags))
}

/// The names of the flags.
fn flags(flags: TcpFlags) -> String {
    let named = [
        (TcpFlags::SYN, "SYN"),
        (TcpFlags::FIN, "FIN"),
        (TcpFlags::RST, "RST"),
        (TcpFlags::PSH, "PSH"),
        (TcpFlags::ACK, "ACK"),
        (TcpFlags::URG, "URG"),
        (TcpFlags::ECE, "ECE"),
        (TcpFlags::CWR, "CWR"),
    ];
    let set = named.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name);
    set.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
