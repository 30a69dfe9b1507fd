//! Snapshots of an object: which clones of it there are, and which of them shows it as it was ([`SnapSet`]); and the
//! snapshots that a write must preserve ([`SnapContext`]). Pure arithmetic, Ceph's.

mod extents;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result, coded};
use carmine_types::is_mutated;

pub use extents::Extents;

/// Name of the xattr with an object's [`SnapSet`], as in Ceph. An object that was never written under a snapshot has none.
pub const SNAPSET: &[u8] = b"snapset";

/// The snapshots that exist as a writer sees it (SnapContext).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// The newest snapshot that the writer knows of, whether it exists or not.
    pub seq: u64,
    /// Those that exist, descending.
    pub snaps: Vec<u64>,
}

impl SnapContext {
    /// Whether the snapshots descend from `seq`, and none is 0.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let descends = self.snaps.is_sorted_by(|a, b| a > b);
        descends && self.snaps.first().is_none_or(|first| *first <= self.seq) && !self.snaps.ends_with(&[0])
    }
}

coded! {
    /// A clone of an object: its state when a snapshot was taken.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CloneInfo {
        /// Its snap id, by which it is stored.
        pub id: u64,
        /// The snapshots that it shows, descending.
        pub snaps: Vec<u64>,
        /// Its size in bytes.
        pub size: u64,
        /// The bytes in which it equals the next newer clone, or the head.
        pub overlap: Extents,
    }
}

coded! {
    /// The clones of an object (SnapSet).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SnapSet {
        /// The newest snapshot that a writer of the object knew of.
        pub seq: u64,
        /// The head was removed, and is kept only for its clones (a whiteout).
        pub is_whiteout: bool,
        /// The clones, oldest first.
        pub clones: Vec<CloneInfo>,
    }
}

/// A [`SnapSet`] without its older clones: enough for a write that does not change it, and decoded without an allocation for each
/// clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSummary {
    /// The newest snapshot that a writer of the object knew of.
    pub seq: u64,
    /// The head was removed.
    pub is_whiteout: bool,
    /// The newest clone.
    pub newest: Option<CloneInfo>,
}

impl SnapSummary {
    /// Reads it from a stored [`SnapSet`].
    ///
    /// # Errors
    /// If the bytes are no `SnapSet`. Older clones are only skipped.
    pub fn decode(bytes: &[u8]) -> Result<SnapSummary> {
        Decoder::all(bytes, "snapset", |d| {
            let (seq, is_whiteout, clones) = (d.u64()?, d.bool()?, d.count(CloneInfo::BYTES_MIN)?);
            for _ in 1..clones {
                skip_clone(d)?;
            }
            let newest = if clones > 0 { Some(CloneInfo::get(d)?) } else { None };
            Ok(SnapSummary { seq, is_whiteout, newest })
        })
    }

    /// Whether a write of the head under this context, which changes these bytes, makes no clone and leaves the overlap with the
    /// newest clone unchanged.
    #[must_use]
    pub fn keeps(&self, context: &SnapContext, changed: &Extents) -> bool {
        let overlap = self.newest.as_ref().map(|newest| &newest.overlap);
        context.seq <= self.seq && overlap.is_none_or(|overlap| overlap.intersection(changed).is_empty())
    }
}

/// Skips a clone.
fn skip_clone(d: &mut Decoder<'_>) -> Result<()> {
    d.u64()?; // its id
    let snaps = d.count(u64::BYTES_MIN)?;
    d.bytes(snaps * u64::BYTES_MIN)?;
    d.u64()?; // its size
    let ranges = d.count(<(u64, u64)>::BYTES_MIN)?;
    d.bytes(ranges * <(u64, u64)>::BYTES_MIN)?;
    Ok(())
}

/// The head or clone that is an object's state at a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The head.
    Head,
    /// The clone with this id.
    Clone(u64),
    /// The object did not exist.
    Nothing,
}

/// The result of trimming a snapshot from an object's clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// Nothing: no clone shows it.
    Nothing,
    /// A clone stays for other snapshots.
    Kept,
    /// The clone with this id and size is not needed any more.
    Gone {
        /// Its id.
        id: u64,
        /// Its size in bytes.
        size: u64,
    },
}

