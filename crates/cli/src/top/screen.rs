//! The screen: two lines about the process, a table, and a line about the keys.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row as TableRow, Table};

use super::rows::{Held, Order, Row, Totals};
use super::text::{count, shortened, size, time};

/// Everything on the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen {
    /// The process, as in `plimsoll 1234`.
    pub(super) process: String,
    pub(super) running: std::time::Duration,
    pub(super) flows: usize,
    /// In the order in which they are shown.
    pub(super) rows: Vec<Row>,
    pub(super) totals: Totals,
    pub(super) order: Order,
    /// The first row that is visible.
    pub(super) first: usize,
    pub(super) is_paused: bool,
    /// Why the figures are old.
    pub(super) error: Option<String>,
}

/// A column. Those that are optional are in the order in which they find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Destination,
    State,
    Up,
    Down,
    Rtt,
    Retransmitted,
    Unsent,
    Age,
    InFlight,
    Cwnd,
    Port,
    BytesUp,
    BytesDown,
    Held,
}

/// The columns in the order of the screen, and whether each is always there.
const COLUMNS: [(Column, bool); 14] = [
    (Column::Destination, true),
    (Column::State, true),
    (Column::Up, true),
    (Column::Down, true),
    (Column::Rtt, true),
    (Column::Cwnd, false),
    (Column::InFlight, false),
    (Column::Retransmitted, false),
    (Column::Unsent, false),
    (Column::Age, false),
    (Column::Port, false),
    (Column::BytesUp, false),
    (Column::BytesDown, false),
    (Column::Held, true),
];

/// Characters of the destination at the most.
const WIDEST_DESTINATION: u16 = 60;

impl Column {
    /// The title, and how many characters the column takes at least.
    fn title(self) -> (&'static str, u16) {
        match self {
            Column::Destination => ("DESTINATION", 21),
            Column::State => ("STATE", 10),
            Column::Up => ("UP/s", 5),
            Column::Down => ("DOWN/s", 6),
            Column::Rtt => ("RTT", 6),
            Column::Retransmitted => ("RETR", 4),
            Column::Unsent => ("UNSENT", 6),
            Column::Age => ("AGE", 6),
            Column::InFlight => ("FLIGHT", 6),
            Column::Cwnd => ("CWND", 4),
            Column::Port => ("PORT", 5),
            Column::BytesUp => ("UP", 4),
            Column::BytesDown => ("DOWN", 4),
            Column::Held => ("HELD UP BY", 26),
        }
    }

    fn alignment(self) -> Alignment {
        match self {
            Column::Destination | Column::State | Column::Held => Alignment::Left,
            _ => Alignment::Right,
        }
    }

    /// The text of a row. Unknown figures are `-`.
    fn text(self, row: &Row, width: u16) -> String {
        let text = match self {
            Column::Destination => Some(shortened(&row.far.0, &row.far.1, width.into())),
            Column::State => Some(row.state.clone()),
            Column::Up => row.rates.map(|[up, _]| size(up)),
            Column::Down => row.rates.map(|[_, down]| size(down)),
            Column::Rtt => row.rtt.map(time),
            Column::Retransmitted => Some(count(row.retransmitted.1)),
            Column::Unsent => row.unsent.map(|bytes| size(bytes as f64)),
            Column::Age => row.age.map(time),
            Column::InFlight => row.in_flight.map(count),
            Column::Cwnd => row.cwnd.map(count),
            Column::Port => Some(row.near_port.to_string()),
            Column::BytesUp => row.bytes.map(|[up, _]| size(up as f64)),
            Column::BytesDown => row.bytes.map(|[_, down]| size(down as f64)),
            Column::Held => Some(row.held.text()),
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

/// The columns that a screen of this width has, with their widths.
fn columns(width: u16) -> Vec<(Column, u16)> {
    let needs = |column: Column| column.title().1 + 1;
    let always = COLUMNS.iter().filter(|(_, always)| *always).map(|(column, _)| needs(*column));
    let mut left = (width + 1).saturating_sub(always.sum());
    let mut optional: Vec<Column> =
        COLUMNS.iter().filter(|(_, always)| !always).map(|(column, _)| *column).collect();
    optional.sort_by_key(|column| *column as u8);
    optional.retain(|column| {
        let fits = needs(*column) <= left;
        left -= if fits { needs(*column) } else { 0 };
        fits
    });
    let shown = COLUMNS.iter().filter(|(column, always)| *always || optional.contains(column));
    let widen = |column: Column| match column {
        Column::Destination => left.min(WIDEST_DESTINATION - column.title().1),
        Column::Held => left.saturating_sub(WIDEST_DESTINATION - Column::Destination.title().1),
        _ => 0,
    };
    shown.map(|&(column, _)| (column, column.title().1 + widen(column))).collect()
}

/// The areas: about the process, the table, and about the keys.
fn areas(area: Rect) -> [Rect; 3] {
    Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)]).areas(area)
}

