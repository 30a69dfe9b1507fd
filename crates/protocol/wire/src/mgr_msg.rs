//! Messages of the manager (ceph-mgr 16.2): which one is active, how a daemon opens a session with it, and what an OSD tells it
//! every few seconds: its counters (MMgrReport), its space and its PGs (MPGStats).

mod pg_stats;
mod report;

use carmine_codec::Fields;
use carmine_types::Epoch;

use crate::header::priority;
use crate::{Decoder, Encoder, EntityAddr, EntityAddrVec, Front, Result, kinds};

pub use pg_stats::{OsPerfStat, OsdStat, PgStatsMsg, PingTimes, Pow2Hist, StoreStatFs};
pub use report::{
    CounterType, CounterValue, HealthMetric, MetricReport, MgrReport, OsdMetrics, counter_kind, counter_unit,
    pack,
};

carmine_codec::fields! {
    /// MMgrMap: monitor → whoever subscribes to "mgrmap". Clients that have a command for the active manager connect there, and wait
    /// as long as there is none; daemons send it their reports. Of Ceph's MgrMap it has the fields that they look at. The rest
    /// (standbys, modules, services) is not read and written empty, and the fields after version 6 are left out: without the
    /// features in them a client sends commands as MCommand.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MgrMapMsg {
        pub epoch: Epoch,
        pub addrs: EntityAddrVec,
        pub gid: u64,
        /// False: it has not started, or there is none.
        pub available: bool,
        pub name: String,
    }
}

/// Version of the MgrMap, which is the oldest reader's as well.
const MGR_MAP_VERSION: u8 = 6;

impl MgrMapMsg {
    /// Where the active manager takes connections; `None`: there is none yet.
    #[must_use]
    pub fn active(&self) -> Option<EntityAddr> {
        self.addrs.msgr2().filter(|_| self.available)
    }
}

impl Front for MgrMapMsg {
    const KIND: u16 = kinds::MGR_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(MGR_MAP_VERSION, MGR_MAP_VERSION, |e| {
            self.put_fields(e, MGR_MAP_VERSION.into());
            for _ in ["standbys", "modules", "services", "available modules"] {
                e.count(0);
            }
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MgrMapMsg> {
        let mut map = d.envelope("mgr map", MGR_MAP_VERSION)?;
        MgrMapMsg::get_fields(&mut map.body, map.version.into())
    }
}

/// MMgrOpen v3: a daemon, or a process that offers a service, says to the manager who it is. The service's status and
/// the sender's options follow; they are not read, and may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrOpen {
    /// Without its type: `0` of `osd.0`.
    pub name: String,
    /// Empty for an OSD.
    pub service: String,
    /// Of a service; the manager asks the monitor for a daemon's.
    pub metadata: Vec<(String, String)>,
}

impl MgrOpen {
    /// An OSD or another daemon of Ceph.
    #[must_use]
    pub fn daemon(name: String) -> MgrOpen {
        MgrOpen { name, service: String::new(), metadata: Vec::new() }
    }
}

impl Front for MgrOpen {
    const KIND: u16 = kinds::MGR_OPEN;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.str(&self.name);
        e.str(&self.service);
        let is_service = !self.service.is_empty();
        e.bool(is_service);
        if is_service {
            e.vec(&self.metadata, |e, (key, value)| {
                e.str(key);
                e.str(value);
            });
            e.count(0); // status
        }
        for _ in ["options", "defaults of options"] {
            e.count(0);
        }
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MgrOpen> {
        let (name, service) = (d.string()?, d.string()?);
        let metadata = if d.bool()? { d.map(8, |d| d.string(), |d| d.string())? } else { Vec::new() };
        d.bytes(d.remaining())?;
        Ok(MgrOpen { name, service, metadata })
    }
}

/// MMgrConfigure v4: manager → daemon, the answer to MMgrOpen: what it wants to be told. Questions about the
/// clients of an OSD, and of a metadata server (perf metric queries) follow: nobody needs to answer them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MgrConfigure {
    /// Seconds between two reports (`mgr_stats_period`); 0: none are wanted.
    pub period_s: u32,
    /// Counters of less priority than this need not be told (`mgr_stats_threshold`).
    pub threshold: u32,
}

impl Front for MgrConfigure {
    const KIND: u16 = kinds::MGR_CONFIGURE;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.period_s);
        e.u32(self.threshold);
        e.count(0); // questions to OSDs
        e.bool(false); // questions to others
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MgrConfigure> {
        let (period_s, threshold) = (d.u32()?, d.u32()?);
        d.bytes(d.remaining())?;
        Ok(MgrConfigure { period_s, threshold })
    }
}

#[cfg(test)]
mod tests;
