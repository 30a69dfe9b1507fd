//! Helpers of the client's tests.

pub(crate) use carmine_testkit::{both, finish, start, until};

/// Content that tells its writer.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + (at >> 8)) as u8).collect()
}
