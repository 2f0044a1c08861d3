//! Text in a page: foreign text is never interpreted as markup.

/// Replaces characters with a meaning in HTML by entities.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters are invalid in a page, and useless to a reader.
            letter if letter.is_control() && letter != '\n' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Formats a large number with thin spaces.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

/// Returns the beginning of a text that may be long.
pub fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("<b>\"a\" & 'b'\u{7}"),
            "&lt;b&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd}"
        );
    }

    #[test]
    fn numbers_are_grouped_from_the_end() {
        assert_eq!(number(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(number(999), "999");
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äöü", 3), "äöü");
    }
}