/// Rows of the table that a screen shows.
pub(super) fn visible_rows(area: Rect) -> usize {
    usize::from(areas(area)[1].height.saturating_sub(1))
}

impl Screen {
    /// The last value of `first` that leaves no space below the rows.
    fn last_first(&self, visible: usize) -> usize {
        self.rows.len().saturating_sub(visible)
    }

    /// Scrolls by so many rows, within the table.
    pub(super) fn scroll(&mut self, by: isize, visible: usize) {
        self.first = self.first.saturating_add_signed(by).min(self.last_first(visible));
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] = areas(frame.area());
        let visible = visible_rows(frame.area());
        frame.render_widget(Text::from(self.summary()), top);
        // The number of rows, or the height, may have become smaller.
        let first = self.first.min(self.last_first(visible));
        let rows = &self.rows[first..self.rows.len().min(first + visible)];
        frame.render_widget(table(rows, &columns(middle.width)), middle);
        let place = match rows.len() {
            0 => "no connection".to_owned(),
            shown => format!("{}-{} of {}", first + 1, first + shown, self.rows.len()),
        };
        let keys = format!("q quit  s sort ({})  p pause  arrows scroll", self.order.name());
        let style = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Line::styled(keys, style), bottom);
        frame.render_widget(Line::styled(place, style).right_aligned(), bottom);
    }

    /// The lines about the process.
    fn summary(&self) -> Vec<Line<'static>> {
        let plural = |count: usize, one: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {one}s"),
        };
        let first = format!(
            "{}, running {}: {}, {}",
            self.process,
            time(self.running),
            plural(self.rows.len(), "connection"),
            plural(self.flows, "UDP flow")
        );
        let [up, down] = self.totals.rates.map_or(["-", "-"].map(str::to_owned), |r| r.map(size));
        let news = format!(
            "up {up}B/s, down {down}B/s, {:.0} retransmissions/s",
            self.totals.retransmitted
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let second = match (&self.error, self.is_paused) {
            (Some(error), _) => Line::styled(error.clone(), bold.fg(Color::Red)),
            (None, true) => Line::styled(format!("{news}  PAUSED"), bold.fg(Color::Yellow)),
            (None, false) => Line::from(news),
        };
        vec![Line::styled(first, bold), second]
    }
}

fn table(rows: &[Row], columns: &[(Column, u16)]) -> Table<'static> {
    let cell = |(column, text): (Column, String)| {
        Cell::from(Text::from(text).alignment(column.alignment()))
    };
    let titles = columns.iter().map(|&(column, _)| cell((column, column.title().0.to_owned())));
    let titles = TableRow::new(titles).style(Style::new().add_modifier(Modifier::REVERSED));
    let row = |row: &Row| {
        let cells = columns.iter().map(|&(column, width)| {
            let cell = cell((column, column.text(row, width)));
            let stands_out =
                column == Column::Held && matches!(row.held, Held::By(..) | Held::Gaps);
            if stands_out { cell.style(Style::new().fg(Color::Yellow)) } else { cell }
        });
        TableRow::new(cells.collect::<Vec<_>>())
    };
    let widths = columns.iter().map(|&(_, width)| Constraint::Length(width));
    Table::new(rows.iter().map(row), widths).header(titles).column_spacing(1)
}

#[cfg(test)]
mod tests;
