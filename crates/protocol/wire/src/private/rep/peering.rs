//! Making all copies of a PG equal at the start of an interval.

use carmine_types::{Epoch, Eversion, ObjectId, OsdId, UTime};

use super::entry::{RepEntry, object};
use super::{Head, VERSION};
use crate::header::message;

message! {
    /// Primary to replica: the interval `head.interval` begins.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgQuery: PG_QUERY, VERSION, compat VERSION {
        pub head: Head,
        /// The primary's last entry; a replica with the same one leaves out its log.
        pub last_update: Eversion,
        /// The acting set, primary first.
        pub acting: Vec<OsdId>,
    }
}

message! {
    /// Replica to primary: what it has.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgNotify: PG_NOTIFY, VERSION, compat VERSION, then with_pool {
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
}

message! {
    /// Primary to replica: objects will be pushed. From now on, and until [`PgActivate`], the copy counts as not whole.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgRepair: PG_REPAIR, VERSION, compat VERSION {
        pub head: Head,
        /// Remove all objects and the log first: every object will be pushed.
        pub reset: bool,
        /// Refuse with ENOSPC, before anything is changed, unless there is room for so many bytes; 0: try in any case.
        pub needs_bytes: u64,
    }
}

message! {
    /// Primary to replica: the bytes of the data segment belong at `off` of this object. The first piece (`off` 0) replaces
    /// whatever was there.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PushObject: PUSH_OBJECT, VERSION, compat VERSION, then with_pool {
        pub head: Head,
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
        pub oid: ObjectId = object,
    }
}

message! {
    /// Primary to replica: your copy now equals mine. Entries after `keep_to` give way to `log`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgActivate: PG_ACTIVATE, VERSION, compat VERSION, then with_pool {
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
}

message! {
    /// Replica to primary: the request with this transaction id is done and durable, or failed with an errno.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgAck: PG_ACK, VERSION, compat VERSION {
        pub head: Head,
        pub result: i32,
    }
}

impl PgNotify {
    fn with_pool(mut self) -> PgNotify {
        self.log.iter_mut().for_each(|entry| entry.oid.pool = self.head.pg.pool);
        self
    }
}

impl PushObject {
    fn with_pool(mut self) -> PushObject {
        self.oid.pool = self.head.pg.pool;
        self
    }
}

impl PgActivate {
    fn with_pool(mut self) -> PgActivate {
        self.log.iter_mut().for_each(|entry| entry.oid.pool = self.head.pg.pool);
        self
    }
}
