//! [`Transaction`]: changes that become visible, and durable, together; and their encoding.

use std::cell::OnceCell;
use std::sync::Arc;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Eversion, ObjectId, SpgId};
use smallvec::SmallVec;

use crate::change::STEP_BYTES_MIN;
use crate::info::pg_id;
use crate::split::is_descendant;
use crate::{
    LogEntry, OBJECT_BYTES_MAX, ObjectChange, PgInfo, Step, object, pg_bits, pg_contains, pg_first_object,
    pg_parent,
};

/// Changes of a PG that become visible, and durable, together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The PG; transactions of one PG become durable in the order of their submission.
    pub pg: SpgId,
    /// Number of low hash bits that the PG's objects share: [`pg_bits`](crate::pg_bits). Each OSD knows it from its map: it is
    /// not encoded.
    pub bits: u32,
    /// Changes of objects, in order. All objects lie in `pg`, which stores assert.
    pub changes: SmallVec<[ObjectChange; 1]>,
    /// Entries to append to the PG's log; their objects lie in `pg`, too.
    pub log: SmallVec<[LogEntry; 1]>,
    /// Drops log entries up to and including this version. This costs about as much as one more entry, so trim many entries at
    /// once (every 64th, say).
    pub log_trim_to: Option<Eversion>,
    /// Drops log entries after this version, before `log` is appended, because the authoritative log does not have them. Needs
    /// `info`, too: `last_update` falls, and `log_tail` is set from it.
    pub log_rewind_to: Option<Eversion>,
    /// New PG info. Log entries and trimming update `last_update` and `log_tail` by themselves: set this only when something else
    /// changes.
    pub info: Option<Box<PgInfo>>,
    /// Removes the PG's info and log, after its objects were removed.
    pub forget_pg: bool,
    /// Splits the PG: the infos of its new children ([`PgInfo::divide`]), which get their parts of the objects and of the log,
    /// entries of other parts as stubs. `info` must be the parent's, and `bits` its new ones. Objects are not touched, except by
    /// `changes`, which may be in a child here. The stored log of the parent stays as it is, without stubs.
    pub split: Vec<PgInfo>,
    /// Merges these PGs into this one. The store removes their infos and logs, and leaves their objects, which belong to this PG with
    /// the new `bits`, as they are. `changes` must contain [`merged_away`] of the merged PGs, `info` must be the new one, and
    /// `log_rewind_to` and `log` replace this PG's log. The shard that submits the transaction must own all of these PGs.
    pub merge: Vec<SpgId>,
}

/// An immutable transaction, with its encoding once that was requested.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Boxed, since it is long and often moved.
    txn: Box<Transaction>,
    encoded: OnceCell<Bytes>,
}

/// Bits of the flags that an encoding begins with: which optional fields follow.
const TRIM: u8 = 1;
const REWIND: u8 = 2;
const INFO: u8 = 4;
const FORGET: u8 = 8;
const SPLIT: u8 = 16;
const MERGE: u8 = 32;
const FLAGS: u8 = TRIM | REWIND | INFO | FORGET | SPLIT | MERGE;

/// Most steps decoded of one transaction: in memory they are larger than their encoding. An object has fewer xattrs.
pub const STEPS_MAX: usize = 1 << 18;

/// Where a change's object is named.
const NAMED_BY_ENTRY: u8 = 0;
const NAMED_HERE: u8 = 1;

impl Transaction {
    /// An empty transaction of this PG, whose objects share `bits` low bits of their hashes.
    #[must_use]
    pub fn new(pg: SpgId, bits: u32) -> Transaction {
        Transaction { pg, bits, ..Transaction::default() }
    }

    /// Version of the newest log entry; zero without one.
    #[must_use]
    pub fn version(&self) -> Eversion {
        self.log.last().map_or(Eversion::ZERO, |entry| entry.version)
    }

