//! Text tables: columns under headings, as wide as their widest cell. Text of clients is escaped, so that it
//! cannot control the terminal.

use cli_support::output::shown;

/// Gap between two columns.
const GAP: &str = "  ";

/// Returns the table as text; the last column has no padding.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let headings = headings.map(str::to_owned);
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| shown(cell)))
        .collect();
    let lines = || std::iter::once(&headings).chain(&rows);
    let width = |column: usize| {
        lines()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let format_line = |line: &[String; N]| {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    lines().map(format_line).collect::<Vec<_>>().join("\n")
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

    #[test]
    fn text_of_clients_is_escaped() {
        let rows = [["a\n\u{1b}[2Jb".to_owned()]];
        assert_eq!(table(["NOTE"], &rows), "NOTE\na\\n\\u{1b}[2Jb");
    }
}
