//! Graph of the rate of successful calls: an area above the rows, in which an outage is a gap.

use super::figure::Scale;

/// Length of a step: the rate is counted in tenths of a second.
const STEP: u64 = 100_000_000;

/// Number of steps that are averaged to reduce noise.
const SMOOTHED: usize = 3;

/// Renders the graph below `top`, scaled to its own maximum.
pub fn draw(rate: &[u32], scale: Scale, top: f64, height: f64, html: &mut String) {
    let smooth: Vec<f64> = (0..rate.len())
        .map(|index| {
            let around =
                &rate[index.saturating_sub(SMOOTHED / 2)..(index + SMOOTHED / 2 + 1).min(rate.len())];
            around.iter().map(|count| f64::from(*count)).sum::<f64>() / around.len() as f64
        })
        .collect();
    let most = smooth.iter().copied().fold(1.0, f64::max);
    let base = top + height;
    html.push_str("<path class=\"rate\" d=\"");
    for (index, count) in smooth.iter().enumerate() {
        let x = scale.x(index as u64 * STEP + STEP / 2);
        if index == 0 {
            put!(html, "M{x:.1} {base:.1}");
        }
        put!(html, "L{x:.1} {:.1}", base - height * count / most);
    }
    if !smooth.is_empty() {
        let last = scale.x(smooth.len() as u64 * STEP);
        put!(html, "L{last:.1} {base:.1}z");
    }
    let per_second = most * 10.0;
    put!(
        html,
        "\"/><text class=\"most\" x=\"{:.1}\" y=\"{:.1}\">{per_second:.0}</text>\n",
        scale.x(0) - 6.0,
        top + 24.0
    );
}
