//! Jute: ZooKeeper's encoding of numbers, texts and lists. Their meaning is defined by the records.
//!
//! Everything is big-endian and without padding or tags:
//!
//! | type | bytes |
//! |---|---|
//! | boolean | one: 0, or any other value for true |
//! | int, long | four, eight |
//! | buffer, ustring | length as int, followed by the bytes; -1 is null |
//! | vector | count as int, followed by the items; -1 is null |

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::DecodeError;

/// Length or count of null.
const NULL: i32 = -1;

/// Encoder that appends to a buffer.
pub struct Writer<'a>(&'a mut BytesMut);

impl<'a> Writer<'a> {
    /// Creates an encoder that appends to `to`.
    pub fn new(to: &'a mut BytesMut) -> Self {
        Self(to)
    }

    /// Appends bytes as they are, without a length, such as an encoded record.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }

    /// Appends one byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.0.put_u8(u8::from(value));
    }

    /// Appends four bytes.
    pub fn int(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    /// Appends eight bytes.
    pub fn long(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    /// Appends a length and the bytes.
    ///
    /// # Panics
    ///
    /// If the length is 2 GiB or more. This applies to all methods that write a length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.length(value.len());
        self.0.put_slice(value);
    }

    /// Appends bytes, or null.
    pub fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(NULL),
            Some(bytes) => self.bytes(bytes),
        }
    }

    /// Appends a text as UTF-8.
    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// Appends a text as UTF-8, or null.
    pub fn nullable_text(&mut self, value: Option<&str>) {
        self.buffer(value.map(str::as_bytes));
    }

    /// Appends a count and the items.
    pub fn vector<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.length(items.len());
        for value in items {
            item(self, value);
        }
    }

    /// Appends a list, or null.
    pub fn nullable_vector<T>(&mut self, items: Option<&[T]>, item: impl FnMut(&mut Self, &T)) {
        match items {
            None => self.int(NULL),
            Some(items) => self.vector(items, item),
        }
    }

    /// Appends a list of texts.
    pub fn texts(&mut self, texts: &[String]) {
        self.vector(texts, |to, text| to.text(text));
    }

    fn length(&mut self, length: usize) {
        self.int(i32::try_from(length).expect("a frame is far smaller than 2 GiB"));
    }
}

/// Decoder of the body of a frame.
#[derive(Clone, Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Creates a decoder that begins at the first byte.
    pub fn new(body: Bytes) -> Self {
        Self(body)
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Fails unless everything was read. ZooKeeper itself never checks this.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Malformed("record: bytes after its end"))
        }
    }

    /// Reads one byte; all values except 0 are true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.0
            .try_get_u8()
            .map(|byte| byte != 0)
            .map_err(|_| DecodeError::Malformed("boolean: truncated"))
    }

    /// Reads four bytes.
    pub fn int(&mut self) -> Result<i32, DecodeError> {
        self.0
            .try_get_i32()
            .map_err(|_| DecodeError::Malformed("int: truncated"))
    }

    /// Reads eight bytes.
    pub fn long(&mut self) -> Result<i64, DecodeError> {
        self.0
            .try_get_i64()
            .map_err(|_| DecodeError::Malformed("long: truncated"))
    }

    /// Reads bytes, or null. The bytes are a slice of the frame.
    pub fn buffer(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        if length > self.0.len() {
            return Err(DecodeError::Malformed("buffer: truncated"));
        }
        Ok(Some(self.0.split_to(length)))
    }

    /// Reads a text that must not be null.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        self.nullable_text()?.ok_or(DecodeError::Malformed("text: null"))
    }

    /// Reads a text, or null.
    pub fn nullable_text(&mut self) -> Result<Option<String>, DecodeError> {
        let Some(bytes) = self.buffer()? else {
            return Ok(None);
        };
        match str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(DecodeError::Malformed("text: not UTF-8")),
        }
    }

    /// Reads a list that must not be null.
    pub fn vector<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_vector(item)?
            .ok_or(DecodeError::Malformed("list: null"))
    }

    /// Reads a list, or null.
    pub fn nullable_vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.length()? else {
            return Ok(None);
        };
        // The capacity is not reserved, because a wrong count must not cause an allocation. Every item has at
        // least one byte, so the loop ends with the frame.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(Some(items))
    }

    /// Reads a list of texts, none of which may be null.
    pub fn texts(&mut self) -> Result<Vec<String>, DecodeError> {
        self.vector(Self::text)
    }

    fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        match self.int()? {
            NULL => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(DecodeError::Malformed("length: negative")),
            },
        }
    }
}
