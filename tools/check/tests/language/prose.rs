//! Prose of a source file: its comments and its texts. A text is the content of a string literal.

/// Part of a source file that people read.
#[derive(Debug, PartialEq, Eq)]
pub struct Prose<'s> {
    /// Line of its beginning, from 1.
    pub line: usize,
    /// `true` for the first line of a doc comment.
    pub opens_doc: bool,
    /// Text without comment marks or quotes.
    pub text: &'s str,
}

/// Returns the prose of a source file. Each line of a comment is a part of its own.
pub fn prose(source: &str) -> Vec<Prose<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    let mut last_doc_line = None;
    while let Some(&byte) = source.as_bytes().get(at) {
        let rest = &source[at..];
        let length = match byte {
            b'/' if rest.starts_with("//") => {
                let comment = rest.split('\n').next().unwrap_or_default();
                let is_doc = comment.starts_with("///") || comment.starts_with("//!");
                found.push(Prose {
                    line,
                    opens_doc: is_doc && last_doc_line != Some(line - 1),
                    text: comment.trim_start_matches(['/', '!']).trim(),
                });
                if is_doc {
                    last_doc_line = Some(line);
                }
                comment.len()
            }
            b'"' => {
                let content = &rest[1..];
                let length = end_of_string(content);
                found.push(Prose {
                    line,
                    opens_doc: false,
                    text: &content[..length],
                });
                (length + 2).min(rest.len())
            }
            b'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            b'\'' => length_of_char(rest),
            // Multi-byte characters occur within comments and texts only.
            _ => 1,
        };
        line += source.as_bytes()[at..at + length]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        at += length;
    }
    found
}

/// Returns the length of a string literal's content, after its first quote.
fn end_of_string(content: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in content.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    content.len()
}

/// Returns the length of a character literal; 1 for the quote of a lifetime.
fn length_of_char(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => rest[3..].find('\'').map_or(1, |end| end + 4),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_prose_and_code_is_not() {
        let source = "//! Page.\n//! More.\n\nfn f<'a>(x: &'a str) { g('\"', '\\'', \"a \\\" text\"); } // end\n    /// Doc.\nconst Q: &str = r#\"raw\"#;\n";
        let found: Vec<(usize, bool, &str)> = prose(source)
            .into_iter()
            .map(|part| (part.line, part.opens_doc, part.text))
            .collect();
        assert_eq!(
            found,
            [
                (1, true, "Page."),
                (2, false, "More."),
                (4, false, "a \\\" text"),
                (4, false, "end"),
                (5, true, "Doc."),
            ]
        );
    }
}
