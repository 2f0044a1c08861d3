//! Second, lenient reading of JSON bodies and queries that serde has rejected. It has two purposes:
//!
//! - It accepts whole numbers in every notation of JSON. `5000.0` and `5e3` equal `5000`, and some programs write them so.
//! - Its errors name the field and use JSON's terms. serde's own errors name Rust types.
//!
//! A document that serde accepts at the first reading never gets here, so the common case costs nothing.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{Error as QueryError, MapDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::problem::echo;

/// Largest absolute value up to which a double represents every whole number exactly: 2^53.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Converts a float without a fraction to the whole number that it represents.
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= MOST_EXACT).then_some(number as i64)
}

/// Parses a JSON document that serde has rejected.
pub fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let read = T::deserialize(Lenient(&mut document))?;
    document.end()?;
    Ok(read)
}

/// Parses the parameters of a query, given as decoded pairs.
pub fn query<T: serde::de::DeserializeOwned>(parameters: Vec<(String, String)>) -> Result<T, QueryError> {
    let parameters = parameters.into_iter().map(|(name, value)| {
        let parameter = Parameter {
            name: name.clone(),
            value,
        };
        (name, parameter)
    });
    T::deserialize(MapDeserializer::new(parameters))
}

/// Rewrites an error of serde in JSON's terms.
pub fn json_terms(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    let Some((what, expected)) = text.rsplit_once(", expected ") else {
        return text;
    };
    let (expected, place) = match expected.find(" at line ") {
        Some(place) => expected.split_at(place),
        None => (expected, ""),
    };
    let what = what
        .replace("invalid type: map", "invalid type: object")
        .replace("invalid type: sequence", "invalid type: array")
        .replace("invalid type: floating point", "invalid value:");
    format!("{what}, expected {}{place}", Expected(expected))
}

/// The expectation in an error of serde, such as `u64`, displayed in JSON's terms.
struct Expected<'a>(&'a str);

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = match self.0 {
            "u8" => (0, i128::from(u8::MAX)),
            "u16" => (0, i128::from(u16::MAX)),
            "u32" => (0, i128::from(u32::MAX)),
            "u64" | "usize" => (0, i128::from(u64::MAX)),
            "i32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
            "i64" => (i128::from(i64::MIN), i128::from(i64::MAX)),
            "a boolean" => return f.write_str("true or false"),
            "a sequence" => return f.write_str("an array"),
            text if text.starts_with("struct ") || text.starts_with("internally tagged enum ") => {
                return f.write_str("an object");
            }
            text if text.starts_with("enum ") => return f.write_str("a string"),
            text => return f.write_str(text),
        };
        write!(f, "a whole number from {least} to {most}")
    }
}

