//! Admin commands that only this program can answer: how the OSD was configured and built, and `load`, a load from within whose
//! target is a shard's own PGs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use carmine_load::{BenchHost, Geometry, JobSetup, Target, TargetError, object_name, run_job};
use carmine_osd::{AdminAnswer, AdminHook, LocalPgs, LocalReply, OsdShard};
use carmine_osd_daemon::Memory;
use carmine_reactor::{Group, Payload, Shard, ShardId};
use carmine_testbed::Plan;
use carmine_types::OsdId;
use carmine_types::errno::{self, Errno};
use carmine_wire::osd_op::OsdOp;
use serde_json::{Value, json};
use smallvec::smallvec;

use super::Known;
use super::damage::GaveUp;

/// How often a running load's lease is looked at.
const LEASE_POLL: Duration = Duration::from_secs(1);

/// The commands of an OSD that runs by `plan`.
pub(super) fn hook(plan: Arc<Plan>, known: Known, failed: mpsc::Sender<anyhow::Error>) -> Box<dyn AdminHook> {
    Box::new(Commands { plan, known, failed })
}

struct Commands {
    plan: Arc<Plan>,
    known: Known,
    /// Ends the process with an error.
    failed: mpsc::Sender<anyhow::Error>,
}

impl AdminHook for Commands {
    fn answer(&self, osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Option<AdminAnswer> {
        let answer = match prefix {
            "config show" => config(&self.plan, osd.config.id),
            "dump_store" => json!(self.known.facts.as_deref()),
            "git_version" => json!({ "git_version": carmine_daemon::build::GIT_HASH }),
            "load" => {
                let (shard, question) = (osd.shard.clone(), question.clone());
                return Some(Box::pin(async move {
                    shard.call(ShardId(0), move |first| async move { handle(&first, &question) }).await
                }));
            }
            _ => return None,
        };
        Some(Box::pin(async move { Ok(answer) }))
    }

    fn metadata(&self) -> Vec<(String, String)> {
        self.known.metadata.to_vec()
    }

    fn stays_damaged(&self) -> bool {
        self.known.stays_damaged
    }

    fn gave_up(&self, what: &str) {
        // The receiver lives as long as the reactors do.
        let _ = self.failed.send(GaveUp(what.to_owned()).into());
    }

    fn commands(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("config show", "the options that this OSD runs with"),
            (
                "dump_store",
                "the drives of data, log and database, and how writes become durable; null: in memory",
            ),
            ("git_version", "the commit that this program was built from; + if files differed from it"),
        ]
    }
}

/// The plan without its grid, of which only this OSD's row is shown; and how the memory is divided.
fn config(plan: &Plan, osd: OsdId) -> Value {
    let mut config = serde_json::to_value(plan).unwrap_or_default();
    let memory = Memory::from_plan(plan);
    if let Value::Object(map) = &mut config {
        map.remove("grid");
        map.insert("osd".into(), osd.0.into());
        map.insert("cpus".into(), json!(plan.row(osd).ok()));
        map.insert(
            "memory".into(),
            json!({
                "arena_bytes_per_shard": memory.arena_per_shard,
                "onodes_bytes_per_shard": memory.onodes_per_shard,
                "kv_cache_bytes": memory.kv_cache,
                "kv_write_buffer_bytes": memory.kv_write_buffer,
            }),
        );
    }
    config
}

/// The load of this OSD; lives on shard 0, wherever the command arrives.
#[derive(Default)]
struct Host(RefCell<BenchHost>);

fn handle(first: &Shard, question: &Value) -> Result<Value, String> {
    let host = first.local::<Host>().unwrap_or_else(|| {
        let host = Rc::new(Host::default());
        first.set_local(Rc::clone(&host));
        host
    });
    let start = |pool: &str, setups| start_load(first, &host, pool, setups);
    let status = host.0.borrow_mut().handle(question, first.now_ns(), first.shards().into(), start)?;
    serde_json::to_value(status).map_err(|e| e.to_string())
}

/// Starts job N on shard N, and the watch over the lease.
fn start_load(first: &Shard, host: &Rc<Host>, pool: &str, setups: Vec<JobSetup>) {
    for (to, setup) in (0..first.shards()).map(ShardId).zip(setups) {
        let pool = pool.to_owned();
        first.submit_to(to, move |shard| {
            let own = shard.clone();
            shard.spawn(Group::Client, "bench", async move { run_load(&own, &pool, setup).await });
        });
    }
    let (own, host) = (first.clone(), Rc::clone(host));
    first.spawn(Group::Admin, "bench-lease", async move {
        loop {
            own.sleep(LEASE_POLL).await;
            if host.0.borrow_mut().expire(own.now_ns()) {
                break;
            }
        }
    });
}

async fn run_load(shard: &Shard, pool: &str, setup: JobSetup) {
    let target = shard
        .local::<OsdShard>()
        .ok_or_else(|| "the OSD has not started on this reactor".to_owned())
        .and_then(|osd| LocalPgs::new(&osd, pool));
    match target {
        Ok(pgs) => {
            let spec = Arc::clone(&setup.spec);
            let geometry = Geometry::new(&spec, |object| pgs.owns(&object_name(&spec, object)));
            run_job(shard, Rc::new(LocalTarget(pgs)), geometry, setup).await;
        }
        Err(error) => setup.abort(&error),
    }
}

/// The PGs of one reactor.
struct LocalTarget(LocalPgs);

impl LocalTarget {
    async fn one(&self, object: &str, op: OsdOp, data: Payload) -> Result<LocalReply, TargetError> {
        self.0.execute(object, smallvec![op], data).await.map_err(TargetError)
    }
}

fn failed(object: &str, result: i32) -> TargetError {
    TargetError(format!("{object}: {}", Errno(result)))
}

impl Target for LocalTarget {
    async fn read(&self, object: &str, off: u64, len: u64) -> Result<Payload, TargetError> {
        let reply = self.one(object, OsdOp::read(off, len), Payload::new()).await?;
        match reply.result {
            0 => Ok(reply.outputs.into_iter().next().unwrap_or_default()),
            errno::ENOENT => Ok(Payload::new()),
            error => Err(failed(object, error)),
        }
    }

    async fn write(&self, object: &str, off: u64, data: Payload) -> Result<(), TargetError> {
        let len = u32::try_from(data.len()).map_err(|_| TargetError("a write of over 4 GiB".into()))?;
        match self.one(object, OsdOp::write(off, len), data).await?.result {
            0 => Ok(()),
            error => Err(failed(object, error)),
        }
    }

    async fn stat(&self, object: &str) -> Result<Option<u64>, TargetError> {
        let reply = self.one(object, OsdOp::stat(), Payload::new()).await?;
        match reply.result {
            0 => {
                let bytes = reply.outputs.first().map(Payload::to_vec).unwrap_or_default();
                Ok(bytes.first_chunk::<8>().map(|size| u64::from_le_bytes(*size)))
            }
            errno::ENOENT => Ok(None),
            error => Err(failed(object, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    #[test]
    fn the_configuration_names_this_osd_only() {
        let machine = Topology::from_short("1x8x1").unwrap();
        let wish = Wish { osds: Some(2), poll: Some("sleep".into()), ..Wish::default() };
        let shown = config(&Plan::new(&wish, &machine, "f").unwrap(), OsdId(1));
        assert_eq!((&shown["osd"], &shown["poll"]), (&json!(1), &json!("sleep")));
        assert!(shown["cpus"].is_object() && shown.get("grid").is_none(), "{shown}");
        assert!(shown["memory"]["kv_cache_bytes"].as_u64().unwrap() > 0);
    }
}
