//! The live view: a table redrawn in place on a terminal, a line a second anywhere else.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveToColumn, MoveUp, Show};
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType, DisableLineWrap, EnableLineWrap, size};

use super::measure::Recent;
use super::services::PaymentsNumbers;
use crate::admin::shapes::Dependency;
use crate::figures::{count, latency};
use crate::paint::{Paint, Tone};
use crate::status::{breaker, in_flight, refused};
use crate::table::{Align, Cell, Table};

/// How often a line is printed where there is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// Everything that is shown at one moment.
#[derive(Clone, Debug)]
pub struct Board {
    /// What is going on.
    pub title: String,
    /// Since the demo began.
    pub elapsed: Duration,
    /// What it takes in all.
    pub total: Duration,
    /// The rails.
    pub rows: Vec<Row>,
    /// The payment service.
    pub payments: PaymentsNumbers,
    /// Its slots.
    pub pool: u64,
    /// What customers did since this part began.
    pub customers: CustomerCounts,
}

/// One rail.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub rail: String,
    /// It is the slow one, and slow now.
    pub slow: bool,
    /// As customers see it.
    pub recent: Recent,
    /// As the sidecar sees it; absent when it did not answer.
    pub sidecar: Option<Dependency>,
}

/// Counted since a part of the demo began.
#[derive(Clone, Copy, Debug, Default)]
pub struct CustomerCounts {
    /// Calls.
    pub calls: u64,
    /// Repeated calls.
    pub retries: u64,
    /// Calls that did not end well.
    pub failed: u64,
}

/// Where the board is shown.
#[derive(Debug)]
pub struct Screen {
    paint: Paint,
    in_place: bool,
    drawn_lines: u16,
    /// Of the lines printed last.
    title: String,
    next: Instant,
}

impl Screen {
    /// In place on a terminal that is large enough, else plain lines.
    pub fn new() -> Screen {
        let stdout = std::io::stdout();
        let tall_enough = || size().is_ok_and(|(_, rows)| rows >= 12);
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Screen {
            paint: Paint::for_stream(&stdout),
            in_place: stdout.is_terminal() && !dumb && tall_enough(),
            drawn_lines: 0,
            title: String::new(),
            next: Instant::now(),
        }
    }

    /// How this screen colours.
    pub fn paint(&self) -> Paint {
        self.paint
    }

    /// Shows the board, if it is time.
    ///
    /// # Errors
    /// When standard output is gone.
    pub fn show(&mut self, board: &Board) -> std::io::Result<()> {
        let now = Instant::now();
        if self.in_place {
            return self.redraw(&table_lines(board, self.paint));
        }
        if self.title != board.title {
            self.title.clone_from(&board.title);
            self.next = now;
            writeln!(std::io::stdout(), "{}", board.title)?;
        }
        if now >= self.next {
            self.next += LINE;
            writeln!(std::io::stdout(), "{}", plain_line(board))?;
        }
        Ok(())
    }

    /// Prints lines that stay, below what was drawn.
    ///
    /// # Errors
    /// When standard output is gone.
    pub fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.leave()?;
        writeln!(std::io::stdout(), "{text}")
    }

    fn redraw(&mut self, lines: &[String]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        // Without wrapping a line that is too long is cut, and the number of lines stays what we think it is.
        queue!(out, Hide, DisableLineWrap, MoveToColumn(0))?;
        if self.drawn_lines > 0 {
            queue!(out, MoveUp(self.drawn_lines))?;
        }
        for line in lines {
            queue!(out, Clear(ClearType::UntilNewLine))?;
            write!(out, "{line}\r\n")?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EnableLineWrap)?;
        self.drawn_lines = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        out.flush()
    }

    /// What was drawn stays, and the terminal is as it was.
    fn leave(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.drawn_lines) > 0 {
            let mut out = std::io::stdout().lock();
            queue!(out, EnableLineWrap, Show)?;
            out.flush()?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = self.leave();
    }
}

