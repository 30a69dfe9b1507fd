//! Making all copies of a PG equal at the start of an interval.

use carmine_types::{Epoch, Eversion, ObjectId, OsdId, UTime};

use super::Head;
use super::entry::{ENTRY_BYTES_MIN, RepEntry, decode_object, object};
use crate::header::Front;
use crate::{Decoder, Encoder, Result};

/// Primary to replica: the interval `head.interval` begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgQuery {
    pub head: Head,
    /// The primary's last entry; a replica with the same one leaves out its log.
    pub last_update: Eversion,
    /// The acting set, primary first.
    pub acting: Vec<OsdId>,
}

impl Front for PgQuery {
    const KIND: u16 = 0x8003;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.eversion(self.last_update);
        e.vec(&self.acting, |e, osd| e.u32(osd.0));
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgQuery> {
        let (head, last_update) = (Head::decode(d)?, d.eversion()?);
        Ok(PgQuery { head, last_update, acting: d.vec(4, |d| Ok(OsdId(d.u32()?)))? })
    }
}

/// Replica to primary: what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgNotify {
    pub head: Head,
    /// 0, or an errno: then nothing else is meant.
    pub result: i32,
    pub last_update: Eversion,
    /// Version before the oldest log entry.
    pub log_tail: Eversion,
    /// Epoch of the last interval in which this copy was complete; 0: never, or a repair of it was interrupted.
    pub last_epoch_started: Epoch,
    /// A copy to this OSD, or a repair of its copy, has begun and has not ended.
    pub incomplete: bool,
    /// Ascending; empty if `last_update` is the primary's.
    pub log: Vec<RepEntry>,
}

impl Front for PgNotify {
    const KIND: u16 = 0x8004;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.i32(self.result);
        e.eversion(self.last_update);
        e.eversion(self.log_tail);
        e.u32(self.last_epoch_started.0);
        e.bool(self.incomplete);
        e.vec(&self.log, |e, entry| entry.encode(e));
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgNotify> {
        let (head, result) = (Head::decode(d)?, d.i32()?);
        let (last_update, log_tail) = (d.eversion()?, d.eversion()?);
        let (last_epoch_started, incomplete) = (Epoch(d.u32()?), d.bool()?);
        let log = d.vec(ENTRY_BYTES_MIN, |d| RepEntry::decode(d, head.pg.pool))?;
        Ok(PgNotify { head, result, last_update, log_tail, last_epoch_started, incomplete, log })
    }
}

/// Primary to replica: objects will be pushed. From now on, and until [`PgActivate`], the copy counts as not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgRepair {
    pub head: Head,
    /// Remove all objects and the log first: every object will be pushed.
    pub reset: bool,
    /// Refuse with ENOSPC, before anything is changed, unless there is room for so many bytes; 0: try in any case.
    pub needs_bytes: u64,
}

impl Front for PgRepair {
    const KIND: u16 = 0x8005;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.bool(self.reset);
        e.u64(self.needs_bytes);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgRepair> {
        Ok(PgRepair { head: Head::decode(d)?, reset: d.bool()?, needs_bytes: d.u64()? })
    }
}

/// Primary to replica: the bytes of the data segment belong at `off` of this object. The first piece (`off` 0) replaces
/// whatever was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushObject {
    pub head: Head,
    pub oid: ObjectId,
    /// False: remove the object; the fields below are then zero.
    pub exists: bool,
    /// Size of the whole object in bytes.
    pub size: u64,
    pub off: u64,
    /// So many bytes after the data of this piece can be read from no copy: the receiver notes them as lost.
    pub lost_bytes: u64,
    pub version: Eversion,
    pub user_version: u64,
    pub mtime: UTime,
}

impl Front for PushObject {
    const KIND: u16 = 0x8006;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.bool(self.exists);
        e.u64(self.size);
        e.u64(self.off);
        e.u64(self.lost_bytes);
        e.eversion(self.version);
        e.u64(self.user_version);
        e.utime(self.mtime);
        object(e, &self.oid);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PushObject> {
        let (head, exists) = (Head::decode(d)?, d.bool()?);
        let (size, off, lost_bytes) = (d.u64()?, d.u64()?, d.u64()?);
        let (version, user_version, mtime) = (d.eversion()?, d.u64()?, d.utime()?);
        let oid = decode_object(d, head.pg.pool)?;
        Ok(PushObject { head, oid, exists, size, off, lost_bytes, version, user_version, mtime })
    }
}

/// Primary to replica: your copy now equals mine. Entries after `keep_to` give way to `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgActivate {
    pub head: Head,
    /// Last entry that both logs have in common; zero: replace the whole log.
    pub keep_to: Eversion,
    pub log_tail: Eversion,
    pub last_update: Eversion,
    pub last_epoch_started: Epoch,
    /// The acting set, primary first.
    pub acting: Vec<OsdId>,
    /// Ascending, all after `keep_to`.
    pub log: Vec<RepEntry>,
}

impl Front for PgActivate {
    const KIND: u16 = 0x8007;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.eversion(self.keep_to);
        e.eversion(self.log_tail);
        e.eversion(self.last_update);
        e.u32(self.last_epoch_started.0);
        e.vec(&self.acting, |e, osd| e.u32(osd.0));
        e.vec(&self.log, |e, entry| entry.encode(e));
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgActivate> {
        let head = Head::decode(d)?;
        let (keep_to, log_tail, last_update) = (d.eversion()?, d.eversion()?, d.eversion()?);
        let last_epoch_started = Epoch(d.u32()?);
        let acting = d.vec(4, |d| Ok(OsdId(d.u32()?)))?;
        let log = d.vec(ENTRY_BYTES_MIN, |d| RepEntry::decode(d, head.pg.pool))?;
        Ok(PgActivate { head, keep_to, log_tail, last_update, last_epoch_started, acting, log })
    }
}

/// Replica to primary: the request with this transaction id is done and durable, or failed with an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgAck {
    pub head: Head,
    pub result: i32,
}

impl Front for PgAck {
    const KIND: u16 = 0x8008;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.head.encode(e);
        e.i32(self.result);
    }

    fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<PgAck> {
        Ok(PgAck { head: Head::decode(d)?, result: d.i32()? })
    }
}
