//! Decoding of replies that contain replies, to a depth of one. A transaction's reply contains no other transaction's. A type that contains
//! itself would let a short input recurse until the decoder's stack overflows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// Variant that contains others of its type.
const NESTING: &str = "Multi";

/// Decodes a boxed enumeration, but not its variant [`NESTING`].
pub(crate) fn boxed<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<T>, D::Error> {
    Ok(Box::new(T::deserialize(Flat(deserializer))?))
}

/// Decodes a list of enumerations, none of which is the variant [`NESTING`].
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Element<T>(T);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Element<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            T::deserialize(Flat(deserializer)).map(Self)
        }
    }
    let elements: Vec<Element<T>> = Vec::deserialize(deserializer)?;
    Ok(elements.into_iter().map(|Element(element)| element).collect())
}

/// Seed that decodes an enumeration, but not its variant [`NESTING`]. It wraps the real deserializer, the visitor and the
/// access to the variant, because only the last one knows the variant.
struct Flat<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Flat<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("only an enumeration can be decoded here"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(
            name,
            variants,
            FlatEnum {
                inner: visitor,
                variants,
            },
        )
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Wrapper of a visitor, and later of the access to the variant.
struct FlatEnum<T> {
    inner: T,
    variants: &'static [&'static str],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for FlatEnum<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let variants = self.variants;
        self.inner.visit_enum(FlatEnum {
            inner: access,
            variants,
        })
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for FlatEnum<A> {
    type Error = A::Error;
    type Variant = A::Variant;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, A::Variant), A::Error> {
        let (index, variant) = self.inner.variant_seed(Index(self.variants))?;
        if self.variants.get(index as usize) == Some(&NESTING) {
            return Err(A::Error::custom("a transaction within a transaction"));
        }
        Ok((seed.deserialize(index.into_deserializer())?, variant))
    }
}

/// Index of a variant, whether the encoding counts or names variants.
struct Index(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Index {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Index {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a variant")
    }

    fn visit_u64<E>(self, index: u64) -> Result<u64, E> {
        Ok(index)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<u64, E> {
        let index = self.0.iter().position(|variant| *variant == name);
        index
            .map(|index| index as u64)
            .ok_or_else(|| E::unknown_variant(name, self.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::model::refusal::Refusal;
    use crate::model::reply::Reply;
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::model::path::ZPath;
    use crate::model::reply::Outcome;

    /// Depth that overflows any stack.
    const DEEP: usize = 10_000_000;

    fn encode(outcome: &Outcome) -> Vec<u8> {
        bincode::serde::encode_to_vec(outcome, bincode::config::standard()).expect("it can be encoded")
    }

    fn decode(bytes: &[u8]) -> Result<Outcome, alloc::string::String> {
        let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
        decoded
            .map(|(outcome, _)| outcome)
            .map_err(|error| error.to_string())
    }

    fn transactions() -> [Outcome; 2] {
        let refusal = Refusal::NoNode(ZPath::root()).into();
        [
            Ok(Reply::Multi(vec![
                Reply::Deleted,
                Reply::Checked,
                Reply::SessionsExpired(7),
            ])),
            Err(Refusal::Multi { index: 3, refusal }),
        ]
    }

    #[test]
    fn replies_of_transactions_decode() {
        for outcome in transactions() {
            assert_eq!(decode(&encode(&outcome)), Ok(outcome.clone()));
            let json = serde_json::to_string(&outcome).expect("it has a form in JSON");
            assert_eq!(serde_json::from_str::<Outcome>(&json).expect(&json), outcome);
        }
    }

    #[test]
    fn a_transaction_within_a_transaction_is_refused_at_once() {
        let nested = [
            Ok(Reply::Multi(vec![Reply::Multi(vec![])])),
            Err(Refusal::Multi {
                index: 0,
                refusal: Refusal::Multi {
                    index: 0,
                    refusal: Refusal::SessionRequired.into(),
                }
                .into(),
            }),
        ];
        for outcome in nested {
            let bytes = encode(&outcome);
            assert!(decode(&bytes).is_err_and(|error| error.contains("within a transaction")));
            // Behind `Ok` or `Err` each level begins with two bytes: which variant, and how many replies or which index.
            let deep = [&bytes[..1], &bytes[1..3].repeat(DEEP)].concat();
            assert!(decode(&deep).is_err());
            let json = serde_json::to_string(&outcome).expect("it has a form in JSON");
            assert!(serde_json::from_str::<Outcome>(&json).is_err());
        }
    }
}
