//! Values that have one layout, and the macros that say a layout once.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Decoder, Encoder, Result};

/// A value with one layout: encode and decode both follow from it. [`coded!`](crate::coded) implements it for a
/// structure whose fields follow one another.
pub trait Coded: Sized {
    /// Fewest bytes that a value takes: a declared count of values that cannot fit in the bytes left is
    /// refused before the first one is read.
    const BYTES_MIN: usize;

    /// Appends the value.
    fn put(&self, e: &mut Encoder<'_>);

    /// Reads a value.
    fn get(d: &mut Decoder<'_>) -> Result<Self>;

    /// Appends the items of a list, after its count.
    fn put_items(items: &[Self], e: &mut Encoder<'_>) {
        items.iter().for_each(|item| item.put(e));
    }

    /// Reads `count` items of a list: as many as can lie in the bytes left, see [`Decoder::count`].
    fn get_items(count: usize, d: &mut Decoder<'_>) -> Result<Vec<Self>> {
        d.items(count, Self::get)
    }
}

impl Encoder<'_> {
    /// Appends a value.
    #[inline]
    pub fn put(&mut self, value: &impl Coded) {
        value.put(self);
    }
}

impl Decoder<'_> {
    /// Reads a value.
    #[inline]
    pub fn get<T: Coded>(&mut self) -> Result<T> {
        T::get(self)
    }
}

macro_rules! by_value {
    ($($name:ident: $type:ty,)*) => {$(
        impl Coded for $type {
            const BYTES_MIN: usize = size_of::<$type>();
            #[inline]
            fn put(&self, e: &mut Encoder<'_>) {
                e.$name(*self);
            }
            #[inline]
            fn get(d: &mut Decoder<'_>) -> Result<Self> {
                d.$name()
            }
        }
    )*};
}

by_value! {
    u16: u16, u32: u32, u64: u64, i8: i8, i16: i16, i32: i32, i64: i64, f32: f32, f64: f64, bool: bool,
}

impl Coded for u8 {
    const BYTES_MIN: usize = 1;

    #[inline]
    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(*self);
    }

    #[inline]
    fn get(d: &mut Decoder<'_>) -> Result<u8> {
        d.u8()
    }

    fn put_items(items: &[u8], e: &mut Encoder<'_>) {
        e.bytes(items);
    }

    fn get_items(count: usize, d: &mut Decoder<'_>) -> Result<Vec<u8>> {
        d.bytes(count).map(<[u8]>::to_vec)
    }
}

impl Coded for String {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.str(self);
    }

    fn get(d: &mut Decoder<'_>) -> Result<String> {
        d.string()
    }
}

/// u32 count and the items; a `Vec<u8>` is a blob.
impl<T: Coded> Coded for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.count(self.len());
        T::put_items(self, e);
    }

    fn get(d: &mut Decoder<'_>) -> Result<Vec<T>> {
        let count = d.count(T::BYTES_MIN)?;
        T::get_items(count, d)
    }
}

/// u32 count and the items.
impl<T: Coded> Coded for Box<[T]> {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.count(self.len());
        T::put_items(self, e);
    }

    fn get(d: &mut Decoder<'_>) -> Result<Box<[T]>> {
        Vec::get(d).map(Vec::into_boxed_slice)
    }
}

/// The items, without a count.
impl<T: Coded + Copy + Default, const N: usize> Coded for [T; N] {
    const BYTES_MIN: usize = T::BYTES_MIN * N;

    fn put(&self, e: &mut Encoder<'_>) {
        T::put_items(self, e);
    }

    fn get(d: &mut Decoder<'_>) -> Result<[T; N]> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = d.get()?;
        }
        Ok(items)
    }
}

/// A flag, and the value if it is set.
impl<T: Coded> Coded for Option<T> {
    const BYTES_MIN: usize = 1;