/// Wrapper of a deserializer, and of all that it calls, that accepts a float without a fraction where a whole number is
/// expected.
struct Lenient<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Lenient<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Lenient(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Lenient(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Lenient(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Lenient(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Lenient<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.0.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.0.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.0.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        match whole(value) {
            Some(whole) => match u64::try_from(whole) {
                Ok(whole) => self.0.visit_u64(whole),
                Err(_) => self.0.visit_i64(whole),
            },
            None => self.0.visit_f64(value),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.0.visit_str(value)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.0.visit_borrowed_str(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<V::Value, E> {
        self.0.visit_string(value)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Lenient(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Lenient(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Lenient(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Fields {
            fields,
            name: String::new(),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Lenient(variant))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Lenient<A> {
    type Error = A::Error;
    type Variant = Lenient<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, content) = self.0.variant_seed(seed)?;
        Ok((name, Lenient(content)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Lenient<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Lenient(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Lenient(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Lenient(visitor))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Lenient<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Lenient(value))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Lenient<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Lenient(seed))
    }
}

/// Fields of an object. Prefixes the error of a value with the name of its field.
struct Fields<A> {
    fields: A,
    name: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let name = &mut self.name;
        self.fields.next_key_seed(Name { seed, name })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let read = self.fields.next_value_seed(Lenient(seed));
        read.map_err(|error| A::Error::custom(format_args!("{}: {error}", self.name)))
    }
}

/// Seed that reads the name of a field and stores a copy of it.
struct Name<'a, S> {
    seed: S,
    name: &'a mut String,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<S::Value, D::Error> {
        *self.name = String::deserialize(name)?;
        self.seed.deserialize(self.name.as_str().into_deserializer())
    }
}

/// One parameter of a query.
struct Parameter {
    name: String,
    value: String,
}

impl Parameter {
    fn wrong(&self, expected: &str) -> QueryError {
        let (name, value) = (&self.name, echo(&self.value));
        QueryError::custom(format_args!(
            "{name}: invalid value: `{value}`, expected {}",
            Expected(expected)
        ))
    }
}

/// Methods that parse a number of a query, also one that is written as a float without a fraction.
macro_rules! numbers {
    ($($number:ident => $deserialize:ident, $visit:ident;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
            let read = self.value.parse::<$number>().ok();
            let written = || whole(self.value.parse::<f64>().ok()?)?.try_into().ok();
            match read.or_else(written) {
                Some(number) => visitor.$visit(number),
                None => Err(self.wrong(stringify!($number))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Parameter {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let read: Result<_, QueryError> = visitor.visit_string(self.value);
        read.map_err(|error| QueryError::custom(format_args!("{}: {error}", self.name)))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        match self.value.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.wrong("a boolean")),
        }
    }

    numbers! {
        u8 => deserialize_u8, visit_u8;
        u16 => deserialize_u16, visit_u16;
        u32 => deserialize_u32, visit_u32;
        u64 => deserialize_u64, visit_u64;
        i32 => deserialize_i32, visit_i32;
        i64 => deserialize_i64, visit_i64;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        let word: serde::de::value::StringDeserializer<QueryError> = self.value.into_deserializer();
        let read = word.deserialize_enum(name, variants, visitor);
        read.map_err(|error| QueryError::custom(format_args!("{}: {error}", self.name)))
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, QueryError> for Parameter {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document<'a> {
        #[serde(borrow, default)]
        text: Cow<'a, str>,
        wait_ms: Option<u64>,
        version: Option<i32>,
        flag: Option<bool>,
        word: Option<Word>,
        #[serde(default)]
        parts: Vec<Part>,
        tagged: Option<Tagged>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        One,
        Two,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Part {
        Sized(Size),
        Place { size: u16 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Size {
        size: u16,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Tagged {
        Sized { size: u16 },
    }

    #[test]
    fn whole_numbers_are_accepted_in_every_notation() {
        for (written, wait_ms) in [
            ("5000", 5000),
            ("5000.0", 5000),
            ("5e3", 5000),
            ("0.5e1", 5),
            ("-0.0", 0),
            ("9007199254740992.0", 1 << 53),
            ("18446744073709551615", u64::MAX),
        ] {
            let text = format!(
                r#"{{"text": "a", "wait_ms": {written}, "version": -1.0, "word": "two", "parts": [{{"sized": {{"size": 1e1}}}},
                {{"place": {{"size": 2.0}}}}], "tagged": {{"kind": "sized", "size": 3e0}}}}"#
            );
            let expected = Document {
                text: "a".into(),
                wait_ms: Some(wait_ms),
                version: Some(-1),
                flag: None,
                word: Some(Word::Two),
                parts: vec![Part::Sized(Size { size: 10 }), Part::Place { size: 2 }],
                tagged: Some(Tagged::Sized { size: 3 }),
            };
            assert_eq!(
                json::<Document<'_>>(text.as_bytes()).unwrap(),
                expected,
                "{written}"
            );
        }
    }

    #[test]
    fn an_error_in_a_document_names_the_field_and_the_accepted_range() {
        for (document, words) in [
            (
                json!({"wait_ms": 0.5}),
                "wait_ms: invalid value: `0.5`, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                json!({"wait_ms": -5}),
                "wait_ms: invalid value: integer `-5`, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                json!({"wait_ms": "5"}),
                "wait_ms: invalid type: string \"5\", expected a whole number from 0 to 18446744073709551615",
            ),
            (
                json!({"version": 3e9}),
                "version: invalid value: integer `3000000000`, expected a whole number from -2147483648 to 2147483647",
            ),
            (
                json!({"parts": [{"sized": {"size": 70000}}]}),
                "parts: size: invalid value: integer `70000`, expected a whole number from 0 to 65535",
            ),
            (
                json!({"text": {}}),
                "text: invalid type: object, expected a string",
            ),
            (
                json!({"parts": 1}),
                "parts: invalid type: integer `1`, expected an array",
            ),
            (
                json!({"parts": [{"sized": 1}]}),
                "parts: invalid type: integer `1`, expected an object",
            ),
            (
                json!({"tagged": {"kind": "sized", "size": 1.5}}),
                "tagged: invalid value: `1.5`, expected a whole number from 0 to 65535",
            ),
            (
                json!({"flag": "yes"}),
                "flag: invalid type: string \"yes\", expected true or false",
            ),
            (
                json!({"word": "three"}),
                "word: unknown variant `three`, expected `one` or `two`",
            ),
        ] {
            let text = document.to_string();
            let error = json_terms(&json::<Document<'_>>(text.as_bytes()).unwrap_err());
            let (error, _) = error.split_once(" at line ").unwrap_or((&error, ""));
            assert_eq!(error, words, "{document}");
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        prefix: Option<String>,
        count: Option<usize>,
        version: Option<i32>,
        #[serde(default)]
        flag: bool,
        word: Option<Word>,
    }

    fn parameters(of: &[(&str, &str)]) -> Result<Parameters, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        query(of.iter().map(owned).collect()).map_err(|error| json_terms(&error))
    }

    #[test]
    fn a_query_accepts_the_same_numbers_and_reports_the_same_errors() {
        let read = parameters(&[
            ("prefix", "5.0"),
            ("count", "1e2"),
            ("version", "-1.0"),
            ("flag", "true"),
            ("word", "one"),
        ]);
        let expected = Parameters {
            prefix: Some("5.0".to_owned()),
            count: Some(100),
            version: Some(-1),
            flag: true,
            word: Some(Word::One),
        };
        assert_eq!(read, Ok(expected));
        for (name, value, words) in [
            (
                "count",
                "many",
                "count: invalid value: `many`, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                "count",
                "1.5",
                "count: invalid value: `1.5`, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                "version",
                "3e9",
                "version: invalid value: `3e9`, expected a whole number from -2147483648 to 2147483647",
            ),
            (
                "flag",
                "yes",
                "flag: invalid value: `yes`, expected true or false",
            ),
            (
                "word",
                "three",
                "word: unknown variant `three`, expected `one` or `two`",
            ),
        ] {
            assert_eq!(
                parameters(&[(name, value)]),
                Err(words.to_owned()),
                "{name}={value}"
            );
        }
    }
}
