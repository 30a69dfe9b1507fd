//! The parts of an object that are not holes.

use std::ops::Range;

use crate::BLOCK_BYTES;

/// The runs of blocks in this range of bytes that are not holes, cut at both ends.
pub(crate) fn written_runs(bytes: Range<u64>, is_written: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    if bytes.is_empty() {
        return runs;
    }
    for block in
        (bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)).filter(|block| is_written(*block))
    {
        let start = (block * BLOCK_BYTES).max(bytes.start);
        let end = ((block + 1) * BLOCK_BYTES).min(bytes.end);
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_at_both_ends_and_joined_within() {
        let is_written = |block| matches!(block, 0 | 1 | 3);
        assert_eq!(written_runs(100..16_000, is_written), [100..8192, 12_288..16_000]);
        assert_eq!(written_runs(8192..12_288, is_written), []);
        assert_eq!(written_runs(5..5, is_written), []);
        let (after, before) = (5, 4);
        assert_eq!(written_runs(after..before, is_written), []);
    }
}
