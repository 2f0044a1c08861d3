//! Lines in a plane as an SVG picture, readable on light and on dark ground. It knows nothing of what they mean.

use std::fmt::Write;

/// Some lines over a common axis.
#[derive(Debug, Clone)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What lies to the right.
    pub x: String,
    /// What lies up.
    pub y: String,
    /// The lines, with their names.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Whether equal steps to the right are equal factors.
    pub log_x: bool,
}

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 46.0;

/// So many marks on the axis that goes up.
const MARKS: usize = 5;

/// Told apart also by people who do not see red and green as others do (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00"];

/// Some plots beside each other, as one SVG document.
pub fn document(plots: &[Plot]) -> String {
    let width = WIDTH * plots.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    for (number, plot) in plots.iter().enumerate() {
        let at = WIDTH * number as f64;
        svg.push_str(&format!("<g transform=\"translate({at} 0)\">\n"));
        plot.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Plot {
    fn draw(&self, svg: &mut String) {
        let mut line = |text: std::fmt::Arguments| writeln!(svg, "{text}").expect("a String takes all");
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let across = |x: f64| if self.log_x { x.log2() } else { x };
        let (least, most) = points().fold((f64::MAX, f64::MIN), |(least, most), (x, _)| {
            (least.min(across(*x)), most.max(across(*x)))
        });
        let top = round_up(points().fold(0.0, |most: f64, (_, y)| most.max(*y)));
        let x_of = |x: f64| LEFT + (across(x) - least) / (most - least).max(1e-9) * (WIDTH - LEFT - RIGHT);
        let y_of = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM);

        line(format_args!(
            "<text x=\"{LEFT}\" y=\"20\" font-size=\"13\" fill=\"#111\">{}</text>",
            escaped(&self.title)
        ));
        for mark in 0..=MARKS {
            let value = top * mark as f64 / MARKS as f64;
            let (y, right) = (y_of(value), WIDTH - RIGHT);
            line(format_args!(
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" \
                 fill=\"#444\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value)
            ));
        }
        let mut marks: Vec<f64> = points().map(|(x, _)| *x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        for x in marks {
            line(format_args!(
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
                x_of(x),
                HEIGHT - BOTTOM + 16.0,
                short(x)
            ));
        }
        line(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#111\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            escaped(&self.x)
        ));
        line(format_args!(
            "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\" fill=\"#111\">{}</text>",
            (TOP + HEIGHT - BOTTOM) / 2.0,
            escaped(&self.y)
        ));
        for (number, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let way: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{:.1} {:.1}", x_of(*x), y_of(*y)))
                .collect();
            line(format_args!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                way.join("L")
            ));
            for (x, y) in points {
                line(format_args!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                    x_of(*x),
                    y_of(*y)
                ));
            }
            line(format_args!(
                "<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>",
                LEFT + 10.0,
                TOP + 14.0 + 14.0 * number as f64,
                escaped(name)
            ));
        }
    }
}

/// The next number that looks round.
fn round_up(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.max(1e-9).log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.iter().find(|step| *step * magnitude >= value);
    step.map_or(10.0 * magnitude, |step| step * magnitude)
}

/// `120000` is `120k`.
fn short(value: f64) -> String {
    let text = match value {
        large if large >= 1e6 => format!("{:.2}M", large / 1e6),
        large if large >= 1e3 => format!("{:.1}k", large / 1e3),
        small => format!("{small:.2}"),
    };
    match text.find('.') {
        Some(point) => {
            let end = text.find(['k', 'M']).unwrap_or(text.len());
            let kept = text[..end].trim_end_matches('0').trim_end_matches('.').len();
            format!("{}{}", &text[..kept.max(point.min(kept))], &text[end..])
        }
        None => text,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_round() {
        let texts = [0.0, 0.25, 3.0, 120.0, 1_500.0, 120_000.0, 2_000_000.0].map(short);
        assert_eq!(texts, ["0", "0.25", "3", "120", "1.5k", "120k", "2M"]);
        assert_eq!(
            [7.0, 10.0, 0.021, 410_000.0].map(round_up),
            [8.0, 10.0, 0.03, 500_000.0]
        );
    }

    #[test]
    fn every_line_is_drawn_within_the_picture() {
        let plot = Plot {
            title: "a < b".into(),
            x: "groups".into(),
            y: "in a second".into(),
            lines: vec![("one".into(), vec![(1.0, 10.0), (4.0, 20.0)])],
            log_x: true,
        };
        let svg = document(&[plot.clone(), plot]);
        assert_eq!(svg.matches("stroke-width").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        // From the left end of the axis to its right one, and to its top.
        assert!(svg.contains("M64.0 155.0L444.0 36.0"), "{svg}");
    }
}
