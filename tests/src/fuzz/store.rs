//! What lies on a drive: labels, the log, keys and values of the metadata; and attributes, which are data of objects.

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