impl SnapSet {
    /// Reads what was stored.
    ///
    /// # Errors
    /// If the bytes are no `SnapSet`, or an inconsistent one.
    pub fn decode(bytes: &[u8]) -> Result<SnapSet> {
        let set = Decoder::all(bytes, "snapset", |d| d.get::<SnapSet>())?;
        if set.is_consistent() {
            Ok(set)
        } else {
            Err(DecodeError::BadValue { what: "snapset", value: set.seq })
        }
    }

    /// Whether the clones ascend up to `seq`, and each shows snapshots up to its id, descending, that no other shows.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let mut older = 0;
        self.clones.iter().all(|clone| {
            let newest_before = std::mem::replace(&mut older, clone.id);
            let is_shown = |snap: &u64| newest_before < *snap && *snap <= clone.id;
            let fits = clone.id <= self.seq && clone.snaps.is_sorted_by(|a, b| a > b);
            fits && !clone.snaps.is_empty() && clone.snaps.iter().all(is_shown)
        })
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(self))
    }

    /// The bytes to store, at most `bytes_max` if possible: overlaps of the oldest clones are dropped first. Overlaps only save
    /// copying and comparing.
    #[must_use]
    pub fn encode_within(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut bytes = self.encode();
        let mut over = bytes.len().saturating_sub(bytes_max);
        if over > 0 {
            for clone in &mut self.clones {
                let forgotten = std::mem::take(&mut clone.overlap).iter().len() * <(u64, u64)>::BYTES_MIN;
                over = over.saturating_sub(forgotten);
                if over == 0 {
                    break;
                }
            }
            bytes = self.encode();
        }
        bytes
    }

    /// The head or clone that is the object's state at a snapshot.
    #[must_use]
    pub fn at(&self, snap: u64) -> At {
        if snap > self.seq {
            return At::Head;
        }
        let clone = self.clones.iter().find(|clone| clone.id >= snap);
        let shows = |clone: &&CloneInfo| clone.snaps.last().is_some_and(|oldest| *oldest <= snap);
        clone.filter(shows).map_or(At::Nothing, |clone| At::Clone(clone.id))
    }

    /// The clone with this id.
    #[must_use]
    pub fn clone_of(&self, id: u64) -> Option<&CloneInfo> {
        self.clones.iter().find(|clone| clone.id == id)
    }

    /// Adds a clone of the head, of this size, if a write under this context needs one; returns its id.
    pub fn add_clone(&mut self, context: &SnapContext, size: u64) -> Option<u64> {
        let known = self.seq - u64::from(self.seq > 0 && is_mutated("clone_again"));
        let newer = context.snaps.iter().take_while(|snap| **snap > known);
        let snaps: Vec<u64> = newer.copied().collect();
        if snaps.is_empty() {
            return None;
        }
        let (id, overlap) = (context.seq, Extents::from_range(0, size));
        self.clones.push(CloneInfo { id, snaps, size, overlap });
        Some(id)
    }

    /// Notes that these bytes of the head were changed.
    pub fn note_change(&mut self, changed: &Extents) {
        if let Some(newest) = self.clones.last_mut() {
            newest.overlap.subtract(changed);
        }
    }

    /// The bytes in which the head equals the clone that shows it at this snapshot.
    #[must_use]
    pub fn equal_since(&self, id: u64) -> Extents {
        let mut since = self.clones.iter().filter(|clone| clone.id >= id).map(|clone| &clone.overlap);
        let first = since.next().cloned().unwrap_or_default();
        since.fold(first, |all, overlap| all.intersection(overlap))
    }

    /// Removes a snapshot from the set.
    pub fn trim(&mut self, snap: u64) -> Trimmed {
        let Some(at) = self.clones.iter().position(|clone| clone.snaps.contains(&snap)) else {
            return Trimmed::Nothing;
        };
        self.clones[at].snaps.retain(|other| *other != snap);
        if !self.clones[at].snaps.is_empty() {
            return Trimmed::Kept;
        }
        let gone = self.clones.remove(at);
        if let Some(older) = at.checked_sub(1).and_then(|at| self.clones.get_mut(at)) {
            older.overlap = older.overlap.intersection(&gone.overlap);
        }
        Trimmed::Gone { id: gone.id, size: gone.size }
    }
}

#[cfg(test)]
mod tests;
