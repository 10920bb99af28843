//! Tables in the pages of the repository.
//!
//! A page shows a table, or a part of one, between `<!-- figures: NAME -->` and
//! `<!-- end of figures -->`. A test compares all pages with the tables.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Table, Tables, chart};

const BEGIN: &str = "<!-- figures: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end of figures -->";

/// The chart of the stacks.
const CHART: &str = "docs/peers.svg";

/// Parts of the table of the stacks: the name, and the works. A line of CPU follows its work.
const PARTS: [(&str, &[&str]); 3] = [
    ("performance.throughput", &["kernel to stack, bulk", "stack to kernel, bulk"]),
    (
        "performance.rates",
        &[
            "1 byte, 1 flow",
            "1 byte, 20 flows",
            "connections, one at a time",
            "connections, 20 at a time",
        ],
    ),
    ("performance.memory", &[MEMORY]),
];

/// The works that README shows.
const README: [&str; 4] =
    ["kernel to stack, bulk", "stack to kernel, bulk", "1 byte, 1 flow", MEMORY];
const MEMORY: &str = "memory of an idle connection";

/// The works of the gateways that README shows, at the MTU of Ethernet.
const README_GATEWAYS: [&str; 3] = ["out, 1 flow", "in, 1 flow", "1 byte, 1 client"];

/// Writes the tables into all pages, and the chart.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, _, made) in made(root)? {
        fs::write(&path, made).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("the tables of README.md and docs/ are those of {}", super::TABLES);
    Ok(())
}

/// Each page with its text as it is and as it must be.
fn made(root: &Path) -> Result<Vec<(PathBuf, String, String)>> {
    let tables = super::published(root)?;
    let mut pages = Vec::new();
    for folder in [".", "docs", "docs/results"] {
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("reading {folder}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path)?;
                let made = fill(&text, &tables).with_context(|| path.display().to_string())?;
                pages.push((path, text, made));
            }
        }
    }
    let path = root.join(CHART);
    let text = fs::read_to_string(&path).unwrap_or_default();
    pages.push((path, text, chart::svg(tables.get("peers").context("the table of the stacks")?)));
    Ok(pages)
}

/// A page with its tables made anew.
fn fill(page: &str, tables: &Tables) -> Result<String> {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(CLOSE).context("a mark is not closed")?;
        let (_, after) =
            after.split_once(END).with_context(|| format!("{name} does not end with `{END}`"))?;
        let made = part(name, tables).with_context(|| format!("there is no table {name}"))?;
        let _ = write!(out, "{before}{BEGIN}{name}{CLOSE}\n\n{}\n{END}", shown(&made));
        rest = after;
    }
    Ok(out + rest)
}

/// A table, or a part of one, by its name.
fn part(name: &str, tables: &Tables) -> Option<Table> {
    let peers = tables.get("peers");
    if name == "readme.peers" {
        return Some(ratios(&of_works(peers?, &README)));
    }
    if name == "readme.gateways" {
        return Some(gateways(tables.get("gateways")?));
    }
    if name == "performance.latency" {
        return Some(latency(tables.get("latency")?));
    }
    match PARTS.iter().find(|(part, _)| *part == name) {
        Some((_, works)) => Some(of_works(peers?, works)),
        None => tables.get(name).cloned(),
    }
}

/// The lines of some works, each with its CPU time. The whole table has the conditions.
fn of_works(table: &Table, works: &[&str]) -> Table {
    let mut wanted = false;
    let mut rows = table.rows.clone();
    rows.retain(|row| {
        if !row[0].starts_with("CPU") {
            wanted = works.contains(&row[0].as_str());
        }
        wanted
    });
    rows.iter_mut().for_each(|row| per_gigabit(row));
    Table { rows, conditions: String::new(), ..table.clone() }
}

/// A gigabit is an eighth of 10^9 bytes: 1 ns per byte is 125 ms per gigabit.
fn per_gigabit(row: &mut [String]) {
    let Some((name, cells)) = row.split_first_mut().filter(|(name, _)| *name == "CPU for a byte")
    else {
        return;
    };
    *name = "CPU per gigabit".into();
    for cell in cells {
        if let Some(nanos) = cell.strip_suffix(" ns").and_then(|nanos| nanos.parse::<f64>().ok()) {
            *cell = format!("{:.0} ms", nanos * 125.0);
        }
    }
}

