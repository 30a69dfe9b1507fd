//! The messages of a scrub: a copy's objects in a range, one object of a copy, and the result of the scrub.

use carmine_codec::{Decoder, Encoder, Result, coded};
use carmine_pgtypes::{ObjectMeta, OmapSize, Scrubbed, cursor, object};
use carmine_types::{Eversion, ObjectId, UTime};
use carmine_wire::header::Front;
use carmine_wire::private::VERSION;

use super::Head;

coded! {
    /// How far a scan has come: to the beginning of an object, or into it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ScanCursor {
        /// The next object.
        pub oid: ObjectId = object,
        /// The last omap key scanned, and the checksum up to it; `None`: not even the header.
        pub key: Option<Vec<u8>>,
        pub omap: u32,
        /// The omap up to that key.
        pub omap_size: OmapSize,
        /// Offset in the data, and the checksum up to it; `None`: the omap is not finished.
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
        /// Its metadata cannot be read: all other fields are meaningless.
        pub stat_error: bool,
        /// Its data or its omap cannot be read: their checksums are meaningless.
        pub read_error: bool,
    }
}

message! { 0x800c,
    /// Primary to replica: scan these objects of your copy, as many as fit in one answer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgScrub {
        pub head: Head,
        /// The copy must have applied all changes up to this one.
        pub version: Eversion,
        /// Read the data, too.
        pub deep: bool,
        pub from: ScanCursor,
        /// The end of the range, exclusive; `None`: that of the PG.
        pub to: Option<ObjectId> = cursor,
    }
}

message! { 0x800d,
    /// Replica to primary: objects in order.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgScrubMap {
        pub head: Head,
        /// 0, or an errno: then all other fields are meaningless.
        pub result: i32,
        pub objects: Vec<Scanned>,
        /// Where to continue; `None`: the scan is complete.
        pub next: Option<ScanCursor>,
    }
}

message! { 0x800e,
    /// Primary to replica: give me the metadata of your copy of this object, with its omap header or a page of its omap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgFetch {
        pub head: Head,
        pub oid: ObjectId = object,
        /// The first omap key to return; `None`: the header.
        pub from: Option<Vec<u8>>,
    }
}

message! { 0x800f,
    /// Replica to primary: metadata, and omap header or a page of the omap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgObject {
        pub head: Head,
        /// 0, or an errno: then all other fields are meaningless.
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
    /// Primary to replica: a scrub has ended; store this as the record of the last scrubs.
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
