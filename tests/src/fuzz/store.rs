//! The content of a drive: labels, the log, keys and values of the metadata; and the monitor's state.

use carmine_mon::{decode_state, state_seeds};
use carmine_store::blue;

pub(super) fn on_disk(bytes: &[u8]) {
    blue::decode_any(bytes);
}

pub(super) fn on_disk_seeds() -> Vec<Vec<u8>> {
    blue::decode_seeds()
}

pub(super) fn mon_state(bytes: &[u8]) {
    decode_state(bytes);
}

pub(super) fn mon_state_seeds() -> Vec<Vec<u8>> {
    state_seeds()
}