/// The ratios to the kernel alone, and memory as it is.
fn ratios(table: &Table) -> Table {
    let short = |title: &String| title.split(',').next().unwrap_or_default().to_owned();
    let mut made = Table { header: table.header.iter().map(short).collect(), ..table.clone() };
    made.rows.retain(|row| !row[0].starts_with("CPU"));
    for row in &mut made.rows {
        let rate = chart::is_rate(row);
        for (column, cell) in row.iter_mut().enumerate().skip(1) {
            *cell = match chart::ratio(cell) {
                Some((median, ..)) if rate => format!("{median:.2}"),
                Some(_) => cell.split(" = ").next().unwrap_or_default().to_owned(),
                None if column == 1 && rate => format!("1 ({cell})"),
                None => cell.clone(),
            };
        }
    }
    made
}

/// Some works at MTU 1500, without the columns for the MTU, the rules and the verdict.
fn gateways(table: &Table) -> Table {
    const LEFT_OUT: [&str; 3] = ["MTU", "with 100 rules", "verdict"];
    let mut made = table.clone();
    made.conditions =
        "MTU 1500. × is Plimsoll's figure divided by the other gateway's, the median \
                       of the rounds (least to most)."
            .into();
    made.rows.retain(|row| README_GATEWAYS.contains(&row[0].as_str()) && row[1] == "1500");
    let is_shown: Vec<bool> =
        made.header.iter().map(|title| !LEFT_OUT.contains(&title.as_str())).collect();
    for row in made.rows.iter_mut().chain([&mut made.header]) {
        let mut shown = is_shown.iter().copied();
        row.retain(|_| shown.next().unwrap_or(true));
    }
    made
}

/// Answers of one byte, by our first queueing discipline and by the kernel.
fn latency(table: &Table) -> Table {
    const COLUMNS: [&str; 6] = ["meanwhile", "server", "p50", "p99", "p99.9", "bulk"];
    let at = |title: &str| table.header.iter().position(|header| header == title);
    let places: Vec<usize> = COLUMNS.iter().filter_map(|title| at(title)).collect();
    let mut made = Table { header: COLUMNS.map(str::to_owned).to_vec(), ..table.clone() };
    made.rows.retain(|row| row[1] == "1 byte" && row[2] != "ours, fq");
    for row in &mut made.rows {
        *row = places.iter().map(|&place| row[place].replace("ours, pfifo", "Plimsoll")).collect();
    }
    made
}

/// A table as Markdown, below what is to be known of it.
fn shown(table: &Table) -> String {
    let Table { command, date, machine, conditions, header, rows } = table;
    let verdicts = verdicts(table);
    let start = format!("`{command}` on {machine}, {date}. {conditions}{verdicts}");
    let mut out = start.trim_end().to_owned() + "\n\n";
    let line = |cells: &[String]| {
        let cell = |cell: &String| if cell.is_empty() { " |".into() } else { format!(" {cell} |") };
        format!("|{}\n", cells.iter().map(cell).collect::<String>())
    };
    out += &line(header);
    out += &format!("|{}\n", "---|".repeat(header.len()));
    rows.iter().for_each(|row| out += &line(row));
    out
}