    /// All objects that the transaction names: those that it changes, those that it copies, those of its log entries.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        let changes = self.changes.iter().flat_map(ObjectChange::objects);
        changes.chain(self.log.iter().map(|entry| &*entry.oid))
    }

    /// Asserts that every named object lies in the PG, or, if it is split, in one of its parts. Another PG's object may be owned by
    /// another shard, and two shards with different knowledge of one object's blocks would both free them.
    ///
    /// # Panics
    /// If one does not, or if a split or a merge is none of this PG.
    pub fn assert_within_pg(&self) {
        self.assert_split();
        self.assert_merge();
        let assert_within = |oid: &ObjectId| {
            let (pg, bits) = (self.pg, self.bits);
            assert!(pg_contains(pg, bits, oid), "object {oid} is not in PG {pg} of {bits} bits");
        };
        let is_in_child = |oid: &ObjectId| self.split.iter().any(|child| child.contains(oid));
        let mut last = None;
        for change in &self.changes {
            if !is_in_child(&change.oid) {
                assert_within(&change.oid);
            }
            for step in &change.steps {
                step.source().into_iter().for_each(assert_within);
            }
            last = Some(&change.oid);
        }
        for entry in &self.log {
            // The entry of a plain write shares the name of its change.
            if last.is_none_or(|oid| !Arc::ptr_eq(oid, &entry.oid)) {
                assert_within(&entry.oid);
            }
        }
    }

    /// Asserts that the children are parts of this PG, and that nothing else happens to its log.
    fn assert_split(&self) {
        if self.split.is_empty() {
            return;
        }
        let PgInfo { pg, pg_num, .. } = self.info.as_deref().cloned().unwrap_or_default();
        let keeps_log = self.log.is_empty() && self.log_trim_to.is_none() && self.log_rewind_to.is_none();
        assert!(
            pg == self.pg && self.bits == pg_bits(pg.pgid.ps, pg_num) && keeps_log && !self.forget_pg,
            "a split of PG {} changes only its info: {:?}",
            self.pg,
            self.info
        );
        for (n, child) in self.split.iter().enumerate() {
            let is_new = !self.split.iter().take(n).any(|other| other.pg == child.pg);
            assert!(
                is_new && child.pg_num == pg_num && is_descendant(child.pg, pg) && child.pg.pgid.ps < pg_num,
                "PG {} of {} is no child of PG {pg} of {pg_num}",
                child.pg,
                child.pg_num
            );
        }
    }

    /// Asserts that this PG gets the objects of all sources, and that the transaction removes everything else that the sources have.
    fn assert_merge(&self) {
        if self.merge.is_empty() {
            return;
        }
        let PgInfo { pg, pg_num, .. } = self.info.as_deref().cloned().unwrap_or_default();
        assert!(
            pg == self.pg
                && pg_num > 0
                && self.bits == pg_bits(pg.pgid.ps, pg_num)
                && self.split.is_empty()
                && !self.forget_pg,
            "a merge into PG {} makes it one of fewer PGs: {:?}",
            self.pg,
            self.info
        );
        for (n, source) in self.merge.iter().enumerate() {
            let is_new = !self.merge.iter().take(n).any(|other| other == source);
            let is_absorbed = source.pgid.ps >= pg_num && pg_parent(source.pgid.ps, pg_num) == pg.pgid.ps;
            assert!(
                is_new && is_absorbed && is_descendant(*source, pg),
                "PG {source} does not become a part of PG {pg} of {pg_num}"
            );
            let first = pg_first_object(*source);
            let last = self.changes.iter().rfind(|change| *change.oid == first);
            let is_removed = last.is_some_and(|change| matches!(change.steps.last(), Some(Step::Remove)));
            assert!(is_removed, "the first object of PG {source} outlives its merge");
        }
    }

    /// Bytes of data that it writes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.changes.iter().map(ObjectChange::data_bytes).sum()
    }

    /// Most bytes of its changes and their data in a message; see [`Step::bytes_max`]. Log entries and the PG's info are not
    /// included.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.changes.iter().map(ObjectChange::bytes_max).sum()
    }

    /// The data that it writes, in the order of its steps; it is not part of the encoding.
    #[must_use]
    pub fn data(&self) -> Payload {
        let mut all = Payload::new();
        for step in self.changes.iter().flat_map(|change| &change.steps) {
            if let Step::Write { data, .. } = step {
                all.append(data);
            }
        }
        all
    }

    /// Appends the encoding: everything but the data and `bits`.
    pub fn encode(&self, e: &mut Encoder<'_>) {
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        pg_id::put(&self.pg, e);
        e.u8(flag(self.log_trim_to.is_some(), TRIM)
            | flag(self.log_rewind_to.is_some(), REWIND)
            | flag(self.info.is_some(), INFO)
            | flag(self.forget_pg, FORGET)
            | flag(!self.split.is_empty(), SPLIT)
            | flag(!self.merge.is_empty(), MERGE));
        self.log_trim_to.iter().chain(&self.log_rewind_to).for_each(|version| e.eversion(*version));
        if let Some(info) = &self.info {
            e.put(&**info);
        }
        if !self.split.is_empty() {
            e.put(&self.split);
        }
        if !self.merge.is_empty() {
            e.vec(&self.merge, |e, source| pg_id::put(source, e));
        }
        e.vec(&self.log, |e, entry| e.put(entry));
        e.count(self.changes.len());
        for change in &self.changes {
            if self.log.last().is_some_and(|entry| Arc::ptr_eq(&entry.oid, &change.oid)) {
                e.u8(NAMED_BY_ENTRY);
            } else {
                e.u8(NAMED_HERE);
                object::put(&change.oid, e);
            }
            e.vec(&change.steps, |e, step| step.encode(e));
        }
    }

    /// Reads what [`Transaction::encode`] wrote. `data` is all that its steps write. `bits` is 0: the caller must set it from the
    /// map, and check that the objects lie in the PG.
    ///
    /// # Errors
    /// If the bytes are no transaction, or the lengths of its writes do not add up to the data.
    pub fn decode(d: &mut Decoder<'_>, data: &Payload) -> Result<Transaction> {
        let mut reader = DataReader { data: Some(data), zeros: Bytes::new(), at: 0 };
        let txn = Transaction::read(d, &mut reader)?;
        match data.len() - reader.at {
            0 => Ok(txn),
            left => Err(DecodeError::Trailing { what: "data of a transaction", left }),
        }
    }

    /// Reads what [`Transaction::encode`] wrote without the data: writes have their lengths, and zeros in place of their bytes.
    ///
    /// # Errors
    /// As [`Transaction::decode`].
    pub fn decode_without_data(d: &mut Decoder<'_>) -> Result<Transaction> {
        let zeros = Bytes::from(vec![0; 64 << 10]);
        Transaction::read(d, &mut DataReader { data: None, zeros, at: 0 })
    }

    fn read(d: &mut Decoder<'_>, data: &mut DataReader<'_>) -> Result<Transaction> {
        let mut txn = Transaction::new(pg_id::get(d)?, 0);
        let flags = d.u8()?;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::BadValue { what: "flags of a transaction", value: flags.into() });
        }
        let mut version = |flag| if flags & flag != 0 { d.eversion().map(Some) } else { Ok(None) };
        (txn.log_trim_to, txn.log_rewind_to) = (version(TRIM)?, version(REWIND)?);
        if flags & INFO != 0 {
            txn.info = Some(Box::new(d.get::<PgInfo>()?));
        }
        txn.forget_pg = flags & FORGET != 0;
        if flags & SPLIT != 0 {
            txn.split = d.get()?;
        }
        if flags & MERGE != 0 {
            txn.merge = d.vec(pg_id::BYTES_MIN, pg_id::get)?;
        }
        for _ in 0..d.count(<LogEntry as Coded>::BYTES_MIN)? {
            txn.log.push(d.get()?);
        }
        let too_many =
            DecodeError::BadValue { what: "number of steps of a transaction", value: STEPS_MAX as u64 };
        let mut steps_left = STEPS_MAX;
        for _ in 0..d.count(1 + 4)? {
            let oid = match d.u8()? {
                NAMED_BY_ENTRY => txn.log.last().map(|entry| Arc::clone(&entry.oid)),
                NAMED_HERE => Some(object::get(d)?),
                _ => None,
            };
            let Some(oid) = oid else {
                return Err(DecodeError::BadValue { what: "name of a change's object", value: 0 });
            };
            let mut steps = SmallVec::new();
            let count = d.count(STEP_BYTES_MIN)?;
            steps_left = steps_left.checked_sub(count).ok_or(too_many)?;
            for _ in 0..count {
                steps.push(Step::decode(d, data)?);
            }
            txn.changes.push(ObjectChange { oid, steps });
        }
        Ok(txn)
    }
}

