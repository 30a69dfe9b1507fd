//! Messages between the monitor and its clients. The structures hold the layouts of the fronts; data segments (command
//! input and output) travel beside them.

mod maps;
mod pools;
mod session;

pub use maps::{FsMapMsg, GetMap, MgrMapMsg, MonMapMsg, OsdMapMsg};
pub use pools::{GetPoolStats, GetPoolStatsReply, PoolOp, PoolOpReply, StatFs, StatFsReply};
pub use session::{
    Command, CommandAck, ConfigMsg, GetVersion, GetVersionReply, ONETIME, Subscribe, Subscription,
};

/// The 18 bytes that many of them begin with: a map version that the sender knows is all that is used of them. The
/// session's monitor and its transaction id are not.
mod paxos {
    use carmine_codec::{Decoder, Encoder, Result};

    pub(super) const BYTES_MIN: usize = 18;

    pub(super) fn put(version: &u64, e: &mut Encoder<'_>) {
        e.u64(*version);
        e.i16(-1);
        e.u64(0);
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<u64> {
        let version = d.u64()?;
        d.i16()?;
        d.u64()?;
        Ok(version)
    }
}

#[cfg(test)]
mod tests;