/// How often which verdict was given, if there is such a column.
fn verdicts(table: &Table) -> String {
    let Some(place) = table.header.iter().position(|title| title == "verdict") else {
        return String::new();
    };
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in &table.rows {
        let verdict = row[place].split(':').next().unwrap_or_default();
        match counts.iter_mut().find(|(known, _)| *known == verdict) {
            Some((_, count)) => *count += 1,
            None => counts.push((verdict, 1)),
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
    format!(" Verdicts: {}.", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn pages_show_the_published_tables() {
        for (path, text, made) in made(&root()).unwrap() {
            assert!(text == made, "{} differs: run `cargo xtask docs`", path.display());
        }
    }

    /// A table that no page shows would be measured for nothing.
    #[test]
    fn every_published_table_is_shown() {
        let pages = made(&root()).unwrap();
        for name in crate::figures::published(&root()).unwrap().keys() {
            let mark = format!("{BEGIN}{name}{CLOSE}");
            assert!(pages.iter().any(|(_, text, _)| text.contains(&mark)), "{name}");
        }
    }

    fn table(header: &[&str], rows: &[&[&str]]) -> Table {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Table {
            command: "c".into(),
            date: "d".into(),
            machine: "m".into(),
            conditions: "Once.".into(),
            header: words(header),
            rows: rows.iter().map(|row| words(row)).collect(),
        }
    }

    #[test]
    fn the_text_between_the_marks_is_replaced() {
        let all = Tables::from([("x".into(), table(&["a", "verdict"], &[&["", "met: 2"]]))]);
        let page = "a\n<!-- figures: x -->\nold\n<!-- end of figures -->\nb\n";
        let made = fill(page, &all).unwrap();
        let want = "a\n<!-- figures: x -->\n\n`c` on m, d. Once. Verdicts: met 1.\n\n| a | verdict |\n\
                    |---|---|\n| | met: 2 |\n\n<!-- end of figures -->\nb\n";
        assert_eq!(made, want);
        assert_eq!(fill(&made, &all).unwrap(), made, "doing it again changes nothing");
        for wrong in ["<!-- figures: y -->\n<!-- end of figures -->", "<!-- figures: x -->\n"] {
            assert!(fill(wrong, &all).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_of_the_table_of_the_stacks() {
        let peers = table(
            &["work", "kernel, veth", "Plimsoll, TUN"],
            &[
                &["kernel to stack, bulk", "2.00 Gbit/s", "1.00 Gbit/s = 0.50 (0.40..0.60)"],
                &["CPU for a byte", "0.20 ns", "failed"],
                &["4 KB, 1 flow", "7 /s", "7 /s = 1.00"],
                &["CPU for each", "9 us", "9 us"],
                &[MEMORY, "8750 B", "2340 B = 0.27"],
            ],
        );
        let all = Tables::from([("peers".into(), peers)]);
        let readme = part("readme.peers", &all).unwrap();
        assert_eq!(readme.header, ["work", "kernel", "Plimsoll"]);
        assert_eq!(readme.rows[0], ["kernel to stack, bulk", "1 (2.00 Gbit/s)", "0.50"]);
        assert_eq!(readme.rows[1], [MEMORY, "8750 B", "2340 B"]);
        let throughput = part("performance.throughput", &all).unwrap();
        assert_eq!(throughput.rows.len(), 2);
        assert_eq!(throughput.rows[1], ["CPU per gigabit", "25 ms", "failed"]);
        assert_eq!(part("performance.latency", &all), None);
    }

    #[test]
    fn gateways_show_three_works_without_their_verdicts() {
        let row = |work, mtu| [work, mtu, "2 /s", "1 /s; ×2.00 (1.00..3.00)", "met"];
        let rows = [
            row("out, 1 flow", "1500"),
            row("out, 8 flows", "1500"),
            row("out, 1 flow", "65520"),
            row("1 byte, 1 client", "1500"),
        ];
        let header = ["work", "MTU", "Plimsoll", "pasta", "verdict"];
        let all = table(&header, &rows.each_ref().map(|row| &row[..]));
        let made = part("readme.gateways", &Tables::from([("gateways".into(), all)])).unwrap();
        assert_eq!(made.header, ["work", "Plimsoll", "pasta"]);
        let names: Vec<&str> = made.rows.iter().map(|row| &*row[0]).collect();
        assert_eq!(names, ["out, 1 flow", "1 byte, 1 client"]);
        assert_eq!(made.rows[0][1..], ["2 /s", "1 /s; ×2.00 (1.00..3.00)"]);
        assert!(!verdicts(&made).contains("met"));
    }

    #[test]
    fn latency_shows_one_byte_and_one_discipline() {
        let header = ["meanwhile", "size", "server", "p50", "p90", "p99", "p99.9", "bulk"];
        let row = |size, server| ["alone", size, server, "1 us", "2 us", "3 us", "4 us", "-"];
        let rows = [row("1 byte", "ours, pfifo"), row("1 byte", "ours, fq"), row("4 KB", "kernel")];
        let made = latency(&table(&header, &rows.each_ref().map(|row| &row[..])));
        assert_eq!(made.rows, [["alone", "Plimsoll", "1 us", "3 us", "4 us", "-"]]);
    }
}
