//! [`OsdSet`]: the OSDs of a PG by position.

use carmine_codec::{Coded, Decoder, Encoder, Result};
use carmine_types::{NO_OSD, OsdId};

/// An acting set or an up set, with its primary (Ceph: `acting` with `acting_primary`, `up` with `up_primary`). The position in an
/// erasure-coded PG is the shard, and one without an OSD is a hole. A replicated PG's set has no holes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OsdSet {
    slots: Vec<Option<OsdId>>,
    primary: Option<OsdId>,
}

impl OsdSet {
    /// The OSD of each position, as a map has them: [`NO_OSD`] is a hole. An OSD that is not among them leads nobody.
    #[must_use]
    pub fn new(items: &[i32], primary: Option<OsdId>) -> OsdSet {
        let slots: Vec<_> = items.iter().map(|item| OsdId::from_item(*item)).collect();
        let primary = primary.filter(|osd| slots.contains(&Some(*osd)));
        OsdSet { slots, primary }
    }

    /// Those that lead to OSDs for which this holds; the others become holes.
    #[must_use]
    pub fn filter(mut self, holds: impl Fn(OsdId) -> bool) -> OsdSet {
        self.slots.iter_mut().for_each(|slot| *slot = slot.filter(|osd| holds(*osd)));
        self.primary = self.primary.filter(|osd| holds(*osd));
        self
    }

    /// The OSD of each position.
    #[must_use]
    pub fn slots(&self) -> &[Option<OsdId>] {
        &self.slots
    }

    /// The OSD that leads.
    #[must_use]
    pub fn primary(&self) -> Option<OsdId> {
        self.primary
    }

    /// Its OSDs, the primary first.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + Clone + '_ {
        let others = self.slots.iter().flatten().copied().filter(|osd| Some(*osd) != self.primary);
        self.primary.into_iter().chain(others)
    }

    /// Number of its OSDs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.osds().count()
    }

    /// No OSD is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.osds().next().is_none()
    }

    /// It has this OSD.
    #[must_use]
    pub fn contains(&self, osd: OsdId) -> bool {
        self.slots.contains(&Some(osd))
    }
}

/// A set without holes, whose first OSD is the primary.
impl<const N: usize> From<[OsdId; N]> for OsdSet {
    fn from(osds: [OsdId; N]) -> OsdSet {
        osds.to_vec().into()
    }
}

/// As from an array.
impl From<Vec<OsdId>> for OsdSet {
    fn from(osds: Vec<OsdId>) -> OsdSet {
        OsdSet { primary: osds.first().copied(), slots: osds.into_iter().map(Some).collect() }
    }
}

impl Coded for OsdSet {
    const BYTES_MIN: usize = 4 + 4;

    fn put(&self, e: &mut Encoder<'_>) {
        let item = |osd: &Option<OsdId>| osd.map_or(NO_OSD as u32, |osd| osd.0);
        e.vec(&self.slots, |e, slot| e.u32(item(slot)));
        e.u32(item(&self.primary));
    }

    fn get(d: &mut Decoder<'_>) -> Result<OsdSet> {
        let items = d.vec(4, |d| d.i32())?;
        Ok(OsdSet::new(&items, OsdId::from_item(d.i32()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_holes_stay_and_the_primary_comes_first() {
        let set = OsdSet::new(&[4, NO_OSD, 7, 1], Some(OsdId(7)));
        assert_eq!(set.slots(), [Some(OsdId(4)), None, Some(OsdId(7)), Some(OsdId(1))]);
        assert_eq!(set.osds().collect::<Vec<_>>(), [OsdId(7), OsdId(4), OsdId(1)]);
        assert_eq!((set.len(), set.contains(OsdId(4)), set.contains(OsdId(2))), (3, true, false));
        let bytes = Encoder::collect(|e| e.put(&set));
        assert_eq!(Decoder::all(&bytes, "set", OsdSet::get), Ok(set.clone()));
        let alive = set.filter(|osd| osd != OsdId(7));
        assert_eq!((alive.slots()[2], alive.primary()), (None, None));
    }

    #[test]
    fn an_osd_outside_the_set_is_no_primary() {
        assert_eq!(OsdSet::new(&[1, 2], Some(OsdId(3))).primary(), None);
        assert!(OsdSet::new(&[NO_OSD, NO_OSD], None).is_empty());
        assert_eq!(OsdSet::from([OsdId(2), OsdId(1)]).primary(), Some(OsdId(2)));
    }
}
