//! What lies on a drive: labels, the log, keys and values of the metadata; attributes, which are data of objects; and the
//! monitor's state.

use carmine_mon::{decode_state, state_seeds};
use carmine_osd::{attribute_seeds, decode_attributes};
use carmine_store::blue;

pub(super) fn attributes(bytes: &[u8]) {
    decode_attributes(bytes);
}

pub(super) fn attributes_seeds() -> Vec<Vec<u8>> {
    attribute_seeds()
}

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
