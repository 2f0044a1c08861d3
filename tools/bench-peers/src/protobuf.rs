//! The part of protocol buffers that etcd's few messages here need: fields of bytes and of integers, without
//! nested messages.

use anyhow::{Context, bail};

/// A message under construction.
#[derive(Debug, Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Creates a message without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field of bytes.
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a field with a number.
    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.varint(u64::from(field) << 3);
        // Negative numbers take ten bytes, as in all implementations.
        self.varint(value.cast_unsigned());
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Returns the encoded message.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }
}

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Int(i64),
    /// Bytes, a text, or another message.
    Bytes(&'a [u8]),
}

/// Returns the last value of a field, if the message has the field.
pub fn field(mut message: &[u8], wanted: u64) -> anyhow::Result<Option<Value<'_>>> {
    let mut found = None;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Int(varint(&mut message)?.cast_signed()),
            1 => Value::Bytes(take(&mut message, 8)?),
            2 => {
                let length = varint(&mut message)?;
                Value::Bytes(take(&mut message, usize::try_from(length)?)?)
            }
            5 => Value::Bytes(take(&mut message, 4)?),
            other => bail!("a field has an unknown wire type ({other})"),
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    Ok(found)
}

fn varint(from: &mut &[u8]) -> anyhow::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(from, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    bail!("a number is too long")
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> anyhow::Result<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count).context("the message is truncated")?;
    *from = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_reads_written_values() {
        let message = Message::new()
            .bytes(1, b"key")
            .int(2, 300)
            .int(3, -1)
            .bytes(4, b"");
        let of = |number| field(message.encoded(), number).unwrap();
        assert_eq!(of(1), Some(Value::Bytes(b"key")));
        assert_eq!(of(2), Some(Value::Int(300)));
        assert_eq!(of(3), Some(Value::Int(-1)));
        assert_eq!(of(4), Some(Value::Bytes(b"")));
        assert_eq!(of(5), None);
        // The example of the specification.
        assert_eq!(Message::new().int(1, 150).encoded(), [0x08, 0x96, 0x01]);
        let cut = &message.encoded()[..4];
        assert!(field(cut, 1).is_err());
    }
}
