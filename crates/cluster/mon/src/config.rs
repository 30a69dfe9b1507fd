//! The monitor's settings at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carmine_types::{Epoch, OsdId, UTime, Uuid};
use carmine_wire::FEATURES;
use carmine_wire::crushmap::WEIGHT_ONE;
use carmine_wire::osdmap::consts::{POOL_CREATING, STATE_EXISTS, WEIGHT_IN};
use carmine_wire::osdmap::{OsdMap, OsdXinfo, PgPool};

use crate::auth::AuthConfig;
use crate::change::profile::default_profile;

/// Configuration of a monitor.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// An existing folder for the state files.
    pub dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Files that the process may have open (`ulimit -n`): half of them may be connections.
    pub open_files: usize,
    /// When OSDs count as down, and as out.
    pub limits: DownLimits,
    /// When and how maps are made.
    pub rules: MapRules,
    /// How it lets others in; `None`: it asks nobody for a key.
    pub auth: Option<AuthConfig>,
    /// Facts about itself and its machine that `mon metadata` shows, by Ceph's names.
    pub facts: Vec<(String, String)>,
    /// The cluster to make if the folder holds no state; else only its fsid counts.
    pub initial: InitialCluster,
}

carmine_types::defaults! {
    /// When OSDs count as down, and as out; the defaults are Ceph's.
    #[derive(Clone, Copy, Debug)]
    pub struct DownLimits {
        /// Silence towards other OSDs after which one is down (`osd_heartbeat_grace`).
        pub heartbeat_grace: Duration = Duration::from_secs(20),
        /// Other OSDs that must have found it silent, if there are so many (`mon_osd_min_down_reporters`).
        pub min_down_reporters: u16 = 2,
        /// Time without a beacon after which it is down whatever others say (`mon_osd_report_timeout`).
        pub report_timeout: Duration = Duration::from_secs(900),
        /// Time after which one that is down is out; 0: never (`mon_osd_down_out_interval`).
        pub down_out_interval: Duration = Duration::from_secs(600),
    }
}

carmine_types::defaults! {
    /// When and how maps are made.
    #[derive(Clone, Copy, Debug)]
    pub struct MapRules {
        /// Time between two maps: all that is asked within it comes in one (`paxos_propose_interval`; Ceph's default is 1 s). 0: each
        /// change is a map of its own, at once.
        pub propose_interval: Duration = Duration::ZERO,
        /// With a propose interval: the time to the next map where the last one is older than that (`paxos_min_wait`).
        pub min_wait: Duration = Duration::from_millis(50),
        /// Where the next map would change an acting set that a primary has asked for, it stays what it was, as far as Ceph 16.2.15
        /// does that (`mon_osd_prime_pg_temp`; `change/temps.rs`).
        pub primes_pg_temp: bool = true,
    }
}

/// A cluster at its first epoch: all OSDs exist, are in, and down.
#[derive(Clone, Debug)]
pub struct InitialCluster {
    /// Identity.
    pub fsid: Uuid,
    /// Number of OSDs.
    pub osds: u32,
    /// Its first pool, with id 1.
    pub pool: InitialPool,
    /// The name of their host in a cluster of several hosts, to which others will come: copies are on different ones. `None`: there is no
    /// other host, and copies are on different OSDs.
    pub host: Option<String>,
}

/// The first pool.
#[derive(Clone, Debug)]
pub struct InitialPool {
    /// Name.
    pub name: String,
    /// Replicas, 1 to 10.
    pub size: u8,
    /// Replicas needed to take writes.
    pub min_size: u8,
    /// PGs, a power of two.
    pub pg_num: u32,
}

/// Pool ids start at 1, as Ceph's do.
const FIRST_POOL: i32 = 1;

impl InitialCluster {
    /// The map of epoch 1.
    pub(crate) fn map(&self, now: UTime) -> OsdMap {
        let mut map = OsdMap::new(self.fsid, now);
        map.epoch = Epoch(1);
        map.set_max_osd(self.osds);
        map.osd_state.fill(STATE_EXISTS);
        map.osd_weight.fill(WEIGHT_IN);
        map.osd_xinfo.fill(OsdXinfo { features: FEATURES, ..OsdXinfo::default() });
        let weights: Vec<_> = (0..self.osds).map(|id| (OsdId(id), WEIGHT_ONE)).collect();
        map.crush = Arc::new(carmine_crush::build_crush_of_host(&weights, self.host.as_deref()));
        let p = &self.pool;
        let mut pool = PgPool::replicated(p.size, p.min_size, p.pg_num, 0, map.epoch, now);
        pool.flags |= POOL_CREATING;
        // Of one application only: `rbd pool init` is refused, as in Ceph, on a pool of another one.
        pool.application_metadata.insert("rbd".into(), Default::default());
        map.pools.insert(FIRST_POOL.into(), pool);
        map.pool_names.insert(FIRST_POOL.into(), p.name.clone());
        map.pool_max = FIRST_POOL;
        map.erasure_code_profiles.insert("default".into(), default_profile());
        map
    }
}
