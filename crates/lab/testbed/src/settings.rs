//! A setting is one declaration: from it come the option with its help, the field of the specification, and the axis of a study.

use std::fmt;
use std::str::FromStr;

/// The values that an axis takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, or an expression that is rounded to one.
    Count { min: u64, max: u64 },
    /// CPUs: a whole number, or with a fraction down to a thousandth; or this word for no limit.
    CpusOr { max: u64, word: &'static str },
    /// A count that is rounded to the nearest power of two.
    PowerOfTwo { max: u64 },
    /// Bytes: a number, a text such as `64K`, or an expression.
    Bytes,
    /// A number above 0.
    Float,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or `auto`.
    WordOrAuto(&'static [&'static str]),
    /// Any text; the command that takes it checks it.
    Text,
}

/// When an axis takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another value needs another data folder.
    Layout,
    /// Another value needs a restart of the OSDs.
    Start,
    /// Another value needs another load only.
    Load,
    /// Describes the point but changes nothing.
    Label,
}

/// A setting that a study can vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name in plans, in `points.json` and in a specification.
    pub name: &'static str,
    /// The option of `up` that sets it, which ends in `=` if the value must follow that; empty if there is no such option.
    pub option: &'static str,
    /// When it takes effect.
    pub role: Role,
    /// Its values.
    pub kind: Kind,
    /// Help of the option, or a description of the axis.
    pub about: &'static str,
}

impl Axis {
    /// The first sentence of its help, for `--list` and for errors.
    #[must_use]
    pub fn about(&self) -> &'static str {
        let text = self.about.trim();
        let end = [" [", ". "].into_iter().filter_map(|mark| text.find(mark)).min();
        end.map_or(text, |end| &text[..end])
    }
}

/// Whole numbers from 1.
pub const fn count(max: u64) -> Kind {
    Kind::Count { min: 1, max }
}

/// A setting of a testbed.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name, option, role, help, and the values if a study can vary it.
    pub axis: Axis,
    /// A study can vary it.
    pub(crate) in_studies: bool,
    /// A peer has it, too.
    pub peer: bool,
}

/// A value, or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrAuto<T> {
    /// The properties of the drives decide.
    #[default]
    Auto,
    /// This.
    Is(T),
}

impl<T> OrAuto<T> {
    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            OrAuto::Auto => None,
            OrAuto::Is(value) => Some(value),
        }
    }

    /// Reads `auto`, or a value by `parse`.
    ///
    /// # Errors
    /// `parse` refuses the text.
    pub fn parse<E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<OrAuto<T>, E> {
        if text == "auto" { Ok(OrAuto::Auto) } else { parse(text).map(OrAuto::Is) }
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for OrAuto<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        OrAuto::parse(text, |text| text.parse().map_err(|e: T::Err| format!("{e}, or auto")))
    }
}

impl<T: fmt::Display> fmt::Display for OrAuto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrAuto::Auto => f.write_str("auto"),
            OrAuto::Is(value) => value.fmt(f),
        }
    }
}

carmine_types::as_text!(OrAuto<T>);

/// An option's name as clap has it.
pub(crate) fn long(option: &'static str) -> &'static str {
    option.trim_matches(['-', '='])
}

/// Declares settings: `$spec` with a value for each (an option where the default depends on other settings), `$wish` with what
/// was asked for, and the table of them. `#[set("heading of the help" "--option" "VALUE" Role peer; kind)]`: `peer` if a peer
/// has it, too, and the kind of the axis if a study can vary it.
macro_rules! settings {
    (@type $type:ty) => { Option<$type> };
    (@type $type:ty, $default:expr) => { $type };
    (@value) => { None };
    (@value $default:expr) => { $default };
    (
        $(#[$attr:meta])*
        struct $spec:ident, wish $wish:ident, table $table:ident {
            $(
                $(#[doc = $help:literal])+
                #[set($heading:literal $option:literal $value:literal $role:ident $($peer:ident)? $(; $kind:expr)?)]
                $(#[arg($($arg:tt)*)])?
                $(#[serde($($serde:tt)*)])?
                $field:ident: $type:ty $(= $default:expr)?,
            )+
            $(group $group:ident: $group_spec:ty, $group_wish:ty,)?
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $spec {
            $($(#[doc = $help])+ $(#[serde($($serde)*)])? pub $field: settings!(@type $type $(, $default)?),)+
            $(
                /// Settings of its own part.
                pub $group: $group_spec,
            )?
        }

        /// The same as asked for; `None` is "not given".
        #[derive(clap::Args, Clone, Debug, Default, PartialEq)]
        pub struct $wish {
            $(
                $(#[doc = $help])+
                #[arg(
                    id = $crate::settings::long($option), long = $crate::settings::long($option), value_name = $value,
                    help_heading = $heading
                )]
                $(#[arg($($arg)*)])?
                pub $field: Option<$type>,
            )+
            $(#[allow(missing_docs)] #[command(flatten)] pub $group: $group_wish,)?
        }

        impl Default for $spec {
            fn default() -> Self {
                Self { $($field: settings!(@value $($default)?),)+ $($group: <$group_spec>::default(),)? }
            }
        }

        impl $spec {
            /// Takes over what is asked for.
            pub fn apply(&mut self, wish: &$wish) {
                $(
                    if let Some(value) = &wish.$field {
                        self.$field = value.clone().into();
                    }
                )+
                $(self.$group.apply(&wish.$group);)?
            }
        }

        impl $wish {
            /// This, and where it asks for nothing, what `base` asks for.
            #[must_use]
            pub fn or(self, base: Self) -> Self {
                Self { $($field: self.$field.or(base.$field),)+ $($group: self.$group.or(base.$group),)? }
            }

            /// The settings that are asked for.
            pub fn given(&self) -> Vec<&'static $crate::settings::Setting> {
                let asked = [$(self.$field.is_some()),+];
                let own = $table.iter().zip(asked).filter(|(_, asked)| *asked).map(|(setting, _)| setting);
                own$(.chain(self.$group.given()))?.collect()
            }
        }

        pub(crate) const $table: &[$crate::settings::Setting] = &[$({
            let kinds: &[$crate::settings::Kind] = &[$($kind)?];
            let (in_studies, kind) = match kinds {
                [kind] => (true, *kind),
                _ => (false, $crate::settings::Kind::Text),
            };
            let peer = !stringify!($($peer)?).is_empty();
            let (name, option, about) = (stringify!($field), $option, concat!($($help),+));
            let axis = $crate::settings::Axis { name, option, role: $crate::settings::Role::$role, kind, about };
            $crate::settings::Setting { axis, in_studies, peer }
        }),+];
    };
}

pub(crate) use settings;
