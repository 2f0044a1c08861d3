//! Deserialization of texts. A text is validated in the input buffer and copied once; a separate `String` for the validation would be
//! an allocation in every command.

use alloc::sync::Arc;
use core::convert::Infallible;
use core::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Deserializes a text and converts it by `make`.
pub(crate) fn read<'de, D, T, E>(deserializer: D, make: fn(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    deserializer.deserialize_str(Text { make })
}

/// Deserializes a shared text. Most owners and notes are empty, and need no allocation.
pub(crate) fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    read(deserializer, |text| {
        Ok::<_, Infallible>(match text {
            "" => Arc::default(),
            text => text.into(),
        })
    })
}

struct Text<T, E> {
    make: fn(&str) -> Result<T, E>,
}

impl<T, E: fmt::Display> Visitor<'_> for Text<T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        (self.make)(text).map_err(F::custom)
    }
}

/// Implements serde for a type through its text and its `parse`.
macro_rules! checked_text {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::model::text::read(deserializer, Self::parse)
            }
        }
    };
}

pub(crate) use checked_text;