/// What is removed together with PGs that are merged into another one: of each the first object, which has its index of snapshots.
#[must_use]
pub fn merged_away(sources: &[SpgId]) -> SmallVec<[ObjectChange; 1]> {
    sources.iter().map(|source| ObjectChange::new(pg_first_object(*source), [Step::Remove])).collect()
}

impl From<Box<Transaction>> for Sealed {
    fn from(txn: Box<Transaction>) -> Sealed {
        Sealed { txn, encoded: OnceCell::new() }
    }
}

impl From<Transaction> for Sealed {
    fn from(txn: Transaction) -> Sealed {
        Sealed::from(Box::new(txn))
    }
}

impl std::ops::Deref for Sealed {
    type Target = Transaction;
    fn deref(&self) -> &Transaction {
        &self.txn
    }
}

impl Sealed {
    /// A transaction with the bytes that it was decoded from.
    #[must_use]
    pub fn decoded(txn: Transaction, encoded: Bytes) -> Sealed {
        Sealed { txn: Box::new(txn), encoded: OnceCell::from(encoded) }
    }

    /// The encoding, made at the first call.
    #[must_use]
    pub fn encoded(&self) -> &Bytes {
        self.encoded.get_or_init(|| {
            let mut out = Vec::with_capacity(256);
            self.txn.encode(&mut Encoder::new(&mut out));
            Bytes::from(out)
        })
    }

