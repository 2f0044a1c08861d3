//! Hash of 64 bits that is the same on every platform and in every build. Replicas compare digests made of it, and it identifies requests. It
//! chains XXH3, whose result never changes (<https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>): the hash of the
//! preceding input is the seed of the next. It does not resist an attacker who constructs collisions. [`crate::tree`] and
//! [`crate::sessions::request_cache`] describe the hashed values.

use core::fmt;
use core::hash::BuildHasher;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hasher of a sequence of words and bytes.
#[derive(Clone)]
pub(crate) struct StableHasher(u64);

impl StableHasher {
    pub(crate) fn new() -> Self {
        Self(0)
    }

    /// Adds a number.
    pub(crate) fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    /// Adds bytes, and their number with them, so that `ab` `c` differs from `a` `bc`.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// Adds a fixed number of numbers.
    pub(crate) fn words<const N: usize>(&mut self, words: [u64; N]) {
        self.bytes(words.map(u64::to_le_bytes).as_flattened());
    }

    /// Returns the hash of all that was added.
    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns the hash of a run of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = StableHasher::new();
    hasher.bytes(bytes);
    hasher.finish()
}

/// Returns the hash of bytes that follow others with the hash `before`.
pub(crate) fn of_bytes_after(before: u64, bytes: &[u8]) -> u64 {
    let mut hasher = StableHasher(before);
    hasher.bytes(bytes);
    hasher.finish()
}

/// Returns the hash of a fixed number of numbers.
pub(crate) fn of_words<const N: usize>(words: [u64; N]) -> u64 {
    let mut hasher = StableHasher::new();
    hasher.words(words);
    hasher.finish()
}

/// Returns the hash of whatever `value` serializes to.
pub(crate) fn of<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut hasher = StableHasher::new();
    match value.serialize(&mut hasher) {
        Ok(()) => hasher.finish(),
        Err(Impossible) => unreachable!("the types of this crate do not refuse to be serialized"),
    }
}

/// Hasher of this crate's tables. It is fixed, because the standard one has random keys. With these anything that depended on the order of a table
/// would differ between replicas.
#[derive(Clone, Copy, Default)]
pub(crate) struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = StableHasher;

    fn build_hasher(&self) -> StableHasher {
        StableHasher::new()
    }
}

impl core::hash::Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
    }

    fn write_u8(&mut self, value: u8) {
        self.word(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.word(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }

    fn finish(&self) -> u64 {
        StableHasher::finish(self)
    }
}

/// A table with the fixed hasher. Its order of iteration must not become visible.
pub(crate) type Table<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// Error of a serializer that cannot fail.
#[derive(Debug)]
pub(crate) struct Impossible;

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value refused to be serialized")
    }
}

impl serde::ser::StdError for Impossible {}

impl serde::ser::Error for Impossible {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Feeds the numbers of a value into the hasher; containers add their length or their variant first.
macro_rules! words {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method(self, value: $type) -> Result<(), Impossible> {
            self.word(value as u64);
            Ok(())
        }
    )*};
}

impl serde::Serializer for &mut StableHasher {
    type Ok = ();
    type Error = Impossible;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    words! {
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
    }

    fn serialize_i128(self, value: i128) -> Result<(), Impossible> {
        self.serialize_u128(value as u128)
    }

    fn serialize_u128(self, value: u128) -> Result<(), Impossible> {
        self.word(value as u64);
        self.word((value >> 64) as u64);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Impossible> {
        self.word(value.to_bits().into());
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Impossible> {
        self.word(value.to_bits());
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Impossible> {
        self.bytes(text.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Impossible> {
        self.bytes(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Impossible> {
        self.word(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Impossible> {
        self.word(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Impossible> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Impossible> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), Impossible> {
        self.word(index.into());
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Impossible> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Impossible> {
        self.word(index.into());
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Impossible> {
        self.word(length.map_or(u64::MAX, |length| length as u64));
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Impossible> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Impossible> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Impossible> {
        self.word(index.into());
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, Impossible> {
        self.serialize_seq(length)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Impossible> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Impossible> {
        self.word(index.into());
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), Impossible> {
        self.serialize_str(&alloc::format!("{value}"))
    }
}

/// Hashes compound values as the sequence of their elements. Names of fields are not part of the hash.
macro_rules! compound {
    ($($trait:ident::$method:ident,)*) => {$(
        impl serde::ser::$trait for &mut StableHasher {
            type Ok = ();
            type Error = Impossible;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Impossible> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Impossible> {
                Ok(())
            }
        }
    )*};
}

compound! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! named_fields {
    ($($trait:ident,)*) => {$(
        impl serde::ser::$trait for &mut StableHasher {
            type Ok = ();
            type Error = Impossible;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Impossible> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Impossible> {
                Ok(())
            }
        }
    )*};
}

named_fields! { SerializeStruct, SerializeStructVariant, }

impl serde::ser::SerializeMap for &mut StableHasher {
    type Ok = ();
    type Error = Impossible;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Impossible> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Impossible> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Impossible> {
        Ok(())
    }
}
