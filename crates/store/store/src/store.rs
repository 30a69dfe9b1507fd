//! [`Store`]: one of the stores, dispatched statically.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use carmine_pgtypes::{ObjectChange, ObjectMeta, PgInfo, PgState, Sealed, Transaction, pg_contains};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Payload, Shard};
use carmine_types::{IoPath, ObjectId, SpgId, StoreKind};

use crate::blue::{self, Blue, BlueShared};
use crate::mem::{Mem, MemPart, MemShared};
use crate::{KvCpu, OmapPage, OmapRange, StatFs, StoreError, StoreStats};

/// The part of a store that all shards of a process share. Opened once; then [`Store::open_shard`] on every shard.
#[derive(Clone)]
pub enum StoreShared {
    /// `cyan` or `null`.
    Mem(Arc<MemShared>),
    /// `blue`, mounted.
    Blue(Arc<BlueShared>),
}

impl StoreShared {
    /// A `cyan` store for this many bytes of data.
    #[must_use]
    pub fn cyan(capacity_bytes: u64) -> StoreShared {
        StoreShared::Mem(MemShared::new(capacity_bytes, true))
    }

    /// A `null` store.
    #[must_use]
    pub fn null() -> StoreShared {
        StoreShared::Mem(MemShared::new(1 << 40, false))
    }

    /// Which store it is.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match self {
            StoreShared::Mem(mem) if mem.keeps_data() => StoreKind::Cyan,
            StoreShared::Mem(_) => StoreKind::Null,
            StoreShared::Blue(_) => StoreKind::Blue,
        }
    }

    /// Space of the whole store.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        match self {
            StoreShared::Mem(mem) => mem.statfs(),
            StoreShared::Blue(blue) => blue.statfs(),
        }
    }
}

/// A shard's store. Clones are handles of the same store.
///
/// An object is used by one shard only: the one that owns its PG. Everything that [`submit`](Store::submit) does is visible at
/// once to the reads of this shard, whether durable or not; a caller that must not show uncommitted bytes waits for the
/// [`Commit`].
#[derive(Clone)]
pub enum Store {
    /// Everything in memory.
    Cyan(Rc<MemStore>),
    /// Sizes in memory, data forgotten.
    Null(Rc<MemStore>),
    /// Block file or device.
    Blue(Rc<BlueStore>),
}

/// A PG on its way from one shard of a store to another.
#[must_use = "another shard must adopt it"]
pub struct Released {
    pg: SpgId,
    bits: u32,
    /// Where nothing but a shard's memory has them.
    objects: Option<MemPart>,
}

/// A shard of an in-memory store.
pub struct MemStore(Mem);

/// A shard of `blue`.
pub struct BlueStore(Rc<Blue>);

impl BlueStore {
    /// Notes metadata damage, if the result is such an error.
    fn note_damage<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| self.0.note_damage(error))
    }
}

/// The metadata that [`Store::prepare`] loaded, held in memory until this is dropped. Hold it until after `submit`.
#[must_use = "hold this until after Store::submit"]
pub struct Prepared {
    _pins: Option<blue::Prepared>,
}

impl Store {
    /// This shard's part of the store.
    ///
    /// # Errors
    /// If the block file or device cannot be opened.
    pub async fn open_shard(shared: &StoreShared, shard: &Shard) -> Result<Store, StoreError> {
        match shared {
            StoreShared::Mem(mem) => {
                let store = Rc::new(MemStore(Mem::new(mem)));
                Ok(if mem.keeps_data() { Store::Cyan(store) } else { Store::Null(store) })
            }
            StoreShared::Blue(blue) => Ok(Store::Blue(Rc::new(BlueStore(Blue::open(blue, shard).await?)))),
        }
    }

