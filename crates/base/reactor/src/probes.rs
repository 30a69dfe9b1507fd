//! Static probes (USDT) of the provider `carmine`: the stages of an operation, as a tracer sees them. `docs/tracing.md` lists them for
//! users, and `tests/tests/probes.rs` compares that list with the program.
//!
//! A probe is one `nop`, and a note in the program's file that says where the `nop` is and which registers have the arguments. A tracer
//! puts a breakpoint in the place of the `nop`; without one nothing looks whether it is there. So arguments are only what the
//! caller has at hand, and a pointer's number stands for an operation: it is in a register already.

/// A function for each probe: they all are in place where they are called, since the note's registers are those of that place.
macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name($($arg: $kind),*) {
                probe::probe!(carmine, $name, $($arg),*);
            }
        )*
    };
}

probes! {
    /// The reactor of the connection sends a client's operation to reactor `to`, which owns its PG.
    op_hopped(client: u64, tid: u64, to: u16);
    /// An operation is decoded, on the reactor that owns its PG. `op` names it in later probes, until it is answered or dropped.
    op_received(op: u64, client: u64, tid: u64, pool: i64, pg_seed: u32);
    /// It waits until its PG is active.
    op_waiting(op: u64);
    /// Other operations of its object come first, or the PG has as many writes in flight as it may have.
    op_queued(op: u64);
    /// It is executed: it reads what it needs from the store.
    op_started(op: u64);
    /// A write is given to the store, and sent to the replicas, with this version number of its PG.
    op_submitted(op: u64, version: u64);
    /// It is durable here.
    op_durable(op: u64);
    /// It is durable on all members of the acting set.
    op_committed(op: u64);
    /// Its answer is handed to the connection. `received_ns` is when it was received, by CLOCK_MONOTONIC; `result` is an errno if
    /// it is negative.
    op_replied(op: u64, client: u64, tid: u64, received_ns: u64, result: i32);
    /// It is dropped without an answer: its client sends it again.
    op_dropped(op: u64);

    /// The primary sends a change to another member of the acting set.
    replica_sent(pool: i64, pg_seed: u32, version: u64, osd: u32);
    /// That member says that all changes up to this version number are durable there.
    replica_acked(pool: i64, pg_seed: u32, version: u64, osd: u32);
    /// A replica gets a change of its primary.
    replica_received(pool: i64, pg_seed: u32, version: u64);
    /// All changes up to this version number are durable on the replica, which tells its primary.
    replica_durable(pool: i64, pg_seed: u32, version: u64);

    /// The store begins to write a group of transactions, as number `seq` of this reactor's log.
    log_begins(seq: u64, txns: u64, log_bytes: u64);
    /// The group is written: durable if it was written through, otherwise in the drive's cache.
    log_ended(seq: u64);
    /// A flush begins, number `flush` of this reactor; `with_data` (0 or 1): it covers data, too.
    flush_begins(flush: u64, with_data: bool);
    /// The flush is done, or has failed.
    flush_ended(flush: u64);
}
