//! CRC-32C in Ceph's convention: the running value goes in and comes out without inversion.

pub(crate) fn raw(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}