    /// Which store it is.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        match self {
            Store::Cyan(_) => StoreKind::Cyan,
            Store::Null(_) => StoreKind::Null,
            Store::Blue(_) => StoreKind::Blue,
        }
    }

    /// All PGs that have an info, in order; of the whole store if it is durable, else of this shard.
    ///
    /// # Errors
    /// If metadata cannot be read.
    pub async fn list_pgs(&self) -> Result<Vec<SpgId>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.list_pgs()),
            Store::Blue(blue) => blue.note_damage(blue.0.list_pgs().await),
        }
    }

    /// A PG's info as it was last written; the default one if there is none. The log may have newer versions.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn load_info(&self, pg: SpgId) -> Result<PgInfo, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => {
                Ok(mem.0.load_pg(pg).map(|state| state.info).unwrap_or_default())
            }
            Store::Blue(blue) => blue.note_damage(blue.0.load_info(pg).await),
        }
    }

    /// CPU time of the key-value store's own threads; `None` for stores without one, and if it does not know.
    pub async fn kv_cpu(&self) -> Option<KvCpu> {
        match self {
            Store::Cyan(_) | Store::Null(_) => None,
            Store::Blue(blue) => blue.0.kv_cpu().await,
        }
    }

    /// Info and log of a PG; `None` if no transaction ever had its info or log.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn load_pg(&self, pg: SpgId) -> Result<Option<PgState>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.load_pg(pg)),
            Store::Blue(blue) => blue.note_damage(blue.0.load_pg(pg).await),
        }
    }

    /// Size, versions, time and xattrs of an object; `None` if it does not exist. Does not suspend if the object is cached.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn stat(&self, oid: &ObjectId) -> Result<Option<ObjectMeta>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.stat(oid)),
            Store::Blue(blue) => blue.note_damage(blue.0.stat(oid).await),
        }
    }

    /// Loads all that a transaction with these changes needs: the objects' metadata, and the blocks that are only partly
    /// overwritten. Call it while no other op of the same objects can be submitted in between, and hold the result
    /// until after `submit`. Does not suspend if everything is in memory.
    ///
    /// # Errors
    /// If something cannot be read or is corrupt; then nothing was changed and the client can be told.
    pub async fn prepare(&self, changes: &[ObjectChange]) -> Result<Prepared, StoreError> {
        match self {
            Store::Cyan(_) | Store::Null(_) => Ok(Prepared { _pins: None }),
            Store::Blue(blue) => {
                Ok(Prepared { _pins: Some(blue.note_damage(blue.0.prepare(changes).await)?) })
            }
        }
    }

    /// The result of [`stat`](Store::stat), if it need not wait.
    #[must_use]
    pub fn stat_at_hand(&self, oid: &Arc<ObjectId>) -> Option<Option<ObjectMeta>> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Some(mem.0.stat_before_write(oid)),
            Store::Blue(blue) => blue.0.stat_at_hand(oid),
        }
    }

    /// Whether a transaction with these changes can be submitted at once, without [`prepare`](Store::prepare).
    #[must_use]
    pub fn is_prepared(&self, changes: &[ObjectChange]) -> bool {
        match self {
            Store::Cyan(_) | Store::Null(_) => true,
            Store::Blue(blue) => blue.0.is_prepared(changes),
        }
    }

    /// The object's version as clients see it, and the result of [`read`](Store::read), if it need not wait.
    #[must_use]
    pub fn read_at_hand(&self, oid: &ObjectId, off: u64, len: u64) -> Option<(u64, Payload)> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => mem.0.read(oid, off, len),
            Store::Blue(_) => None,
        }
    }

    /// The object's version as clients see it, and the result of [`read`](Store::read), if the range is one whole block at a
    /// known place of a device; `None` otherwise.
    #[must_use]
    pub async fn read_block(
        &self,
        oid: &ObjectId,
        off: u64,
        len: u64,
    ) -> Option<Result<(u64, Payload), StoreError>> {
        match self {
            Store::Cyan(_) | Store::Null(_) => None,
            Store::Blue(blue) => blue.0.read_plain_block(oid, off, len).await,
        }
    }

    /// Bytes `off..off + len` of an object, up to its end. Holes are zeros.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if a checksum does not hold; I/O errors.
    pub async fn read(&self, oid: &ObjectId, off: u64, len: u64) -> Result<Payload, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => mem
                .0
                .read(oid, off, len)
                .map(|(_, data)| data)
                .ok_or_else(|| StoreError::NotFound(oid.clone())),
            // Boxed: it nearly always waits for the drive, and the caller's future stays smaller.
            Store::Blue(blue) => blue.note_damage(Box::pin(blue.0.read(oid, off, len)).await),
        }
    }

    /// The runs of blocks in bytes `off..off + len` of an object that are not holes, in order, none touching the next; cut at
    /// both ends of the range and at the object's end.
    ///
    /// # Errors
    /// `NotFound`; if metadata cannot be read or is damaged.
    pub async fn written(&self, oid: &ObjectId, off: u64, len: u64) -> Result<Vec<Range<u64>>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => {
                mem.0.written(oid, off, len).ok_or_else(|| StoreError::NotFound(oid.clone()))
            }
            Store::Blue(blue) => blue.note_damage(blue.0.written(oid, off, len).await),
        }
    }

    /// The offsets of blocks in the same range that were written only in part: they are not holes, but some of their bytes before
    /// the end of the object were never written, or were punched out. Which bytes is not recorded, and a copy made by recovery
    /// has no such blocks.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn in_part(&self, oid: &ObjectId, off: u64, len: u64) -> Result<Vec<u64>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.in_part(oid, off, len)),
            Store::Blue(blue) => blue.note_damage(blue.0.in_part(oid, off, len).await),
        }
    }

    /// The omap header of an object; empty if it has none.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn omap_header(&self, oid: &ObjectId) -> Result<Bytes, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.omap_header(oid)),
            Store::Blue(blue) => blue.note_damage(blue.0.omap_header(oid).await),
        }
    }

    /// The values of these omap keys; `None` for missing ones.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn omap_values(
        &self,
        oid: &ObjectId,
        keys: &[Box<[u8]>],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.omap_values(oid, keys)),
            Store::Blue(blue) => blue.note_damage(blue.0.omap_values(oid, keys).await),
        }
    }

    /// A page of an object's omap.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn omap_page(&self, oid: &ObjectId, range: &OmapRange) -> Result<OmapPage, StoreError> {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.omap_page(oid, range)),
            Store::Blue(blue) => blue.note_damage(blue.0.omap_page(oid, range).await),
        }
    }

    /// Restores a block that a read found damaged or unreadable, with content from another copy, which must match the block's
    /// checksum in this store's metadata. It is written to a new place, like any change. Call it while no op of the object can be
    /// submitted in between; wait for the `Commit`. `bits` is [`pg_bits`](carmine_pgtypes::pg_bits) of the PG.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if the content is not that of the block; and those of [`prepare`](Store::prepare).
    ///
    /// # Panics
    /// If the object does not lie in the PG.
    pub async fn heal(
        &self,
        pg: SpgId,
        bits: u32,
        oid: &ObjectId,
        off: u64,
        content: &Payload,
    ) -> Result<Commit, StoreError> {
        assert!(pg_contains(pg, bits, oid), "object {oid} is not in PG {pg} of {bits} bits");
        match self {
            // Data in memory is never damaged.
            Store::Cyan(_) | Store::Null(_) => Ok(Commit::ready(Ok(()))),
            Store::Blue(blue) => {
                blue.note_damage(blue.0.heal(Transaction::new(pg, bits), oid, off, content).await)
            }
        }
    }

    /// Applies a transaction at once, and makes it durable in the order of submission of its PG. If it cannot be done
    /// (no space, too large, not prepared, store stopped) nothing changes and the `Commit` is that error, ready at
    /// once.
    ///
    /// # Panics
    /// If an object that the transaction names does not lie in its PG.
    pub fn submit(&self, txn: impl Into<Sealed>) -> Commit {
        let txn = txn.into();
        txn.assert_within_pg();
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Commit::ready(mem.0.submit(txn)),
            Store::Blue(blue) => blue.0.submit(txn),
        }
    }

    /// Objects of a PG in Ceph's order (heads, clones and all generations), from `from` on (inclusive; `None`: the first), at
    /// most `max`. `bits` is [`pg_bits`](carmine_pgtypes::pg_bits) of the PG. The shard of `from` is ignored: it is a position in
    /// the PG, and neither clients nor members with other shards know this one.
    ///
    /// # Errors
    /// If metadata cannot be read or is damaged.
    pub async fn list(
        &self,
        pg: SpgId,
        bits: u32,
        from: Option<&ObjectId>,
        max: usize,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let of_shard = |from: &ObjectId| ObjectId { shard: pg.shard, ..from.clone() };
        let moved = from.filter(|from| from.shard != pg.shard).map(of_shard);
        let from = moved.as_ref().or(from);
        match self {
            Store::Cyan(mem) | Store::Null(mem) => Ok(mem.0.list(pg, bits, from, max)),
            Store::Blue(blue) => blue.note_damage(blue.0.list(pg, bits, from, max).await),
        }
    }

    /// Waits until everything submitted so far is durable.
    ///
    /// # Errors
    /// If the store has stopped.
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self {
            Store::Cyan(_) | Store::Null(_) => Ok(()),
            Store::Blue(blue) => blue.0.sync().await,
        }
    }

    /// Gives a PG up to another shard, which must [`adopt`](Store::adopt) it: waits until all of it is durable and no operation uses its
    /// objects, then forgets it. Nobody may name its objects here meanwhile. `bits` is [`pg_bits`](carmine_pgtypes::pg_bits) of the PG.
    ///
    /// # Errors
    /// If the store has stopped.
    pub async fn release(&self, pg: SpgId, bits: u32) -> Result<Released, StoreError> {
        let objects = match self {
            Store::Cyan(mem) | Store::Null(mem) => Some(mem.0.release(pg, bits)),
            Store::Blue(blue) => {
                blue.0.release(pg, bits).await?;
                None
            }
        };
        Ok(Released { pg, bits, objects })
    }

    /// Takes over a PG that another shard of this store has released.
    pub async fn adopt(&self, released: Released) {
        let Released { pg, bits, objects } = released;
        match self {
            Store::Cyan(mem) | Store::Null(mem) => objects.into_iter().for_each(|part| mem.0.adopt(part)),
            // It may have had the PG before, and something that is still in memory of that time.
            Store::Blue(blue) => blue.0.forget_pg(pg, bits).await,
        }
    }

    /// Makes everything durable and closes the device; later submits fail.
    ///
    /// # Errors
    /// If the store has stopped.
    pub async fn umount(&self) -> Result<(), StoreError> {
        match self {
            Store::Cyan(_) | Store::Null(_) => Ok(()),
            Store::Blue(blue) => blue.0.umount().await,
        }
    }

    /// Space of the whole store.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => mem.0.statfs(),
            Store::Blue(blue) => blue.0.statfs(),
        }
    }

    /// The first metadata damage met by a read, on any shard; only other copies can repair it.
    #[must_use]
    pub fn damage(&self) -> Option<StoreError> {
        match self {
            Store::Cyan(_) | Store::Null(_) => None,
            Store::Blue(blue) => blue.0.damage(),
        }
    }

    /// Why it has stopped on this shard: a failed write or flush, or an unmount.
    #[must_use]
    pub fn refusal(&self) -> Option<StoreError> {
        match self {
            Store::Cyan(_) | Store::Null(_) => None,
            Store::Blue(blue) => blue.0.refusal(),
        }
    }

    /// How its reads and writes reach the device; `None`: it has none.
    #[must_use]
    pub fn io_path(&self) -> Option<IoPath> {
        match self {
            Store::Cyan(_) | Store::Null(_) => None,
            Store::Blue(blue) => Some(blue.0.io_path()),
        }
    }

    /// Counters of this shard.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        match self {
            Store::Cyan(mem) | Store::Null(mem) => mem.0.stats(),
            Store::Blue(blue) => blue.0.stats(),
        }
    }
}

