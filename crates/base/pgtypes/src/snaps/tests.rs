//! The arithmetic against a model that keeps the whole object for each snapshot.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// An operation of a client on one object, or on the snapshots.
#[derive(Clone, Debug)]
enum Act {
    Write { off: u8, len: u8, byte: u8 },
    Truncate(u8),
    Remove,
    TakeSnap,
    RemoveSnap(u8),
    Trim,
    RollBack(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (0..30u8, 1..12u8, any::<u8>()).prop_map(|(off, len, byte)| Act::Write { off, len, byte }),
        2 => (0..40u8).prop_map(Act::Truncate),
        1 => Just(Act::Remove),
        3 => Just(Act::TakeSnap),
        2 => any::<u8>().prop_map(Act::RemoveSnap),
        2 => Just(Act::Trim),
        1 => any::<u8>().prop_map(Act::RollBack),
    ];
    prop::collection::vec(act, 0..60)
}

/// An object as an OSD keeps it: the head, its set, its clones.
#[derive(Default)]
struct Kept {
    head: Option<Vec<u8>>,
    set: SnapSet,
    clones: BTreeMap<u64, Vec<u8>>,
}

impl Kept {
    /// A change of the head from `now` on, which differs in the given ranges.
    fn write(&mut self, context: &SnapContext, new: Option<Vec<u8>>, changed: &Extents) {
        let before = self.set.clone();
        let summary = SnapSummary::decode(&before.encode()).expect("a stored set");
        if let Some(old) = &self.head
            && let Some(id) = self.set.add_clone(context, old.len() as u64)
        {
            self.clones.insert(id, old.clone());
        }
        self.set.note_change(changed);
        self.set.seq = self.set.seq.max(context.seq);
        self.set.is_whiteout = new.is_none();
        if summary.keeps(context, changed) && self.head.is_some() && new.is_some() {
            assert_eq!(self.set, before, "it was said that nothing changes");
        }
        self.head = new;
    }

    fn read(&self, snap: u64) -> Option<&Vec<u8>> {
        match self.set.at(snap) {
            At::Head => self.head.as_ref(),
            At::Clone(id) => Some(&self.clones[&id]),
            At::Nothing => None,
        }
    }

    /// Where a clone says that it equals what is newer, it does.
    fn check(&self) {
        let ids: Vec<u64> = self.set.clones.iter().map(|clone| clone.id).collect();
        assert_eq!(ids, self.clones.keys().copied().collect::<Vec<_>>());
        for (at, clone) in self.set.clones.iter().enumerate() {
            let bytes = &self.clones[&clone.id];
            assert_eq!(bytes.len() as u64, clone.size);
            let newer = self.set.clones.get(at + 1).map(|next| &self.clones[&next.id]).or(self.head.as_ref());
            for (off, len) in clone.overlap.iter() {
                let range = off as usize..(off + len) as usize;
                assert_eq!(newer.and_then(|newer| newer.get(range.clone())), bytes.get(range));
            }
        }
        assert_eq!(SnapSet::decode(&self.set.encode()).as_ref(), Ok(&self.set));
        let summary = SnapSummary::decode(&self.set.encode()).expect("a stored set");
        let SnapSummary { seq, is_whiteout, newest } = &summary;
        assert_eq!((*seq, *is_whiteout), (self.set.seq, self.set.is_whiteout));
        assert_eq!(newest.as_ref(), self.set.clones.last());
    }
}

