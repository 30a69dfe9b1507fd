//! What a mount says of the replay of the log.

use std::fmt;

/// What a mount found in the log and did with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Lanes that had something to replay.
    pub lanes: u64,
    /// Groups replayed.
    pub groups: u64,
    /// Transactions replayed.
    pub txns: u64,
    /// Transactions that were in the log but whose data was not on the device: they had not been acknowledged.
    pub dropped_txns: u64,
    /// Blocks that were written from the log.
    pub blocks_written: u64,
    /// Nanoseconds.
    pub duration_ns: u64,
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplayReport { lanes, groups, txns, dropped_txns, blocks_written, duration_ns } = self;
        write!(
            f,
            "{lanes} lanes, {groups} groups, {txns} transactions, {blocks_written} blocks written to their places, "
        )?;
        write!(f, "{dropped_txns} transactions without their data, in {:.3} s", *duration_ns as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_each_count_and_the_time() {
        let report = ReplayReport {
            lanes: 2,
            groups: 30,
            txns: 400,
            dropped_txns: 1,
            blocks_written: 5,
            duration_ns: 1_234_567_890,
        };
        assert_eq!(
            report.to_string(),
            "2 lanes, 30 groups, 400 transactions, 5 blocks written to their places, 1 transactions without their data, in 1.235 s"
        );
    }
}
