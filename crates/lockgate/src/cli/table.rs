//! Tables for people: columns under their headings, as wide as they need to be.

/// Between two columns.
const GAP: &str = "  ";

/// Draws it; the last column is not filled up.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let headings = headings.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows);
    let width = |column: usize| {
        lines()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let draw = |line: &[String; N]| {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    lines().map(draw).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a".to_owned(), "1".to_owned()],
            ["größer".to_owned(), String::new()],
        ];
        assert_eq!(table(["NAME", "N"], &rows), "NAME    N\na       1\ngrößer");
    }
}