proptest! {
    #[test]
    fn every_snapshot_shows_what_was_there(acts in acts()) {
        let mut kept = Kept::default();
        let (mut context, mut model) = (SnapContext::default(), BTreeMap::<u64, Option<Vec<u8>>>::new());
        let mut removed: Vec<u64> = Vec::new();
        for act in acts {
            let old = kept.head.clone().unwrap_or_default();
            match act {
                Act::Write { off, len, byte } => {
                    let (off, len) = (usize::from(off), usize::from(len));
                    let mut new = old.clone();
                    new.resize(new.len().max(off + len), 0);
                    new[off..off + len].fill(byte);
                    kept.write(&context, Some(new), &Extents::from_range(off as u64, len as u64));
                }
                Act::Truncate(size) if kept.head.is_some() => {
                    let mut new = old.clone();
                    new.resize(usize::from(size), 0);
                    let cut = Extents::from_range(size.into(), (old.len() as u64).saturating_sub(size.into()));
                    kept.write(&context, Some(new), &cut);
                }
                Act::Remove if kept.head.is_some() => {
                    kept.write(&context, None, &Extents::from_range(0, old.len() as u64));
                }
                Act::TakeSnap => {
                    context.seq += 1;
                    context.snaps.insert(0, context.seq);
                    model.insert(context.seq, kept.head.clone());
                }
                Act::RemoveSnap(which) if !context.snaps.is_empty() => {
                    let snap = context.snaps.remove(usize::from(which) % context.snaps.len());
                    model.remove(&snap);
                    removed.push(snap);
                }
                Act::Trim => {
                    for snap in removed.drain(..) {
                        if let Trimmed::Gone { id, size } = kept.set.trim(snap) {
                            prop_assert_eq!(kept.clones.remove(&id).map(|clone| clone.len() as u64), Some(size));
                        }
                        prop_assert_eq!(kept.set.trim(snap), Trimmed::Nothing);
                    }
                }
                Act::RollBack(which) if !context.snaps.is_empty() => {
                    let snap = context.snaps[usize::from(which) % context.snaps.len()];
                    let (at, wanted) = (kept.set.at(snap), kept.read(snap).cloned());
                    if let At::Clone(id) = at {
                        let mut changed = Extents::from_range(0, old.len() as u64);
                        changed.subtract(&kept.set.equal_since(id));
                        kept.write(&context, wanted, &changed);
                    } else if at == At::Nothing && kept.head.is_some() {
                        kept.write(&context, None, &Extents::from_range(0, old.len() as u64));
                    }
                    prop_assert_eq!(&kept.head, &model[&snap], "rolled back to {}", snap);
                }
                Act::Truncate(_) | Act::Remove | Act::RemoveSnap(_) | Act::RollBack(_) => {}
            }
            kept.check();
            for (snap, wanted) in &model {
                prop_assert_eq!(kept.read(*snap), wanted.as_ref(), "snapshot {} of {:?}", snap, kept.set);
            }
        }
    }
}

#[test]
fn a_long_list_forgets_what_old_clones_have_in_common() {
    let overlap = |ranges: u64| {
        let mut all = Extents::default();
        (0..ranges).for_each(|n| all.insert(n * 8, 4));
        all
    };
    let clone = |id| CloneInfo { id, snaps: vec![id], size: 1 << 20, overlap: overlap(100) };
    let mut set = SnapSet { seq: 9, is_whiteout: false, clones: (1..=9).map(clone).collect() };
    let whole = set.encode();
    assert_eq!(set.encode_within(whole.len()), whole);
    let short = set.encode_within(whole.len() - 100 * 16 - 1);
    assert_eq!(short.len(), whole.len() - 200 * 16, "two of them");
    let kept = SnapSet::decode(&short).unwrap();
    assert_eq!(kept, set);
    assert!(kept.clones[..2].iter().all(|clone| clone.overlap.is_empty() && clone.size == 1 << 20));
    assert!(kept.clones[2..].iter().all(|clone| clone.overlap == overlap(100)));
    assert!(set.encode_within(10).len() > 10, "the clones themselves stay");
}

#[test]
fn contexts_descend() {
    let is_valid = |seq, snaps: &[u64]| SnapContext { seq, snaps: snaps.to_vec() }.is_valid();
    assert!(is_valid(0, &[]) && is_valid(5, &[]) && is_valid(5, &[5, 3, 1]) && is_valid(6, &[5]));
    assert!(!is_valid(5, &[6]) && !is_valid(5, &[3, 4]) && !is_valid(5, &[3, 3]) && !is_valid(5, &[3, 0]));
}

#[test]
fn sets_that_contradict_themselves_are_refused() {
    let clone =
        |id, snaps: &[u64]| CloneInfo { id, snaps: snaps.to_vec(), size: 1, overlap: Extents::default() };
    let set = |clones: &[CloneInfo]| SnapSet { seq: 9, is_whiteout: false, clones: clones.to_vec() };
    assert!(SnapSet::decode(&set(&[clone(3, &[3, 1]), clone(9, &[9])]).encode()).is_ok());
    for odd in [
        vec![clone(10, &[3])],
        vec![clone(3, &[])],
        vec![clone(3, &[4])],
        vec![clone(3, &[3]), clone(3, &[2])],
        vec![clone(3, &[3]), clone(9, &[9, 3])],
        vec![clone(3, &[1]), clone(9, &[9, 2])],
    ] {
        assert!(SnapSet::decode(&set(&odd).encode()).is_err(), "{odd:?}");
    }
    assert!(SnapSet::decode(&[]).is_err());
}

#[test]
fn a_summary_of_bytes_that_are_cut_off_is_refused() {
    let clone = |id| CloneInfo { id, snaps: vec![id], size: 9, overlap: Extents::from_range(0, 9) };
    let set = SnapSet { seq: 9, is_whiteout: false, clones: vec![clone(3), clone(5)] };
    let bytes = set.encode();
    (0..bytes.len()).for_each(|len| assert!(SnapSummary::decode(&bytes[..len]).is_err(), "{len} bytes"));
    assert!(SnapSummary::decode(&[&bytes[..], &[0]].concat()).is_err());
}
