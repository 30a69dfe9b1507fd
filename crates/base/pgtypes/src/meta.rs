//! [`ObjectMeta`]: what a store knows of an object besides its bytes and its omap.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use carmine_codec::{Coded, Decoder, Encoder, Result, coded};
use carmine_reactor::Bytes;
use carmine_types::{Eversion, UTime};

coded! {
    /// Size, versions, time and xattrs of an object: its onode without the block map.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ObjectMeta {
        /// Bytes.
        pub size: u64,
        /// PG version of the last modification.
        pub version: Eversion,
        /// Version that clients see.
        pub user_version: u64,
        /// Time of the last modification, as the client or the OSD gave it.
        pub mtime: UTime,
        /// The object has, or had, omap keys or an omap header.
        pub has_omap: bool,
        /// Extended attributes.
        pub xattrs: Xattrs,
    }
}

type Map = BTreeMap<Box<[u8]>, Bytes>;

/// The extended attributes of an object, by name. A clone shares them until one of the two changes; an empty set takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xattrs(Option<Arc<Map>>);

impl Xattrs {
    /// Memory of an attribute besides its name and value, about, in bytes.
    const ENTRY_BYTES: usize = 96;

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.is_empty())
    }

    /// Memory of all of them, about, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| Self::ENTRY_BYTES + name.len() + value.len()).sum()
    }

    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.0.as_ref()?.get(name)
    }

    /// All names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        self.with_prefix(&[])
    }

    /// Names that begin with `prefix`, and values, in order.
    pub fn with_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let map = self.0.iter().flat_map(move |map| map.range::<[u8], _>(from));
        map.map(|(name, value)| (&**name, value)).take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &[u8], value: Bytes) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(name.into(), value);
    }

    /// Removes the attributes whose names begin with `prefix`.
    pub fn clear(&mut self, prefix: &[u8]) {
        let names: Vec<Box<[u8]>> = self.with_prefix(prefix).map(|(name, _)| name.into()).collect();
        names.iter().for_each(|name| self.remove(name));
    }

    /// Removes an attribute, if it is there.
    pub fn remove(&mut self, name: &[u8]) {
        if self.get(name).is_some()
            && let Some(map) = &mut self.0
        {
            let map = Arc::make_mut(map);
            map.remove(name);
            if map.is_empty() {
                self.0 = None;
            }
        }
    }
}

impl Coded for Xattrs {
    const BYTES_MIN: usize = 4;

    fn put(&self, e: &mut Encoder<'_>) {
        e.count(self.0.as_ref().map_or(0, |map| map.len()));
        for (name, value) in self.iter() {
            e.blob(name);
            e.blob(value);
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<Xattrs> {
        let pairs = d.map(8, |d| Ok(d.blob()?.into()), decode_bytes)?;
        Ok(Xattrs((!pairs.is_empty()).then(|| Arc::new(pairs.into_iter().collect()))))
    }
}

/// A counted byte string, copied.
pub(crate) fn decode_bytes(d: &mut Decoder<'_>) -> Result<Bytes> {
    Ok(Bytes::from(d.blob()?.to_vec()))
}
