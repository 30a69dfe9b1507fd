//! What each side leaves undone while it is measured: a comparison is only fair to a reader who knows it.

use serde::{Deserialize, Serialize};

use crate::plan::PeerPlan;

/// Work that one side does and the other does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contrast {
    /// What Carmine does not do.
    pub carmine_does_not: Vec<String>,
    /// What this Ceph does not do.
    pub ceph_does_not: Vec<String>,
}

const CARMINE: [&str; 9] = [
    "authenticate (cephx)",
    "scrub, or repair a bad block from a replica",
    "snapshots, clones, erasure coding, compression",
    "enforce min_size",
    "heartbeats between OSDs; it stays up until its process ends",
    "schedule clients against recovery by QoS (mClock, wpq priorities)",
    "track operations for dump_historic_ops",
    "keep statistics per PG for a manager",
    "cache data in `blue`: every read goes to the device and is checked against its CRC",
];

const CEPH: [&str; 4] = [
    "authenticate (auth none)",
    "scrub (noscrub and nodeep-scrub are set)",
    "report to a manager (none runs): no balancer, no PG autoscaler",
    "check the CRC of data that it reads from its cache",
];

/// The lists for a comparison with `plan`.
pub fn contrast(plan: &PeerPlan) -> Contrast {
    let mut ceph: Vec<String> = CEPH.map(str::to_owned).to_vec();
    if plan.tuned {
        ceph.push("gather debug logs in memory (levels 0/0)".into());
    }
    Contrast { carmine_does_not: CARMINE.map(str::to_owned).to_vec(), ceph_does_not: ceph }
}
