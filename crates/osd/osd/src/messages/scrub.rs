//! The messages between the members of a PG for a scrub: what a copy has of a range of objects, one object of it, and
//! what came of it all.

use carmine_codec::{Decoder, Encoder, Result, coded};
use carmine_pgtypes::{ObjectMeta, OmapSize, Scrubbed, object};
use carmine_types::{Eversion, ObjectId, UTime};
use carmine_wire::header::Front;
use carmine_wire::pgls::HObject;
use carmine_wire::private::VERSION;

use super::Head;

coded! {
    /// How far a copy was looked at: at the beginning of an object, or within it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScanCursor {
        /// The object that comes next.
        pub oid: ObjectId = object,
        /// The last omap key that was looked at, and the checksum up to it; `None`: not even the header.
        pub key: Option<Vec<u8>>,
        pub omap: u32,
        /// The omap up to that key.
        pub omap_size: OmapSize,
        /// Offset in the data, and the checksum up to it; `None`: the omap comes first.
        pub off: Option<u64>,
        pub data: u32,
    }
}

coded! {
    /// An object as a copy has it. Checksums are CRC32C.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Scanned {
        pub oid: ObjectId = object,
        pub size: u64,
        pub version: Eversion,
        pub user_version: u64,
        pub mtime: UTime,
        /// Checksum of the names of its xattrs.
        pub attr_names: u32,
        /// Checksum of names and values.
        pub attrs: u32,
        /// Checksum of omap header, keys and values.
        pub omap: u32,
        pub omap_size: OmapSize,
        /// Checksum of the data; 0 unless the scrub is deep.
        pub data: u32,
        /// Its metadata cannot be read: nothing else is known.
        pub stat_error: bool,
        /// Its data or its omap cannot be read: their checksums mean nothing.
        pub read_error: bool,
    }
}

message! { 0x800c,
    /// Primary to replica: say what your copy has of these objects, as far as one answer goes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgScrub {
        pub head: Head,
        /// The copy must have all changes up to this one.
        pub version: Eversion,
        /// Read the data, too.
        pub deep: bool,
        pub from: ScanCursor,
        /// The first object that is not wanted.
        pub to: HObject,
    }
}

message! { 0x800d,
    /// Replica to primary: objects in order.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgScrubMap {
        pub head: Head,
        /// 0, or an errno: then nothing else is meant.
        pub result: i32,
        pub objects: Vec<Scanned>,
        /// Where the next question begins; `None`: that was all.
        pub next: Option<ScanCursor>,
    }
}

message! { 0x800e,
    /// Primary to replica: give me the metadata of your copy of this object, with its omap header or a page of its omap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgFetch {
        pub head: Head,
        pub oid: ObjectId = object,
        /// The smallest omap key that is wanted; `None`: the header.
        pub from: Option<Vec<u8>>,
    }
}

message! { 0x800f,
    /// Replica to primary: metadata, and omap header or a page of the omap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgObject {
        pub head: Head,
        /// 0, or an errno: then nothing else is meant.
        pub result: i32,
        pub meta: ObjectMeta,
        pub header: Vec<u8>,
        /// Keys and values, ascending.
        pub entries: Vec<(Vec<u8>, Vec<u8>)>,
        /// The omap has more.
        pub more: bool,
    }
}

message! { 0x8048,
    /// Primary to replica: a scrub has ended: write this down in place of what you know of scrubs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgScrubbed {
        pub head: Head,
        pub scrubs: Scrubbed,
    }
}

impl ScanCursor {
    /// The beginning of an object.
    #[must_use]
    pub fn at(oid: ObjectId) -> ScanCursor {
        use carmine_types::crc32c::SEED;
        ScanCursor { oid, key: None, omap: SEED, omap_size: OmapSize::default(), off: None, data: SEED }
    }
}
