//! Room in an OSD's store, and how full that makes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A store's room for data, as its OSD tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What data may still take; less than the difference, for the store keeps something back.
    pub free_bytes: u64,
}

carmine_types::words! {
    /// How full the monitor calls an OSD.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Fullness: "degree" {
        /// Worth a warning.
        Nearfull = "nearfull",
        /// No data is moved to it.
        Backfillfull = "backfillfull",
        /// Writes of clients wait.
        Full = "full",
    }
}

/// Parts of a store at which it is called so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    pub(crate) nearfull: f32,
    pub(crate) backfillfull: f32,
    pub(crate) full: f32,
}

impl Space {
    /// Of an OSD's `status`; `None` if it does not tell.
    pub(crate) fn of(status: &Value) -> Option<Space> {
        Space::deserialize(status.get("space")?).ok()
    }

    /// How full it is, if it is; as the monitor judges what the OSD reports to it.
    pub(crate) fn fullness(&self, ratios: &Ratios) -> Option<Fullness> {
        let share = self.share();
        let degrees = [
            (ratios.full, Fullness::Full),
            (ratios.backfillfull, Fullness::Backfillfull),
            (ratios.nearfull, Fullness::Nearfull),
        ];
        degrees.into_iter().find_map(|(ratio, degree)| (share >= ratio).then_some(degree))
    }

    /// The part that is used: all of a store that takes no more data.
    fn share(&self) -> f32 {
        let used = if self.free_bytes == 0 { self.total_bytes } else { self.used_bytes };
        (used as f64 / self.total_bytes.max(1) as f64) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn degrees_are_those_of_the_map() {
        let ratios = Ratios { nearfull: 0.85, backfillfull: 0.90, full: 0.95 };
        let of = |used: u64, free: u64| {
            let status = json!({"space": {"total_bytes": 100, "used_bytes": used, "free_bytes": free}});
            Space::of(&status).unwrap().fullness(&ratios)
        };
        assert_eq!((of(0, 100), of(84, 16)), (None, None));
        assert_eq!((of(85, 15), of(90, 10)), (Some(Fullness::Nearfull), Some(Fullness::Backfillfull)));
        assert_eq!((of(95, 5), of(20, 0)), (Some(Fullness::Full), Some(Fullness::Full)));
        assert_eq!(Space::of(&json!({"epoch": 3})), None);
    }
}