    /// Sets how many low hash bits the PG's objects share, which is not encoded.
    pub fn set_bits(&mut self, bits: u32) {
        self.txn.bits = bits;
    }

    /// Returns the transaction.
    #[must_use]
    pub fn into_txn(self) -> Transaction {
        *self.txn
    }

    /// Returns the transaction in its box, without moving it.
    #[must_use]
    pub fn into_boxed(self) -> Box<Transaction> {
        self.txn
    }
}

/// Reads the data of an encoded transaction, piece by piece.
pub(crate) struct DataReader<'a> {
    /// `None`: the data is not available.
    data: Option<&'a Payload>,
    /// Used in its place then.
    zeros: Bytes,
    at: usize,
}

impl DataReader<'_> {
    /// The next `len` bytes, which are written at `off`.
    pub(crate) fn next_bytes(&mut self, off: u64, len: u64) -> Result<Payload> {
        let bad = DecodeError::BadValue { what: "range of a write", value: len };
        off.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX).ok_or(bad)?;
        let len = len as usize;
        let end = self.at.checked_add(len).ok_or(bad)?;
        let taken = match self.data {
            Some(data) if end > data.len() => return Err(bad),
            // A few input bytes must not expand to any number of zeros.
            None if end as u64 > OBJECT_BYTES_MAX => return Err(bad),
            Some(data) => data.slice(self.at, len),
            None => Payload::repeat(&self.zeros, len),
        };
        self.at = end;
        Ok(taken)
    }
}
