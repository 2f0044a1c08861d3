//! Server-sent events out of a stream of bytes, as the HTML standard has them. It knows no event.

/// A block of a stream: an event, or with empty data only an id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// The id, if this very block has one.
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: String,
}

/// What has come of the block that is not complete.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// The line that is not complete.
    line: Vec<u8>,
    block: Block,
}

impl Blocks {
    /// Takes what has come; the blocks that are complete with it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Block> {
        let mut complete = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            if line.is_empty() {
                let block = std::mem::take(&mut self.block);
                if block != Block::default() {
                    complete.push(block);
                }
            } else {
                self.field(&line);
            }
        }
        self.line.extend_from_slice(rest);
        complete
    }

    /// How many bytes wait for the end of their block.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len() + self.block.data.len()
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.block.id = Some(value.to_owned()),
            "event" => self.block.event = value.to_owned(),
            "data" => {
                if !self.block.data.is_empty() {
                    self.block.data.push('\n');
                }
                self.block.data.push_str(value);
            }
            // A comment (an empty name), or what does not matter here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(id: Option<&str>, event: &str, data: &str) -> Block {
        Block {
            id: id.map(str::to_owned),
            event: event.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn events_are_found_wherever_the_stream_is_cut() {
        let text = "retry: 100\n\n: hello\n\nid: 3.1\nevent: lost\ndata: {\"ä\":1}\n\n: alive\nid: 4\n\n\
                    event:two\r\ndata:a\r\ndata: b\r\nother: x\r\n\r\nevent: cut";
        let expected = [
            block(Some("3.1"), "lost", "{\"ä\":1}"),
            block(Some("4"), "", ""),
            block(None, "two", "a\nb"),
        ];
        for length in 1..text.len() {
            let mut blocks = Blocks::default();
            let found: Vec<_> = text
                .as_bytes()
                .chunks(length)
                .flat_map(|cut| blocks.take(cut))
                .collect();
            assert_eq!(found, expected, "cut into pieces of {length}");
            assert_eq!(blocks.waiting(), "event: cut".len());
        }
    }
}
