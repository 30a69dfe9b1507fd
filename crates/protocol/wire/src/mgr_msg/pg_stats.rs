//! MPGStats: an OSD's space and state, and the statistics of the PGs that it leads.

use std::collections::BTreeMap;

use carmine_codec::coded;
use carmine_types::{Epoch, PgId, UTime, Uuid};

use crate::header::messages;
use crate::mon_msg::paxos;
use crate::pg_stat::PgStat;

messages! {
    /// MPGStats v2: OSD → manager. There is no answer.
    pub struct PgStatsMsg: PG_STATS, 2, compat 1 {
        /// Ceph's OSDs send 0.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        pub osd: OsdStat,
        /// PGs that it leads. Those that are left out stay as they were.
        pub pgs: Vec<(PgId, PgStat)>,
        /// The sender's map. The time for which it has had this map follows; nobody reads it.
        pub epoch: Epoch [UTime],
        /// The space that each pool takes on this OSD; empty if [`OsdStat::num_per_pool_osds`] is 0.
        pub pools: BTreeMap<i64, StoreStatFs>,
    }
}

coded! {
    /// `osd_stat_t`: how an OSD is. The sizes in KiB follow from `statfs`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct OsdStat: versioned "osd_stat", 14, compat 2, oldest 14 {
        pub kb: i64,
        /// What is not available.
        pub kb_used: i64,
        pub kb_avail: i64,
        pub snap_trim_queue_len: u32,
        /// PGs that trim snapshots.
        pub num_snap_trimming: u32,
        /// OSDs that its heartbeats watch. A second list follows; nobody reads it.
        pub hb_peers: Vec<i32> [Vec<i32>],
        pub op_queue_age_hist: Pow2Hist,
        pub perf: OsPerfStat,
        /// Epoch in which it came up; 0 before.
        pub up_from: Epoch,
        /// Rises with each message: `up_from` in the upper half, and a counter. `ceph osd last-stat-seq` shows it.
        pub seq: u64,
        /// PGs of which it is a member.
        pub num_pgs: u32,
        pub kb_used_data: i64,
        pub kb_used_omap: i64,
        pub kb_used_meta: i64,
        pub statfs: StoreStatFs,
        /// Alerts of the store by OSD: the name of a health check, and a text. (Two maps; as maps they could take too much memory.)
        pub os_alerts: Vec<(i32, Vec<(String, String)>)>,
        /// Damaged copies that it has restored: a drive that makes many will fail.
        pub num_shards_repaired: i64,
        pub num_osds: u32,
        /// 1: it tells what it has of each pool. If not all OSDs do, the manager counts by the PGs' statistics.
        pub num_per_pool_osds: u32,
        /// The same of omaps.
        pub num_per_pool_omap_osds: u32,
        /// May be empty.
        pub hb_pingtime: Vec<PingTimes>,
    }
}

coded! {
    /// `pow2_hist_t`: how many values have how many bits.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Pow2Hist: versioned "pow2_hist", 1, compat 1, oldest 1 {
        pub bins: Vec<i32>,
    }
}

coded! {
    /// `objectstore_perf_stat_t`: mean times of the last seconds, as `ceph osd perf` shows them. (There is another form with
    /// nanoseconds, which 16.2 does not use.)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsPerfStat: versioned "objectstore_perf_stat", 1, compat 1, oldest 1 {
        pub commit_ms: u32,
        pub apply_ms: u32,
    }
}

coded! {
    /// `store_statfs_t`: a store's space in bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct StoreStatFs: versioned "store_statfs", 1, compat 1, oldest 1 {
        pub total: u64,
        pub available: u64,
        /// Neither used nor available.
        pub internally_reserved: u64,
        /// Taken by data.
        pub allocated: i64,
        /// Bytes of data, before they are rounded up to blocks.
        pub data_stored: i64,
        pub data_compressed: i64,
        pub data_compressed_allocated: i64,
        pub data_compressed_original: i64,
        pub omap_allocated: i64,
        /// Taken by metadata.
        pub internal_metadata: i64,
    }
}

coded! {
    /// How long another OSD takes to answer heartbeats.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PingTimes {
        pub osd: i32,
        /// Unix time of the last change, then for the cluster's and the clients' network, in µs: mean, least and most of 1, 5
        /// and 15 minutes each, and the last one.
        pub figures: [u32; 21],
    }
}
