//! Jute: how ZooKeeper writes numbers, texts and lists. What they mean is the business of the records.
//!
//! Everything is big-endian and without padding or tags:
//!
//! | type | bytes |
//! |---|---|
//! | boolean | one: 0, or something else |
//! | int, long | four, eight |
//! | buffer, ustring | length as int, and so many bytes; -1 is null |
//! | vector | count as int, and so many items; -1 is null |

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::DecodeError;

/// Where null stands for a length or a count.
const NULL: i32 = -1;

/// Appends records to a buffer.
pub struct Writer<'a>(&'a mut BytesMut);

impl<'a> Writer<'a> {
    /// Appends to what is there already.
    pub fn new(to: &'a mut BytesMut) -> Self {
        Self(to)
    }

    /// Bytes as they are, without a length: a record that somebody else has written.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.put_slice(bytes);
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.0.put_u8(u8::from(value));
    }

    /// Four bytes.
    pub fn int(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    /// Eight bytes.
    pub fn long(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    /// A length and so many bytes.
    ///
    /// # Panics
    ///
    /// If it is 2 GiB or more, as do all that write a length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.length(value.len());
        self.0.put_slice(value);
    }

    /// Bytes, or null.
    pub fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(NULL),
            Some(bytes) => self.bytes(bytes),
        }
    }

    /// Bytes of UTF-8.
    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// Bytes of UTF-8, or null.
    pub fn nullable_text(&mut self, value: Option<&str>) {
        self.buffer(value.map(str::as_bytes));
    }

    /// A count and so many items.
    pub fn vector<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.length(items.len());
        for value in items {
            item(self, value);
        }
    }

    /// A list, or null.
    pub fn nullable_vector<T>(&mut self, items: Option<&[T]>, item: impl FnMut(&mut Self, &T)) {
        match items {
            None => self.int(NULL),
            Some(items) => self.vector(items, item),
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, texts: &[String]) {
        self.vector(texts, |to, text| to.text(text));
    }

    fn length(&mut self, length: usize) {
        self.int(i32::try_from(length).expect("a frame is far smaller than 2 GiB"));
    }
}

/// Takes records from the body of a frame.
#[derive(Clone, Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Begins at the first byte.
    pub fn new(body: Bytes) -> Self {
        Self(body)
    }

    /// How many bytes have not been read.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Fails unless all has been read. ZooKeeper itself never asks.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Malformed("record: it is longer than its type"))
        }
    }

    /// One byte; all but 0 are true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.0
            .try_get_u8()
            .map(|byte| byte != 0)
            .map_err(|_| DecodeError::Malformed("boolean: it is cut off"))
    }

    /// Four bytes.
    pub fn int(&mut self) -> Result<i32, DecodeError> {
        self.0
            .try_get_i32()
            .map_err(|_| DecodeError::Malformed("int: it is cut off"))
    }

    /// Eight bytes.
    pub fn long(&mut self) -> Result<i64, DecodeError> {
        self.0
            .try_get_i64()
            .map_err(|_| DecodeError::Malformed("long: it is cut off"))
    }

    /// Bytes, or null. They are a slice of the frame.
    pub fn buffer(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        if length > self.0.len() {
            return Err(DecodeError::Malformed("buffer: it is cut off"));
        }
        Ok(Some(self.0.split_to(length)))
    }

    /// A text that is not null.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        self.nullable_text()?
            .ok_or(DecodeError::Malformed("text: it is null"))
    }

    /// A text, or null.
    pub fn nullable_text(&mut self) -> Result<Option<String>, DecodeError> {
        let Some(bytes) = self.buffer()? else {
            return Ok(None);
        };
        match str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(DecodeError::Malformed("text: it is not UTF-8")),
        }
    }

    /// A list that is not null.
    pub fn vector<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_vector(item)?
            .ok_or(DecodeError::Malformed("list: it is null"))
    }

    /// A list, or null.
    pub fn nullable_vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.length()? else {
            return Ok(None);
        };
        // Not reserved: a wrong count must not become an allocation. No item is empty, so the frame's end ends this.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(Some(items))
    }

    /// A list of texts, neither of them null.
    pub fn texts(&mut self) -> Result<Vec<String>, DecodeError> {
        self.vector(Self::text)
    }

    fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        match self.int()? {
            NULL => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(DecodeError::Malformed("length: it is negative")),
            },
        }
    }
}
