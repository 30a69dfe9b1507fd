//! A pool of a cluster as the target, over Carmine's own client.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{
    BYTES_IN_FLIGHT, Client, ClientError, OPS_IN_FLIGHT, OPS_IN_FLIGHT_MAX, Options, Pool, RouteMode,
};
use carmine_reactor::{Payload, Shard};

use crate::job::{JobSetup, run_job};
use crate::pattern::Geometry;
use crate::spec::{LoadSpec, Route};
use crate::target::{Target, TargetError};

/// Operations beside those of the workers: statting and prefilling.
const OPS_MORE: usize = 64;
/// A running testbed answers within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// A pool of a cluster.
#[derive(Debug)]
pub struct ClusterTarget {
    pool: Pool,
}

impl ClusterTarget {
    /// Connects a client of its own for one job of `spec`. Operations have no limit of time: they wait for their PG as
    /// Ceph's do, and the load's end abandons them.
    pub async fn connect(
        shard: &Shard,
        mon: SocketAddr,
        pool: &str,
        spec: &LoadSpec,
    ) -> Result<ClusterTarget, TargetError> {
        let ops = (spec.iodepth as usize + OPS_MORE).max(OPS_IN_FLIGHT);
        let bytes = usize::try_from(spec.bs_bytes).unwrap_or(usize::MAX).saturating_mul(ops);
        let options = Options {
            route: match spec.route {
                Route::Direct => RouteMode::Direct,
                Route::Single => RouteMode::Single,
            },
            connect_timeout: CONNECT_TIMEOUT,
            ops_in_flight: ops.min(OPS_IN_FLIGHT_MAX),
            bytes_in_flight: bytes.max(BYTES_IN_FLIGHT),
            ..Options::default()
        };
        let client = Client::connect(shard, mon, options).await.map_err(words)?;
        let pool = client.wait_pool(pool).await.map_err(words)?;
        Ok(ClusterTarget { pool })
    }
}

fn words(error: ClientError) -> TargetError {
    TargetError(error.to_string())
}

impl Target for ClusterTarget {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        match self.pool.read(object, off, len).await {
            Err(error) if error.is_not_found() => Ok(Payload::new()),
            other => other.map_err(words),
        }
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        self.pool.write(object, off, data).await.map(drop).map_err(words)
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        match self.pool.stat(object).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(|stat| Some(stat.size)).map_err(words),
        }
    }
}

/// Connects and runs one job against a pool.
pub async fn run_cluster_job(shard: &Shard, mon: SocketAddr, pool: &str, setup: JobSetup) {
    match ClusterTarget::connect(shard, mon, pool, setup.spec()).await {
        Ok(target) => {
            let geometry = Geometry::dealt(setup.spec(), setup.job());
            run_job(shard, Rc::new(target), geometry, setup).await;
        }
        Err(error) => setup.abort(&error.to_string()),
    }
}