fn clock(elapsed: Duration) -> String {
    format!("{}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

/// The board as a table.
fn table_lines(board: &Board, paint: Paint) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}  {}",
            paint.apply(Tone::Strong, &board.title),
            paint.apply(Tone::Dim, &format!("{} of {}", clock(board.elapsed), clock(board.total)))
        ),
        String::new(),
    ];
    let mut table = Table::new(&[
        ("RAIL", Align::Left),
        ("CALLS/S", Align::Right),
        ("PAID/S", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("BREAKER", Align::Left),
    ]);
    for row in &board.rows {
        table.row(cells(row));
    }
    lines.extend(table.lines(paint));
    lines.push(String::new());
    lines.push(refusals_line(board));
    lines.push(service_line(board, paint));
    lines.push(customer_line(board));
    lines
}

/// A line of its own: a column of it would not fit on 80.
fn refusals_line(board: &Board) -> String {
    let of_rail = |row: &Row| {
        let rejections = &row.sidecar.as_ref()?.rejections;
        let any = rejections.values().any(|n| *n > 0);
        any.then(|| format!("{} {}", row.rail, refused(rejections).text()))
    };
    let all: Vec<_> = board.rows.iter().filter_map(of_rail).collect();
    let all = if all.is_empty() { "nothing".to_owned() } else { all.join("; ") };
    format!("refused by the sidecar: {all}")
}

fn cells(row: &Row) -> Vec<Cell> {
    let rail = if row.slow { Cell::new(Tone::Warn, format!("{} (slow)", row.rail)) } else { row.rail.as_str().into() };
    // What a customer would call slow, whatever the reason.
    let tone = if row.recent.p99 >= Duration::from_secs(1) { Tone::Bad } else { Tone::Plain };
    let mut cells = vec![
        rail,
        format!("{:.0}", row.recent.tries_per_second).into(),
        format!("{:.0}", row.recent.paid_per_second).into(),
        time(row.recent.p50).into(),
        Cell::new(tone, time(row.recent.p99)),
    ];
    match &row.sidecar {
        Some(sidecar) => cells.extend([in_flight(sidecar), breaker(&sidecar.circuits)]),
        None => cells.extend([Cell::none(), Cell::none()]),
    }
    cells
}

fn service_line(board: &Board, paint: Paint) -> String {
    let PaymentsNumbers { busy, waiting, .. } = board.payments;
    let pool = board.pool;
    let text = format!("payment service: {} of {} slots in use", count(busy), count(pool));
    if waiting > 0 {
        let waits = format!("{text}, {} waiting for one", crate::figures::plural(waiting, "call"));
        paint.apply(Tone::Bad, &waits)
    } else {
        text
    }
}

fn customer_line(board: &Board) -> String {
    let CustomerCounts { calls, retries, failed } = board.customers;
    format!("customers: {} calls, {} repeated, {} not paid", count(calls), count(retries), count(failed))
}

/// The board in one line of at most 120 columns: of a rail that is well only how fast it is.
fn plain_line(board: &Board) -> String {
    let mut parts: Vec<_> = board.rows.iter().map(plain_row).collect();
    parts.push(format!("slots {}/{} +{}", board.payments.busy, board.pool, board.payments.waiting));
    format!("{}  {}", clock(board.elapsed), parts.join("  "))
}

fn plain_row(row: &Row) -> String {
    let mut text = format!("{} {:.0}/s p99 {}", row.rail, row.recent.tries_per_second, time(row.recent.p99));
    let Some(sidecar) = &row.sidecar else { return text };
    let full = sidecar.bulkheads.iter().any(|bulkhead| bulkhead.in_flight >= bulkhead.limit);
    if let Some(circuit) = sidecar.circuits.iter().find(|circuit| circuit.state != "Closed") {
        text.push_str(&format!(" {}", circuit.state));
    } else if full {
        text.push_str(&format!(" {}", in_flight(sidecar).text()));
    }
    match sidecar.rejections.values().sum() {
        0 => {}
        refused => text.push_str(&format!(" refused {}", count(refused))),
    }
    text
}

/// A latency, unless there was no call to have one.
fn time(duration: Duration) -> String {
    if duration.is_zero() { "-".into() } else { latency(duration) }
}

#[cfg(test)]
mod tests;
