//! Jute: how ZooKeeper writes numbers, texts and lists. What the records mean is in `records`.
//!
//! Everything is big-endian and without padding or tags. A length of -1 stands for null.

use std::fmt;

/// A frame or a part of it is shorter than its content says, or its content is impossible.
#[derive(Debug)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sent a malformed {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Appends records to one frame.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A frame whose length is filled in by [`Writer::frame`].
    pub fn new() -> Self {
        Self(vec![0; 4])
    }

    /// The finished frame: its length, and what was written.
    pub fn frame(mut self) -> Vec<u8> {
        let length = i32::try_from(self.0.len() - 4).expect("requests are far smaller than 2 GiB");
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    /// Four bytes.
    pub fn int(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub fn long(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// A length and so many bytes; null is none.
    pub fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.length(bytes.len());
                self.0.extend_from_slice(bytes);
            }
        }
    }

    /// A buffer of UTF-8.
    pub fn text(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    /// A count and so many items.
    pub fn vector<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.length(items.len());
        for value in items {
            item(self, value);
        }
    }

    fn length(&mut self, length: usize) {
        self.int(i32::try_from(length).expect("requests are far smaller than 2 GiB"));
    }
}

/// Takes records from one frame.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a frame's body.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Fails unless all has been read: a longer record is another one than we took it for.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed("record: it is longer than its type"))
        }
    }

    /// One byte.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.bytes::<1>()?[0] != 0)
    }

    /// Four bytes.
    pub fn int(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.bytes()?))
    }

    /// Eight bytes.
    pub fn long(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.bytes()?))
    }

    /// Bytes, or null.
    pub fn buffer(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("length"))?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("buffer"))?;
        self.0 = rest;
        Ok(Some(taken.to_vec()))
    }

    /// A text that is not null.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.ok_or(Malformed("text: it is null"))?;
        String::from_utf8(bytes).map_err(|_| Malformed("text: it is not UTF-8"))
    }

    /// A list that is not null.
    pub fn vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.int()?).map_err(|_| Malformed("list: it is null"))?;
        // Not reserved: a wrong count must not become an allocation.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed("number"))?;
        self.0 = rest;
        Ok(*taken)
    }
}