    fn put(&self, e: &mut Encoder<'_>) {
        e.bool(self.is_some());
        if let Some(value) = self {
            value.put(e);
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<Option<T>> {
        if d.bool()? { d.get().map(Some) } else { Ok(None) }
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn put(&self, e: &mut Encoder<'_>) {
        self.0.put(e);
        self.1.put(e);
    }

    fn get(d: &mut Decoder<'_>) -> Result<(A, B)> {
        Ok((d.get()?, d.get()?))
    }
}

/// u32 count and the pairs. Of two pairs with the same key, the later one is kept.
impl<K: Coded + Ord, V: Coded> Coded for BTreeMap<K, V> {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.count(self.len());
        for (key, value) in self {
            key.put(e);
            value.put(e);
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<BTreeMap<K, V>> {
        let mut map = BTreeMap::new();
        for _ in 0..d.count(K::BYTES_MIN + V::BYTES_MIN)? {
            let key = d.get()?;
            map.insert(key, d.get()?);
        }
        Ok(map)
    }
}

/// u32 count and the items.
impl<T: Coded + Ord> Coded for BTreeSet<T> {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.count(self.len());
        self.iter().for_each(|item| item.put(e));
    }

    fn get(d: &mut Decoder<'_>) -> Result<BTreeSet<T>> {
        let mut set = BTreeSet::new();
        for _ in 0..d.count(T::BYTES_MIN)? {
            set.insert(d.get()?);
        }
        Ok(set)
    }
}

/// The fields of a structure, without a head. [`fields!`](crate::fields) implements it.
pub trait Fields: Sized {
    /// No value takes fewer bytes: the sum over the fields that are in all versions.
    const FIELDS_BYTES_MIN: usize;

    /// Appends the fields that `version` has.
    fn put_fields(&self, e: &mut Encoder<'_>, version: u16);

    /// Reads the fields that `version` has; the others get their default.
    fn get_fields(d: &mut Decoder<'_>, version: u16) -> Result<Self>;
}

/// Defines a structure and implements [`Fields`] for it: its fields lie in the order in which they stand, each
/// in the layout of its type. A field may differ in three ways:
/// - `name: type = module` is written by `module::put(&value, e)` and read by `module::get(d)`, and takes at least
///   `module::BYTES_MIN` bytes (which [`layout!`](crate::layout) does not need);
/// - `name: type; since N` is there from version N on;
/// - `name: type [unused]` is followed by an unused field of that type, which is written as its default and not read.
#[macro_export]
macro_rules! fields {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                $field_vis:vis $field:ident: $type:ty $(= $module:ident)? $([$unused:ty])? $(; since $since:literal)?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $crate::Fields for $name {
            const FIELDS_BYTES_MIN: usize = 0 $(
                $(+ <$unused as $crate::Coded>::BYTES_MIN)?
                + $crate::fields!(@min $type $(, = $module)? $(, $since)?)
            )*;

            #[inline]
            fn put_fields(&self, _e: &mut $crate::Encoder<'_>, _version: u16) {
                $(
                    $crate::fields!(@put self.$field, _e, _version $(, = $module)? $(, $since)?);
                    $($crate::Coded::put(&<$unused>::default(), _e);)?
                )*
            }

            #[inline]
            fn get_fields(_d: &mut $crate::Decoder<'_>, _version: u16) -> $crate::Result<$name> {
                $(
                    let $field = $crate::fields!(@get Default::default(), _d, _version $(, = $module)? $(, $since)?);
                    $(<$unused as $crate::Coded>::get(_d)?;)?
                )*
                Ok($name { $($field),* })
            }
        }
    };
    (@min $type:ty) => { <$type as $crate::Coded>::BYTES_MIN };
    (@min $type:ty, = $module:ident) => { $module::BYTES_MIN };
    (@min $type:ty $(, = $module:ident)?, $since:literal) => { 0 };
    (@put $value:expr, $e:ident, $version:ident) => { $crate::Coded::put(&$value, $e) };
    (@put $value:expr, $e:ident, $version:ident, = $module:ident) => { $module::put(&$value, $e) };
    (@put $value:expr, $e:ident, $version:ident $(, = $module:ident)?, $since:literal) => {
        if $version >= $since { $crate::fields!(@put $value, $e, $version $(, = $module)?) }
    };
    (@read $place:expr, $d:ident, $version:ident $(, = $module:ident)?) => {
        $place = $crate::fields!(@get (), $d, $version $(, = $module)?)
    };
    (@read $place:expr, $d:ident, $version:ident $(, = $module:ident)?, $since:literal) => {
        if $version >= $since { $crate::fields!(@read $place, $d, $version $(, = $module)?) }
    };
    (@get $default:expr, $d:ident, $version:ident) => { $crate::Coded::get($d)? };
    (@get $default:expr, $d:ident, $version:ident, = $module:ident) => { $module::get($d)? };
    (@get $default:expr, $d:ident, $version:ident $(, = $module:ident)?, $since:literal) => {
        if $version >= $since { $crate::fields!(@get $default, $d, $version $(, = $module)?) } else { $default }
    };
}

/// Defines a structure as [`fields!`] does, and implements [`Coded`](crate::Coded) for it. With
/// `versioned "name", V, compat C, oldest O` after its name it has the head S(V,C), and versions below O are refused.
/// Newer fields than ours are skipped.
#[macro_export]
macro_rules! coded {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($fields:tt)* }
    ) => {
        $crate::fields! { $(#[$meta])* $vis struct $name { $($fields)* } }

        impl $crate::Coded for $name {
            const BYTES_MIN: usize = <$name as $crate::Fields>::FIELDS_BYTES_MIN;

            #[inline]
            fn put(&self, e: &mut $crate::Encoder<'_>) {
                $crate::Fields::put_fields(self, e, u16::MAX);
            }

            #[inline]
            fn get(d: &mut $crate::Decoder<'_>) -> $crate::Result<$name> {
                $crate::Fields::get_fields(d, u16::MAX)
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: versioned $what:literal, $version:literal, compat $compat:literal, oldest $oldest:literal {
            $($fields:tt)*
        }
    ) => {
        $crate::fields! { $(#[$meta])* $vis struct $name { $($fields)* } }

        impl $crate::Coded for $name {
            const BYTES_MIN: usize = $crate::basic::size::ENVELOPE + <$name as $crate::Fields>::FIELDS_BYTES_MIN;

            fn put(&self, e: &mut $crate::Encoder<'_>) {
                e.envelope($version, $compat, |e| $crate::Fields::put_fields(self, e, $version));
            }

            fn get(d: &mut $crate::Decoder<'_>) -> $crate::Result<$name> {
                let mut envelope = d.envelope($what, $version)?;
                envelope.at_least($oldest)?;
                $crate::Fields::get_fields(&mut envelope.body, envelope.version.into())
            }
        }
    };
}

/// Says the layout of part of a structure that is defined elsewhere, in the notation of [`fields!`] without the
/// types: `layout! { OsdMap: put_client, get_client { fsid, epoch, … } }` makes these two functions. Fields that the
/// version read does not have keep the value that they have.
#[macro_export]
macro_rules! layout {
    ($type:ty: $put:ident, $get:ident {
        $($field:ident $(= $module:ident)? $(; since $since:literal)?),* $(,)?
    }) => {
        impl $type {
            fn $put(&self, e: &mut $crate::Encoder<'_>, _version: u8) {
                $(
                    $crate::fields!(@put self.$field, e, _version $(, = $module)? $(, $since)?);
                )*
            }

            fn $get(&mut self, d: &mut $crate::Decoder<'_>, _version: u8) -> $crate::Result<()> {
                $(
                    $crate::fields!(@read self.$field, d, _version $(, = $module)? $(, $since)?);
                )*
                Ok(())
            }
        }
    };
}