// [`Commit`]: the promise that a transaction will be durable.

/// Resolves when its transaction is durable, or with the reason why it never will be. Dropping it changes nothing
/// about the transaction.
#[must_use = "a transaction is durable only when its Commit says so"]
pub struct Commit(CommitState);

enum CommitState {
    /// Boxed, since an error is long, and rare.
    Ready(Option<Result<(), Box<StoreError>>>),
    Pending(oneshot::Receiver<Result<(), StoreError>>),
}

impl Commit {
    /// The result, if it is known without waiting.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<Result<(), StoreError>> {
        match &self.0 {
            CommitState::Ready(Some(Ok(()))) => Some(Ok(())),
            CommitState::Ready(Some(Err(error))) => Some(Err(StoreError::clone(error))),
            CommitState::Ready(None) | CommitState::Pending(_) => None,
        }
    }

    /// Already decided.
    pub(crate) fn ready(result: Result<(), StoreError>) -> Commit {
        Commit(CommitState::Ready(Some(result.map_err(Box::new))))
    }

    pub(crate) fn pending(receiver: oneshot::Receiver<Result<(), StoreError>>) -> Commit {
        Commit(CommitState::Pending(receiver))
    }
}

impl Future for Commit {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            CommitState::Ready(result) => {
                Poll::Ready(result.take().unwrap_or(Ok(())).map_err(|error| *error))
            }
            CommitState::Pending(receiver) => {
                let result = ready!(Pin::new(receiver).poll(cx));
                Poll::Ready(result.unwrap_or_else(|_| Err(StoreError::failed("the store was closed"))))
            }
        }
    }
}
