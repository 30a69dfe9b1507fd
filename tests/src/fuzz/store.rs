//! What lies on a drive: labels, and keys and values of the metadata.

use carmine_store::blue;

pub(super) fn on_disk(bytes: &[u8]) {
    blue::decode_any(bytes);
}

pub(super) fn on_disk_seeds() -> Vec<Vec<u8>> {
    blue::decode_seeds()
}
