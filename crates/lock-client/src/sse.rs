//! Parser of server-sent events, as the HTML standard defines them. It does not know the events.

/// Block of a stream: an event, or an id alone, with empty data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Id, if this block has one.
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: String,
}

/// Parsed part of the incomplete block.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Incomplete line.
    line: Vec<u8>,
    block: Block,
}

impl Blocks {
    /// Adds bytes. Returns the blocks that are complete with them.
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

    /// Returns the number of bytes of the incomplete block.
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
            // A comment (an empty name), or an unknown field.
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
