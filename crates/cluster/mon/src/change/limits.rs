//! Limits that the map sets for all: the oldest client and OSD, and how full an OSD may become.

use carmine_types::{UTime, errno};
use carmine_wire::osdmap::consts::{RELEASE_LUMINOUS, RELEASE_PACIFIC, release_name};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, refuse};

/// States of an OSD that has little space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FullState {
    /// It warns.
    Nearfull,
    /// It takes no data of other OSDs.
    Backfillfull,
    /// It takes no writes.
    Full,
}

/// Sets the share of an OSD's space, 0 to 1, from which on it is in a state. OSDs change their states by their next reports.
pub(super) fn ratio(map: &OsdMap, state: FullState, ratio: f32, now: UTime) -> Option<Incremental> {
    let mut inc = Incremental::next(map, now);
    let (old, new) = match state {
        FullState::Nearfull => (map.nearfull_ratio, &mut inc.new_nearfull_ratio),
        FullState::Backfillfull => (map.backfillfull_ratio, &mut inc.new_backfillfull_ratio),
        FullState::Full => (map.full_ratio, &mut inc.new_full_ratio),
    };
    *new = ratio;
    (old != ratio).then_some(inc)
}

/// The number of a release.
fn release_of(release: &str) -> Result<u8, Refusal> {
    let number = (1..=RELEASE_PACIFIC).find(|number| release_name(*number) == release);
    let unknown =
        || refuse(errno::EINVAL, format!("{release} is not recognized as a release of Ceph up to pacific"));
    number.ok_or_else(unknown)
}

/// OSDs here speak as Pacific's do, and the map says so from the start: nothing remains to be raised.
pub(super) fn require_osds(map: &OsdMap, release: &str) -> Result<Option<Incremental>, Refusal> {
    match release_of(release)? {
        number if number < map.require_osd_release => {
            Err(refuse(errno::EPERM, "require_osd_release cannot be lowered once it has been set"))
        }
        _ => Ok(None),
    }
}

/// Clients look at it to choose between old and new ways: librbd makes clones of the second format from mimic on.
pub(super) fn min_compat_client(
    map: &OsdMap,
    release: &str,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let number = release_of(release)?;
    if number < RELEASE_LUMINOUS {
        let text = format!(
            "osdmap current utilizes features that require luminous; cannot set require_min_compat_client below that \
             to {release}"
        );
        return Err(refuse(errno::EPERM, text));
    }
    if number == map.require_min_compat_client {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    inc.new_require_min_compat_client = number;
    Ok(Some(inc))
}
