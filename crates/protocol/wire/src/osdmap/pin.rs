//! The entries that Carmine's monitor writes into `pg_temp`.

use carmine_types::{NO_OSD, OsdId, PgId};

use super::OsdMap;

/// The OSDs that serve a PG while its data moves: those that have it, and those to which it is being copied.
///
/// In `pg_temp` the two lists stand one after the other with [`NO_OSD`] in between. Ceph's clients skip that entry in a
/// replicated pool, so to them all of these OSDs are the acting set, led by an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// OSDs that had a complete copy when the PG was last active.
    pub owners: Vec<i32>,
    /// OSDs whose copy is being made.
    pub joiners: Vec<i32>,
}

impl Pin {
    /// Reads a `pg_temp` entry. One without a separator has owners only.
    pub fn parse(entry: &[i32]) -> Pin {
        let mut lists = entry.splitn(2, |osd| *osd == NO_OSD);
        let mut list =
            || lists.next().unwrap_or_default().iter().copied().filter(|osd| *osd != NO_OSD).collect();
        Pin { owners: list(), joiners: list() }
    }

    /// The pin of a PG; one without an entry has as owners those that CRUSH names, up or down.
    pub fn of(map: &OsdMap, pg: PgId, raw: &[i32]) -> Pin {
        match map.pg_temp.get(&pg) {
            Some(entry) => Pin::parse(entry),
            None => Pin { owners: raw.to_vec(), joiners: Vec::new() },
        }
    }

    /// The `pg_temp` entry.
    pub fn entry(&self) -> Vec<i32> {
        let separator = (!self.joiners.is_empty()).then_some(NO_OSD);
        self.owners.iter().copied().chain(separator).chain(self.joiners.iter().copied()).collect()
    }

    /// All members, owners first.
    pub fn members(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.owners.iter().chain(&self.joiners).filter_map(|osd| OsdId::from_item(*osd))
    }

    /// Whether this OSD had a complete copy when the PG was last active.
    pub fn is_owner(&self, osd: OsdId) -> bool {
        self.owners.iter().any(|owner| OsdId::from_item(*owner) == Some(osd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_any_list_is_read() {
        for (entry, owners, joiners) in [
            (&[][..], &[][..], &[][..]),
            (&[3, 1], &[3, 1], &[]),
            (&[1, 0, NO_OSD, 2], &[1, 0], &[2]),
            (&[NO_OSD, 2], &[], &[2]),
        ] {
            let pin = Pin::parse(entry);
            assert_eq!((&pin.owners[..], &pin.joiners[..]), (owners, joiners));
            assert_eq!(pin.entry(), entry);
        }
        assert_eq!(Pin::parse(&[1, NO_OSD, 2, NO_OSD, 3]).joiners, [2, 3]);
        let pin = Pin::parse(&[1, NO_OSD, 2]);
        assert_eq!(pin.members().collect::<Vec<_>>(), [OsdId(1), OsdId(2)]);
        assert!(pin.is_owner(OsdId(1)) && !pin.is_owner(OsdId(2)));
    }
}
