//! Enums whose values have names: what options, plans and results call them.

use std::fmt;

/// A text that is none of the names of an enum made by [`words!`](crate::words).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// Name of the enum, such as `store`.
    pub kind: &'static str,
    /// The text.
    pub text: String,
    /// All names of the enum.
    pub words: &'static [&'static str],
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no {}; take ", self.text, self.kind)?;
        match self.words {
            [most @ .., last] if !most.is_empty() => write!(f, "{} or {last}", most.join(", ")),
            words => f.write_str(&words.concat()),
        }
    }
}

impl std::error::Error for UnknownWord {}

/// A number of things, such as `1 OSD` or `3 OSDs`; `noun` takes an s.
#[must_use]
pub fn counted(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Declares an enum with a name for each value: `Display`, `FromStr` and serde use them, `WORDS` and `ALL` list names and values.
///
/// ```
/// carmine_types::words! {
///     /// How it is done.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Way: "way" {
///         /// Directly.
///         Direct = "direct",
///         Detour = "detour",
///     }
/// }
/// assert_eq!("detour".parse(), Ok(Way::Detour));
/// assert_eq!("no".parse::<Way>().unwrap_err().to_string(), "`no` is no way; take direct or detour");
/// ```
#[macro_export]
macro_rules! words {
    (
        $(#[$attr:meta])*
        $vis:vis enum $name:ident: $kind:literal {
            $($(#[$variant_attr:meta])* $variant:ident = $word:literal),+ $(,)?
        }
    ) => {
        $(#[$attr])*
        $vis enum $name {
            $($(#[$variant_attr])* $variant),+
        }

        #[allow(dead_code, reason = "an enum need not use all of this")]
        impl $name {
            /// Names of the values, in order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// All values, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name.
            #[must_use]
            pub fn word(&self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> ::std::result::Result<Self, $crate::UnknownWord> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err($crate::UnknownWord { kind: $kind, text: text.to_owned(), words: $name::WORDS }),
                }
            }
        }

        $crate::as_text!($name);
    };
}

/// Serializes a type, or one with a type parameter, as the text that its `Display` writes and its `FromStr` reads.
///
/// ```
/// struct Percent(u8);
///
/// impl std::fmt::Display for Percent {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         write!(f, "{} %", self.0)
///     }
/// }
///
/// impl std::str::FromStr for Percent {
///     type Err = std::num::ParseIntError;
///
///     fn from_str(text: &str) -> Result<Self, Self::Err> {
///         text.trim_end_matches(" %").parse().map(Percent)
///     }
/// }
///
/// carmine_types::as_text!(Percent);
/// assert_eq!(serde_json::to_string(&Percent(7)).unwrap(), r#""7 %""#);
/// assert_eq!(serde_json::from_str::<Percent>(r#""8 %""#).unwrap().0, 8);
/// assert!(serde_json::from_str::<Percent>(r#""many""#).is_err());
/// ```
#[macro_export]
macro_rules! as_text {
    ($name:ident $(<$inner:ident>)?) => {
        impl$(<$inner: ::std::fmt::Display>)? $crate::serde::Serialize for $name$(<$inner>)? {
            fn serialize<S: $crate::serde::Serializer>(&self, to: S) -> ::std::result::Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de $(, $inner: ::std::str::FromStr<Err: ::std::fmt::Display>)?> $crate::serde::Deserialize<'de>
            for $name$(<$inner>)?
        {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(from: D) -> ::std::result::Result<Self, D::Error> {
                let text = <::std::string::String as $crate::serde::Deserialize>::deserialize(from)?;
                text.parse().map_err($crate::serde::de::Error::custom)
            }
        }
    };
}

/// A table whose columns are as wide as their widest cell; those that `is_number` names stand to the right.
#[must_use]
pub fn columns(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match is_number(at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

// Structures whose fields say their default values.

/// Declares a structure whose `Default` has the value that stands behind a field, and the default of its type for a field
/// with none.
///
/// ```
/// carmine_types::defaults! {
///     /// A limit.
///     #[derive(Debug, PartialEq)]
///     pub struct Limit {
///         /// Most operations in flight.
///         pub ops: u32 = 128,
///         pub name: String,
///     }
/// }
/// assert_eq!(Limit::default(), Limit { ops: 128, name: String::new() });
/// ```
#[macro_export]
macro_rules! defaults {
    (
        $(#[$attr:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_attr:meta])* $field_vis:vis $field:ident: $type:ty $(= $value:expr)?),* $(,)?
        }
    ) => {
        $(#[$attr])*
        $vis struct $name {
            $($(#[$field_attr])* $field_vis $field: $type),*
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::defaults!(@value $($value)?)),* }
            }
        }
    };
    (@value) => { ::std::default::Default::default() };
    (@value $value:expr) => { $value };
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let rows = [row(&["point", "µs", "note"]), row(&["a", "1234", ""]), row(&["failed"])];
        assert_eq!(columns(&rows, |at| at == 1), "point     µs  note\na       1234\nfailed\n");
        assert_eq!(columns(&[], |_| true), "");
    }
}
