//! Pages that the program writes, opened in a real browser.
//!
//! A page stands in a frame of the width of a phone or of a screen, since a headless browser has a
//! least width of its own. Everything that can be folded is open. The browser has no network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::files::Scratch;
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::plimsoll_program;

const PROGRAM: &str = "chromium";
const WIDTHS: [u32; 3] = [400, 1000, 1400];
const LATER: Duration = Duration::from_secs(100);

pub(crate) const CASES: &[Case] = &[
    Case::heavy("browser::faults_are_seen", faults).needing(PROGRAM),
    Case::heavy("browser::report_of_the_lab", report).needing(PROGRAM),
];

/// What the browser says of a page at one width.
struct Seen {
    /// Width of what is in the page.
    content: u64,
    /// Width that it has.
    room: u64,
    /// The text of its first heading.
    heading: String,
    /// Pictures, and how many of them take no room though they are not hidden.
    pictures: u64,
    empty: u64,
    /// Lines of the console.
    console: Vec<String>,
}

/// Opens a page in a frame of this width.
fn open(scratch: &Scratch, page: &Path, width: u32) -> Result<Seen> {
    let frame = format!(
        r#"<!doctype html><meta charset="utf-8"><title>frame</title>
<iframe id="f" style="border:0;width:{width}px;height:900px" src="file://{}"></iframe>
<pre id="seen"></pre>
<script>
document.getElementById("f").onload = event => {{
  const page = event.target.contentDocument;
  for (const part of page.querySelectorAll("details")) part.open = true;
  const all = [...page.querySelectorAll("svg")];
  const shown = all.filter(svg => svg.parentElement.offsetParent !== null);
  const empty = shown.filter(svg => !(svg.getBoundingClientRect().height > 20));
  document.getElementById("seen").textContent = JSON.stringify({{
    content: page.scrollingElement.scrollWidth,
    room: event.target.contentWindow.innerWidth,
    heading: (page.querySelector("h1") || {{innerText: ""}}).innerText,
    pictures: shown.length, empty: empty.length}});
}};
</script>"#,
        page.display()
    );
    let wrapper = scratch.file(&format!("frame-{width}.html"));
    std::fs::write(&wrapper, frame).context("writing the frame of a page")?;
    let apart = Namespace::new()?;
    let mut command = apart.command(PROGRAM);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--allow-file-access-from-files", "--enable-logging=stderr", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", scratch.file("profile").display()));
    command.arg("--window-size=1500,1000");
    command.arg(format!("file://{}", wrapper.display())).env("HOME", scratch.path());
    let ended = Process::spawn(PROGRAM, &mut command)?.success(LATER)?;
    let seen = ended
        .stdout
        .split_once("<pre id=\"seen\">")
        .and_then(|(_, rest)| rest.split_once("</pre>").map(|(seen, _)| seen.to_owned()));
    let seen = seen.with_context(|| format!("the browser shows no page:\n{}", ended.said))?;
    let seen: Value = serde_json::from_str(&seen).with_context(|| format!("it says {seen:?}"))?;
    let number = |name: &str| seen[name].as_u64().with_context(|| format!("{name} in {seen}"));
    Ok(Seen {
        content: number("content")?,
        room: number("room")?,
        heading: seen["heading"].as_str().unwrap_or_default().to_owned(),
        pictures: number("pictures")?,
        empty: number("empty")?,
        console: ended.said.lines().filter(|line| is_of_a_page(line)).map(str::to_owned).collect(),
    })
}

/// Whether the browser tells what a page said on the console. Its own pages speak there as well,
/// as when it takes the network for slow.
fn is_of_a_page(line: &str) -> bool {
    line.contains("CONSOLE") && !line.contains("source: chrome://")
}

/// At every width: it renders, without a word on the console, and nothing is too wide.
fn expect_fine(scratch: &Scratch, page: &Path, heading: &str, pictures: u64) -> Result<()> {
    for width in WIDTHS {
        let seen = open(scratch, page, width)?;
        let name = page.display();
        ensure!(seen.heading.contains(heading), "{name} begins with {:?}", seen.heading);
        ensure!(seen.console.is_empty(), "{name} on the console: {:?}", seen.console);
        ensure!(
            seen.room <= width.into() && seen.content <= seen.room,
            "{name} at {width}: {} wide in {}",
            seen.content,
            seen.room
        );
        ensure!(seen.pictures >= pictures, "{name} at {width}: {} pictures", seen.pictures);
        ensure!(seen.empty == 0, "{name} at {width}: {} pictures take no room", seen.empty);
    }
    Ok(())
}

/// What the other test looks for would be found.
fn faults() -> Result<()> {
    let scratch = Scratch::new()?;
    let page = scratch.file("bad.html");
    let bad = "<!doctype html><h1>Bad</h1><div style='width:450px'>wide</div>\
        <p><svg style='height:0'></svg></p><script>nothing.at.all()</script>";
    std::fs::write(&page, bad).context("writing a page")?;
    let seen = open(&scratch, &page, 400)?;
    ensure!(seen.heading == "Bad", "it begins with {:?}", seen.heading);
    ensure!(seen.content > seen.room, "{} wide in {}", seen.content, seen.room);
    ensure!(seen.console.iter().any(|line| line.contains("nothing")), "{:?}", seen.console);
    ensure!((seen.pictures, seen.empty) == (1, 1), "the picture has room");
    Ok(())
}

/// The report of very short runs of two experiments, and the page of `explain` about a capture.
fn report() -> Result<()> {
    let scratch = Scratch::new()?;
    let (page, picture) = (scratch.file("lab.html"), scratch.file("lab.svg"));
    let captures = scratch.file("captures");
    let mut command = Command::new(plimsoll_program()?);
    command.args(["lab", "tso-split", "tso-trim"]);
    command.args(["--full", "--pairs", "1", "-l", "0.05", "-P", "2"]);
    command.arg("--html").arg(&page).arg("--svg").arg(&picture);
    command.arg("--pcap-dir").arg(&captures);
    Process::spawn("lab", &mut command)?.success(LATER)?;
    // The chart of both, and before and after for each.
    expect_fine(&scratch, &page, "Plimsoll lab", 5)?;
    let frame = format!("<!doctype html><h1>Picture</h1>{}", body_of(&picture)?);
    let framed = scratch.file("picture.html");
    std::fs::write(&framed, frame).context("writing a page")?;
    ensure!(open(&scratch, &framed, 1400)?.empty == 0, "the picture takes no room");
    let capture = first_capture(&captures)?;
    let page = scratch.file("explain.html");
    let mut command = Command::new(plimsoll_program()?);
    command.arg("explain").arg(&capture).arg("--html").arg(&page);
    Process::spawn("explain", &mut command)?.success(LATER)?;
    expect_fine(&scratch, &page, "What held", 0)
}

/// A picture as part of a page.
fn body_of(picture: &Path) -> Result<String> {
    let text = std::fs::read_to_string(picture).context("reading the picture")?;
    let (_, body) = text.split_once("?>").context("the picture is XML")?;
    Ok(body.to_owned())
}

fn first_capture(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).context("the lab left no captures")?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    names.into_iter().next().context("the lab left no capture")
}
