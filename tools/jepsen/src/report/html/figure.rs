//! Figure of a cell's history: the rate of calls above, a row for each lock or client below, and each fault
//! as a vertical band.

use lockgate_check::Nanos;

use super::rows::{self, Row};
use super::text::escape;
use super::throughput;
use crate::report::{CellReport, Fault};
use crate::workloads::Tone;

/// Width. All lengths are in the units of the drawing, which is scaled to the width of the page.
const WIDTH: f64 = 1200.0;

/// Margin for the names of rows.
const LEFT: f64 = 110.0;

const RIGHT: f64 = 12.0;

/// Margin for the numbers of faults.
const TOP: f64 = 18.0;

/// Height of the rate's graph.
const RATE_HEIGHT: f64 = 56.0;

const ROW_HEIGHT: f64 = 13.0;

const BAR_HEIGHT: f64 = 9.0;

/// Margin for the time axis.
const BOTTOM: f64 = 20.0;

const SECOND: f64 = 1e9;

/// Mapping of times to positions.
#[derive(Clone, Copy)]
pub struct Scale {
    from: f64,
    per_nano: f64,
}

impl Scale {
    /// Creates a scale that maps a time range to the drawing's width.
    pub fn new(from: Nanos, to: Nanos) -> Self {
        let time = (to.saturating_sub(from)).max(1) as f64;
        Self {
            from: from as f64,
            per_nano: (WIDTH - LEFT - RIGHT) / time,
        }
    }

    /// Returns the position of a moment.
    pub fn x(self, at: Nanos) -> f64 {
        let x = LEFT + (at as f64 - self.from) * self.per_nano;
        x.clamp(LEFT, WIDTH - RIGHT)
    }
}

/// Formats a moment in seconds.
pub fn seconds(at: Nanos) -> String {
    format!("{:.1} s", at as f64 / SECOND)
}

/// Renders the figure, if there is anything to draw.
pub fn draw(cell: &CellReport, html: &mut String) {
    let Some((from, to)) = extent(cell) else {
        return;
    };
    let scale = Scale::new(from, to);
    let thorough = !cell.outcome.is_fine();
    let (rows, merged) = rows::of(&cell.timeline, scale, thorough);
    let height = TOP + RATE_HEIGHT + rows.len() as f64 * ROW_HEIGHT + BOTTOM;
    put!(
        html,
        "<figure>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"history of {}\">\n",
        escape(&cell.name())
    );
    axis(from, to, scale, height, html);
    bands(&cell.faults, scale, height - BOTTOM, html);
    throughput::draw(&cell.rate, scale, TOP, RATE_HEIGHT - 8.0, html);
    put!(
        html,
        "<text class=\"name\" x=\"{}\" y=\"{}\">calls/s</text>\n",
        LEFT - 6.0,
        TOP + 12.0
    );
    for (index, row) in rows.iter().enumerate() {
        draw_row(row, TOP + RATE_HEIGHT + index as f64 * ROW_HEIGHT, html);
    }
    html.push_str("</svg>\n<figcaption>");
    legend(cell, merged, html);
    html.push_str("</figcaption>\n</figure>\n");
}

/// Returns the times of the first and the last event.
fn extent(cell: &CellReport) -> Option<(Nanos, Nanos)> {
    let begins = cell.timeline.iter().map(|span| span.begin);
    let begins = begins.chain(cell.faults.iter().map(|fault| fault.begin));
    let ends = cell.timeline.iter().map(|span| span.end);
    let ends = ends.chain(cell.faults.iter().map(|fault| fault.end));
    Some((begins.min()?, ends.max()?))
}

fn axis(from: Nanos, to: Nanos, scale: Scale, height: f64, html: &mut String) {
    let whole = (to - from) as f64 / SECOND;
    let step = [1_u64, 2, 5, 10, 20, 60, 120, 600]
        .into_iter()
        .find(|step| whole / *step as f64 <= 24.0);
    let step = step.unwrap_or(3600);
    let first = (from as f64 / SECOND).ceil() as u64;
    let last = (to as f64 / SECOND).floor() as u64;
    let base = height - BOTTOM;
    for second in (first..=last).filter(|second| second.is_multiple_of(step)) {
        let x = scale.x(second * 1_000_000_000);
        put!(
            html,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{base:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{second} s</text>\n",
            base + 13.0
        );
    }
}

/// Draws each fault: dark while it lasts, lighter while it is healed.
fn bands(faults: &[Fault], scale: Scale, bottom: f64, html: &mut String) {
    for (index, fault) in faults.iter().enumerate() {
        let (x, healing, end) = (scale.x(fault.begin), scale.x(fault.healing), scale.x(fault.end));
        let title = format!(
            "{}: {} ({} to {})",
            fault.nemesis,
            fault.what,
            seconds(fault.begin),
            seconds(fault.end)
        );
        let height = bottom - TOP;
        put!(
            html,
            "<g class=\"band\"><title>{}</title><rect class=\"fault\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{height:.1}\"/>\
             <rect class=\"heal\" x=\"{healing:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{height:.1}\"/>\
             <text class=\"mark\" x=\"{:.1}\" y=\"{}\">{}</text></g>\n",
            escape(&title),
            (healing - x).max(1.0),
            (end - healing).max(0.0),
            x + 2.0,
            TOP - 5.0,
            index + 1,
        );
    }
}

fn draw_row(row: &Row, y: f64, html: &mut String) {
    put!(
        html,
        "<text class=\"name\" x=\"{}\" y=\"{:.1}\">{}</text><path class=\"line\" d=\"M{LEFT} {:.1}H{}\"/>",
        LEFT - 6.0,
        y + BAR_HEIGHT,
        escape(&row.name),
        y + ROW_HEIGHT - 1.5,
        WIDTH - RIGHT,
    );
    for (tone, bars) in &row.plain {
        let (class, y) = (class(*tone), y + 1.0);
        put!(html, "<path class=\"{class}\" d=\"");
        for (from, to) in bars {
            put!(html, "M{from:.1} {y:.1}H{to:.1}v{BAR_HEIGHT}H{from:.1}z");
        }
        html.push_str("\"/>");
    }
    for bar in &row.titled {
        let class = class(bar.tone);
        put!(
            html,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\"><title>{}</title></rect>",
            bar.from,
            y + 1.0,
            bar.to - bar.from,
            escape(&bar.title),
        );
    }
    html.push('\n');
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Ok => "ok",
        Tone::Failed => "no",
        Tone::Unknown => "open",
        Tone::Violation => "bad",
    }
}

fn legend(cell: &CellReport, merged: usize, html: &mut String) {
    let count = cell.timeline.len();
    put!(
        html,
        "<span class=\"key ok\"></span> done <span class=\"key no\"></span> failed \
         <span class=\"key open\"></span> unknown, or paused <span class=\"key bad\"></span> contradiction \
         <span class=\"key fault\"></span> fault, numbered as below <span class=\"key heal\"></span> being healed. {count} bars"
    );
    if merged > 0 {
        put!(
            html,
            ", {merged} of them merged with a neighbour less than a pixel away"
        );
    }
    html.push_str(". Hover over a long one for its details.");
}
