//! Closed sets of words: an enum whose values are written as one word each, in JSON, in recordings and on the screen.

/// Says which words a type is written as, where `words!` does not fit because a value holds more than its word.
macro_rules! written_as {
    ($type:ident [$($word:literal),+ $(,)?]) => {
        impl crate::document::Described for $type {
            fn shape() -> crate::document::Shape {
                crate::document::Shape::Word(vec![$($word),+])
            }
        }
    };
}

/// Gives an enum its words: `word()`, `ALL` in this order, and its JSON.
///
/// ```ignore
/// words!(Phase { Train => "train", Validation => "validation" });
/// ```
macro_rules! words {
    ($type:ident { $($value:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in the order in which they are shown.
            pub const ALL: [$type; [$($word),+].len()] = [$($type::$value),+];

            /// The word for it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $($type::$value => $word),+
                }
            }

            /// The value that a word stands for.
            #[must_use]
            pub fn of_word(word: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|value| value.word() == word)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl crate::document::Worded for $type {
            fn words() -> Vec<&'static str> {
                vec![$($word),+]
            }
        }

        impl crate::document::Described for $type {
            fn shape() -> crate::document::Shape {
                crate::document::Shape::Word(vec![$($word),+])
            }
        }
    };
}
