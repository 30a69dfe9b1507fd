//! The counters of a shard, and the clocks of its operations' stages.

use carmine_metrics::{Gauge, Histogram, StageClocks, Sum, metric_set};

metric_set! {
    /// Counters of one shard. Times are in nanoseconds.
    pub struct ShardMetrics: "osd" {
        /// Client operations that were answered, reads and writes.
        ops: Sum,
        /// Client reads (and listings) that were answered.
        read_ops: Sum,
        /// Client writes that were answered.
        write_ops: Sum,
        /// Bytes returned to clients.
        read_bytes: Sum,
        /// Bytes written by clients.
        write_bytes: Sum,
        /// Operations that arrived on a connection of another shard.
        op_hops: Sum,
        /// Resends that were answered from the PG log.
        dups: Sum,
        /// Operations dropped because they were not ours or too many waited. Their clients resend them.
        ops_dropped: Sum,
        /// Transactions applied for other primaries.
        replica_ops: Sum,
        /// Times that a PG became active, as primary.
        activations: Sum,
        /// Objects copied to replicas at activation.
        objects_pushed: Sum,
        /// Times that an operation met a block with a bad checksum, or one that the drive could not read.
        blocks_lost: Sum,
        /// Such blocks that were restored from another copy.
        blocks_healed: Sum,
        /// Scrubs that completed.
        scrubs: Sum,
        /// Bad copies that scrubs found.
        scrub_errors: Sum,
        /// Objects that scrubs repaired.
        scrub_repaired: Sum,
        /// Operations not answered within the complaint time.
        slow_ops: Gauge,
        /// Memory of clients' requests in flight and of unsent answers, as last measured.
        request_bytes: Gauge,
        /// Replies with an error.
        errors: Sum,
        /// Time in the OSD of a read, from decoded to answered.
        read_latency_ns: Histogram,
        /// Time in the OSD of a write, from decoded to answered.
        write_latency_ns: Histogram,
    }
}

/// Stages of an operation, in order; each begins where the one before ends. Reads have no `store` and no `replicate`.
pub(crate) const STAGES: [&str; 5] = ["queue", "execute", "store", "replicate", "reply"];
/// From decoded until it runs.
pub(crate) const QUEUE: usize = 0;
/// Checks, loading, reading or submitting.
pub(crate) const EXECUTE: usize = 1;
/// Until durable here.
pub(crate) const STORE: usize = 2;
/// Until durable on the last replica as well.
pub(crate) const REPLICATE: usize = 3;
/// Encoding and handing over to the connection.
pub(crate) const REPLY: usize = 4;

/// Stage clocks of one shard.
pub(crate) type Stages = StageClocks<5>;
