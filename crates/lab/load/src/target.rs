//! Targets of a load: named objects, such as a pool of a cluster over Carmine's own client.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{
    BYTES_IN_FLIGHT, Client, ClientError, OPS_IN_FLIGHT, OPS_IN_FLIGHT_MAX, Options, Pool, RouteMode,
};
use carmine_reactor::{Payload, Shard};
use thiserror::Error;

use crate::job::{JobSetup, run_job};
use crate::pattern::Geometry;
use crate::spec::{LoadSpec, Route};

/// Operations beside those of the workers: statting and prefilling.
const OPS_MORE: usize = 64;
/// A running testbed answers within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// An operation that failed, with the target's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// Named objects that can be read and written: a pool of a cluster, the PGs of one reactor, or a bare store.
pub trait Target {
    /// Reads up to `len` bytes; short at the end of the object, empty if there is none.
    fn read(&self, object: &str, off: u64, len: u64) -> impl Future<Output = Result<Payload, TargetError>>;

    /// Writes; resolves when the write is acknowledged.
    fn write(&self, object: &str, off: u64, data: Payload) -> impl Future<Output = Result<(), TargetError>>;

    /// Size of an object, `None` if it does not exist.
    fn stat(&self, object: &str) -> impl Future<Output = Result<Option<u64>, TargetError>>;
}

/// Connects a client of its own for one job of `spec`. Operations have no limit of time: they wait for their PG as
/// Ceph's do, and the load's end abandons them.
async fn connect(shard: &Shard, mon: SocketAddr, pool: &str, spec: &LoadSpec) -> Result<Pool, ClientError> {
    let ops = (spec.iodepth as usize + OPS_MORE).max(OPS_IN_FLIGHT);
    let bytes = (spec.bs_bytes as usize).saturating_mul(ops);
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
    Client::connect(shard, mon, options).await?.wait_pool(pool).await
}

fn words(error: ClientError) -> TargetError {
    TargetError(error.to_string())
}

impl Target for Pool {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        match Pool::read(self, object, off, len).await {
            Err(error) if error.is_not_found() => Ok(Payload::new()),
            other => other.map_err(words),
        }
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        Pool::write(self, object, off, data).await.map(drop).map_err(words)
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        match Pool::stat(self, object).await {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(|stat| Some(stat.size)).map_err(words),
        }
    }
}

/// Connects and runs one job against a pool.
pub async fn run_cluster_job(shard: &Shard, mon: SocketAddr, pool: &str, setup: JobSetup) {
    match connect(shard, mon, pool, setup.spec()).await {
        Ok(pool) => {
            let geometry = Geometry::dealt(setup.spec(), setup.job());
            run_job(shard, Rc::new(pool), geometry, setup).await;
        }
        Err(error) => setup.abort(&error.to_string()),
    }
}
