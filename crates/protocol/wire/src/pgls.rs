//! Listing of a PG's objects: the cursor, and the output of PGNLS.

use carmine_types::ObjectId;

use carmine_codec::basic::size;
use carmine_codec::{Coded, Decoder, Encoder, Result, coded};

/// The one namespace value that asks for all namespaces.
pub const ALL_NAMESPACES: &[u8] = b"\x01";

/// Result of a PGNLS operation when the PG has no more objects.
pub const END_OF_PG: i32 = 1;

/// hobject_t: an object, or one of the ends of all objects. Ordered as Ceph's "bitwise" order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HObject {
    // The derived order depends on the order of these two fields.
    /// Behind all objects.
    pub max: bool,
    pub object: ObjectId,
}

impl HObject {
    /// Before all objects of all pools.
    pub fn min() -> HObject {
        let object = ObjectId::cursor(i64::MIN, 0);
        HObject { max: false, object }
    }

    /// Behind all objects of all pools: a listing that returns it is complete.
    pub fn max() -> HObject {
        HObject { max: true, ..HObject::min() }
    }

    pub fn is_min(&self) -> bool {
        *self == HObject::min()
    }
}

impl From<ObjectId> for HObject {
    fn from(object: ObjectId) -> HObject {
        HObject { max: false, object }
    }
}

impl Coded for HObject {
    const BYTES_MIN: usize = size::ENVELOPE;

    fn get(d: &mut Decoder<'_>) -> Result<HObject> {
        let envelope = d.envelope("hobject", 4)?;
        envelope.at_least(4)?;
        let mut d = envelope.body;
        let (key, name) = (d.blob()?, d.blob()?);
        let (snap, hash) = (d.u64()?, d.u32()?);
        let max = d.bool()?;
        let (nspace, pool) = (d.blob()?, d.i64()?);
        let (nspace, key, name) = (nspace.into(), key.into(), name.into());
        Ok(HObject { max, object: ObjectId { nspace, key, name, snap, ..ObjectId::cursor(pool, hash) } })
    }

    fn put(&self, e: &mut Encoder<'_>) {
        let HObject { max, object } = self;
        e.envelope(4, 3, |e| {
            e.blob(&object.key);
            e.blob(&object.name);
            e.u64(object.snap);
            e.u32(object.hash);
            e.bool(*max);
            e.blob(&object.nspace);
            e.i64(object.pool);
        });
    }
}

/// Input of PGNLS: where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgNlsArg {
    pub cursor: HObject,
}

impl PgNlsArg {
    pub fn decode(payload: &[u8]) -> Result<PgNlsArg> {
        Ok(PgNlsArg { cursor: Decoder::all(payload, "pgnls cursor", |d| d.get())? })
    }

    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(&self.cursor))
    }
}

coded! {
    /// One object in a listing.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListedObject {
        pub nspace: Box<[u8]>,
        pub name: Box<[u8]>,
        /// Locator key.
        pub locator: Box<[u8]>,
    }
}

impl From<&ObjectId> for ListedObject {
    fn from(object: &ObjectId) -> ListedObject {
        let ObjectId { nspace, name, key, .. } = object.clone();
        ListedObject { nspace, name, locator: key }
    }
}

coded! {
    /// Output of PGNLS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgNlsReply: versioned "pgnls reply", 1, compat 1, oldest 0 {
        /// Cursor of the next request: the first object not listed, or the start of the next PG.
        pub next: HObject,
        pub entries: Vec<ListedObject>,
    }
}

impl PgNlsReply {
    pub fn decode(output: &[u8]) -> Result<PgNlsReply> {
        Decoder::all(output, "pgnls reply", |d| d.get())
    }

    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(self))
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::SNAP_HEAD;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    /// Bytes that a Ceph 16.2.15 OSD sent: one object, and the end of the listing.
    #[test]
    fn a_real_reply() {
        let bytes = hex("0101 3b000000 0403 21000000 00000000 00000000 0000000000000000 00000000 01 00000000
            0000000000000080 01000000 00000000 04000000 6f626a31 00000000");
        let reply = PgNlsReply::decode(&bytes).unwrap();
        assert_eq!(reply.next, HObject::max());
        assert_eq!(reply.entries.len(), 1);
        assert_eq!(&reply.entries[0].name[..], b"obj1");
        assert_eq!(reply.encode(), bytes);
    }

    #[test]
    fn the_ends_are_the_ends() {
        let object = HObject::from(ObjectId::head(i64::MAX, b"", b"", b"x"));
        assert!(HObject::min() < object && object < HObject::max());
        assert!(HObject::min().is_min() && !object.is_min());
        assert_eq!(object.object.snap, SNAP_HEAD);
        assert_eq!(Encoder::collect(|e| e.put(&HObject::min())).len(), 39);
    }
}
