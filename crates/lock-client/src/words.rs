//! Enumerations of the HTTP API: each variant is one word of its documents, and an unknown word is kept as it is.

/// Defines an enumeration whose variants are words of the API.
macro_rules! words {
    ($(#[$about:meta])* $enum:ident { $($(#[$doc:meta])* $name:ident = $word:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$doc])* $name,)*
            /// A word that this version of the client does not know.
            Other(String),
        }

        impl $enum {
            /// Returns the variant for a word.
            pub fn of(word: &str) -> Self {
                match word { $($word => Self::$name,)* other => Self::Other(other.to_owned()) }
            }

            /// Returns the word.
            pub fn word(&self) -> &str {
                match self { $(Self::$name => $word,)* Self::Other(word) => word }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <String as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::of(&word))
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    words! {
        /// A fruit.
        Fruit {
            /// Red or green.
            Apple = "apple";
        }
    }

    #[test]
    fn unknown_word_is_kept() {
        let fruits: Vec<Fruit> = serde_json::from_str(r#"["apple", "quince"]"#).unwrap();
        assert_eq!(fruits, [Fruit::Apple, Fruit::Other("quince".to_owned())]);
        assert_eq!(serde_json::to_string(&fruits).unwrap(), r#"["apple","quince"]"#);
        assert_eq!(fruits[1].to_string(), "quince");
    }
}
