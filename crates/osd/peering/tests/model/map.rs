//! The monitor's map of the PG, and the monitor's reaction to reports of its primary.

/// The monitor's map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OsdMap {
    /// Start and epoch since which it is up.
    pub(crate) up: Vec<Option<(u32, u32)>>,
    /// Epoch in which it was up, of each.
    pub(crate) up_thru: Vec<u32>,
    pub(crate) owners: Vec<u8>,
    pub(crate) joiners: Vec<u8>,
    pub(crate) wanted: Vec<u8>,
    pub(crate) min_size: usize,
}

impl OsdMap {
    pub(crate) fn acting(&self) -> Vec<u8> {
        let all = self.owners.iter().chain(&self.joiners).copied();
        all.filter(|osd| self.up[usize::from(*osd)].is_some()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Report {
    Active,
    Stuck { is_complete: bool, successor: Option<u8> },
}

/// The monitor's reaction to a report about the map in force: the rules of `mon/change/pins.rs`.
pub(crate) fn heed(map: &mut OsdMap, leader: u8, state: Report) {
    let is_up = |osd: &u8| map.up[usize::from(*osd)].is_some();
    match state {
        Report::Active if map.owners.iter().all(is_up) => {
            let (joined, down): (Vec<u8>, Vec<u8>) = map.joiners.iter().partition(|osd| is_up(osd));
            map.owners.extend(joined);
            map.joiners = down;
            if map.joiners.is_empty() && map.wanted.iter().all(|osd| map.owners.contains(osd)) {
                // Without a pin the primary is the first that CRUSH names.
                map.owners.clone_from(&map.wanted);
            }
        }
        Report::Active => {}
        Report::Stuck { successor: Some(osd), .. } => {
            let place = map.owners.iter().position(|owner| *owner == osd);
            if let Some(place) = place.filter(|_| is_up(&osd)) {
                map.owners[..=place].rotate_right(1);
            }
        }
        Report::Stuck { is_complete, successor: None } => {
            let found = map.acting().len();
            if is_complete && map.owners.contains(&leader) && found >= map.min_size {
                let (owners, gone): (Vec<u8>, Vec<u8>) = map.owners.iter().partition(|osd| is_up(osd));
                map.owners = owners;
                map.joiners.extend(gone.iter().filter(|osd| map.wanted.contains(osd)));
            }
        }
    }
}
