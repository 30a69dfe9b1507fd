//! `carmine store bench`: the load generator on a bare store.

mod args;
mod compaction;
mod figures;
mod make;
mod probe;
mod target;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use carmine_bench::archive::write_json;
use carmine_bench::sample::host_report;
use carmine_load::{Geometry, LoadSpec, run_job};
use carmine_reactor::{Config, Group, Shard, ShardId, sync};
use carmine_store::{Store, StoreShared};
use serde_json::json;

use carmine_bench::raw::{self, Edge};
use carmine_daemon::signals;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::print;
use compaction::Compactor;
use figures::Row;
use make::Bare;
use probe::{Probe, Reading};
use target::{StoreTarget, owner};

pub(crate) use args::StoreBenchArgs;

/// 0: measured; 1: it failed or was interrupted; 2: it can't be measured as asked.
pub(crate) fn run(args: &StoreBenchArgs) -> anyhow::Result<ExitCode> {
    let cancel = signals::cancel_flag()?;
    let specs = args.specs();
    for spec in &specs {
        spec.check().map_err(|e| Usage(e.to_string()))?;
    }
    let bare = Bare::make(args)?;
    print(&format!("{}\n{}\n", bare.describe(), figures::header()))?;
    let mut rows = Vec::new();
    let windows: &[bool] = if args.compaction.is_some() { &[false, true, true, false] } else { &[false] };
    for (spec, compacts) in
        specs.iter().flat_map(|spec| windows.iter().map(move |compacts| (spec, *compacts)))
    {
        let compactor = if compacts { bare.compactor()? } else { None };
        let measured = measure(args, &bare, spec, &cancel);
        compactor.map_or(Ok(()), Compactor::end)?;
        let row = measured?.with_compaction(compacts);
        print(&format!("{}\n", row.text()))?;
        rows.push(row);
    }
    if let Some(path) = &args.json {
        let value = json!({
            "store": bare.kind().to_string(), "on": bare.facts(), "host": host_report(), "rows": rows,
        });
        write_json(path, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One load on the store, mounted for it.
fn measure(args: &StoreBenchArgs, bare: &Bare, spec: &LoadSpec, cancel: &AtomicBool) -> anyhow::Result<Row> {
    let config = raw::on_cpus(spec, &args.cpus(), args.reactors());
    let probe = Arc::new(Probe::new(spec.numjobs));
    let (mut begin, mut end) = (None, None);
    let (shared, asked) = (bare.parts(), Arc::clone(&probe));
    let mut on_edge = |edge: Edge| {
        let reading = Reading::take(&probe)?;
        *(if edge == Edge::Begin { &mut begin } else { &mut end }) = Some(reading);
        Ok(())
    };
    let measured = raw::run(spec, config, cancel, &mut on_edge, move |shard, setup| {
        let (parts, probe) = (shared.clone(), Arc::clone(&asked));
        async move {
            match open(&shard, &parts).await {
                Ok(store) => {
                    let (own, answered) = (shard.clone(), store.clone());
                    shard.spawn(Group::Admin, "probe", async move { probe.answer(&own, &answered).await });
                    let (me, shards) = (u32::from(shard.id().0), u32::from(shard.shards()));
                    let geometry =
                        Geometry::new(setup.spec(), |object| owner(setup.spec(), object, shards) == me);
                    let target = StoreTarget::new(&store);
                    run_job(&shard, std::rc::Rc::new(target), geometry, setup).await;
                    if let Err(error) = store.umount().await {
                        tracing::error!(%error, "cannot unmount the store");
                    }
                }
                Err(error) => setup.abort(&error),
            }
        }
    })?;
    let (Some(begin), Some(end)) = (begin, end) else { anyhow::bail!("the load had no window") };
    Ok(Row::new(spec, &measured, &begin, &end))
}

/// Shard 0 mounts the store and tells the others.
async fn open(shard: &Shard, parts: &make::Parts) -> Result<Store, String> {
    let shared = if shard.id() == ShardId(0) {
        let shared = parts.mount(shard).await?;
        for to in (1..shard.shards()).map(ShardId) {
            let shared = shared.clone();
            shard.submit_to(to, move |shard| inbox(shard).give(shared));
        }
        shared
    } else {
        inbox(shard).take().await
    };
    Store::open_shard(&shared, shard).await.map_err(|error| error.to_string())
}

/// Where a shard finds the store that shard 0 has mounted.
#[derive(Default)]
struct Inbox {
    store: std::cell::RefCell<Option<StoreShared>>,
    told: sync::Notify,
}

fn inbox(shard: &Shard) -> std::rc::Rc<Inbox> {
    shard.local::<Inbox>().unwrap_or_else(|| {
        let inbox = std::rc::Rc::<Inbox>::default();
        shard.set_local(std::rc::Rc::clone(&inbox));
        inbox
    })
}

impl Inbox {
    fn give(&self, store: StoreShared) {
        *self.store.borrow_mut() = Some(store);
        self.told.notify_all();
    }

    async fn take(&self) -> StoreShared {
        loop {
            if let Some(store) = self.store.borrow_mut().take() {
                return store;
            }
            self.told.notified().await;
        }
    }
}

impl StoreBenchArgs {
    /// The reactors, but for their CPUs.
    fn reactors(&self) -> Config {
        let aliens = self.alien_cpus.as_ref().map(|cpus| cpus.to_vec()).unwrap_or_default();
        let own = self.cpus();
        Config {
            name: "store".into(),
            poll: self.poll,
            alien_threads: self.alien_threads.into(),
            alien_shares_cpu: aliens.iter().any(|cpu| own.contains(cpu)),
            alien_cpus: aliens,
            ..Config::default()
        }
    }
}
