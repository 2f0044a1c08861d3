//! Report as one page: verdicts first, then each cell with a figure of its history. It has no scripts and no
//! external resources: it can be mailed, archived with a build, and opened in ten years.

/// Appends formatted text to a string.
macro_rules! put {
    ($to:expr, $($what:tt)*) => {
        std::fmt::Write::write_fmt($to, format_args!($($what)*)).expect("a string takes all")
    };
}

mod cell;
mod figure;
mod overview;
mod rows;
mod tables;
mod text;
mod throughput;

use super::Report;
use text::escape;

const STYLE: &str = include_str!("style.css");

/// Renders the page.
pub fn page(report: &Report) -> String {
    let mut html = String::new();
    // A strict policy allows only what the page uses, so that any server may serve it.
    html.push_str(concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    ));
    let title = escape(&report.title);
    put!(
        &mut html,
        "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    overview::draw(report, &mut html);
    tables::draw(report, &mut html);
    for (number, report) in report.cells.iter().enumerate() {
        cell::draw(number, report, &mut html);
    }
    html.push_str("</body>\n</html>\n");
    html
}

#[cfg(test)]
mod tests;
