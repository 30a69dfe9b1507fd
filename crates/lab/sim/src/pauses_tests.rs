//! How long a single fault keeps clients waiting: a small write to each PG again and again, as `carmine thrash` measures it, in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::Pool;
use carmine_osd::HeartbeatConfig;
use carmine_reactor::{Group, Payload};
use carmine_types::PgId;

use crate::cluster::{Cluster, PGS, POOL, Shape};

const FOUR: u32 = 4;
/// Time between two writes to a PG.
const EVERY: Duration = Duration::from_millis(100);

/// The writes that were acknowledged: when each was sent, and when its answer came.
type Acked = Rc<RefCell<BTreeMap<PgId, Vec<(u64, u64)>>>>;

struct Bed {
    cluster: Cluster,
    acked: Acked,
}

impl Bed {
    /// A cluster of which each PG serves.
    fn new(seed: u64) -> Bed {
        let shape = Shape::new(FOUR, 3, 2, 16 << 20);
        let mut cluster = Cluster::new(seed, shape, [HeartbeatConfig::default(); 2]);
        (0..FOUR).for_each(|osd| cluster.start(osd, 1));
        let acked = Acked::default();
        let acked_by = Rc::clone(&acked);
        let _ = cluster.task("prober", move |client| {
            let acked = Rc::clone(&acked_by);
            async move {
                let pool = client.wait_pool(POOL).await.unwrap();
                for (pg, name) in names(&pool) {
                    client.shard().spawn(
                        Group::Client,
                        "probe",
                        probe(pool.clone(), pg, name, Rc::clone(&acked)),
                    );
                }
                std::future::pending().await
            }
        });
        cluster.run(|| acked.borrow().len() == PGS as usize).unwrap();
        let bed = Bed { cluster, acked };
        // The OSDs know each other by then.
        bed.pass(Duration::from_secs(8 + seed % 5));
        bed
    }

    fn pass(&self, time: Duration) {
        self.cluster.pass(time).unwrap();
    }

    /// From a time until each PG had acknowledged a write that was sent after it; no end if one has not.
    fn longest(&self, since_ns: u64) -> Duration {
        let acked = self.acked.borrow();
        let first =
            |writes: &Vec<(u64, u64)>| writes.iter().find(|(sent, _)| *sent >= since_ns).map(|(_, end)| *end);
        let pause = |end: Option<u64>| end.map_or(Duration::MAX, |end| Duration::from_nanos(end - since_ns));
        acked.values().map(|writes| pause(first(writes))).max().unwrap_or(Duration::MAX)
    }
}

fn names(pool: &Pool) -> BTreeMap<PgId, String> {
    let mut names = BTreeMap::new();
    for n in 0.. {
        let name = format!("probe.{n}");
        names.entry(pool.pg_of(&name).unwrap()).or_insert(name);
        if names.len() == PGS as usize {
            break;
        }
    }
    names
}

async fn probe(pool: Pool, pg: PgId, name: String, acked: Acked) {
    let shard = pool.client().shard().clone();
    loop {
        let sent = shard.now_ns();
        pool.write(&name, 0, Payload::from(vec![1; 512])).await.unwrap();
        acked.borrow_mut().entry(pg).or_default().push((sent, shard.now_ns()));
        shard.sleep(EVERY).await;
    }
}

/// Ceph's own: pings every 0.5 to 6 s, a grace of 20 s.
const GRACE: Duration = Duration::from_secs(20);
/// What a fault may cost beside it.
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn a_stopped_osd_costs_no_more_than_the_grace_and_two_seconds() {
    for osd in 0..FOUR {
        let bed = Bed::new(osd.into());
        let node = bed.cluster.node(osd).unwrap();
        // First shorter than the grace, and soon after it longer.
        for stopped_s in [13, 30] {
            let stopped_ns = bed.cluster.sim.now_ns();
            bed.cluster.sim.stop(node);
            bed.pass(Duration::from_secs(stopped_s));
            let on_ns = bed.cluster.sim.now_ns();
            bed.cluster.sim.go_on(node);
            bed.pass(SLACK);
            let (pause, after) = (bed.longest(stopped_ns), bed.longest(on_ns));
            println!("osd.{osd} stands still for {stopped_s} s: {pause:?}, and {after:?} when it goes on");
            assert!(pause < GRACE + SLACK && after < SLACK, "osd.{osd}, {stopped_s} s: {pause:?}, {after:?}");
        }
    }
}

/// Questions and answers between OSDs are lost with their connections, also in the middle of peering.
#[test]
fn broken_connections_cost_less_than_two_seconds() {
    for seed in 0..2 {
        let bed = Bed::new(seed);
        for round in 0..8u64 {
            let osd = format!("osd.{}", (seed + round) % 4);
            let broken_ns = bed.cluster.sim.now_ns();
            let break_all = || {
                for other in ["osd.0", "osd.1", "osd.2", "osd.3", "mon", "prober"] {
                    bed.cluster.sim.reset_connections(other, &osd, false);
                }
            };
            break_all();
            // Again while the PGs follow, and what was asked meanwhile has no answer yet.
            bed.pass(Duration::from_micros(100 + (seed * 7919 + round * 104_729) % 3_000));
            break_all();
            // Longer than a connection has to last so that the next one is made without a pause.
            bed.pass(Duration::from_secs(6));
            let pause = bed.longest(broken_ns);
            assert!(pause < SLACK, "seed {seed}, round {round}: {pause:?}");
        }
    }
}
