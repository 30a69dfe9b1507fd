//! The monitor process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::{Context, anyhow};
use carmine_mon::{InitialCluster, InitialPool, Mon, MonConfig, MonError};
use carmine_reactor::{Config, PollPolicy, Reactors, Shard};
use carmine_testbed::{Layout, Plan, process, require_plan, write_whole};

use crate::args::DirArgs;
use crate::{logging, output, signals};

/// The monitor's I/O buffers: it moves maps of some kilobytes.
const ARENA_BYTES: usize = 16 << 20;

pub(crate) fn run(args: &DirArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir)?;
    let plan = require_plan(&layout)?;
    process::detach();
    logging::start();
    Ok(output::ended(serve(&layout, &plan)))
}

/// Runs the monitor until it is asked to stop, or fails.
fn serve(layout: &Layout, plan: &Plan) -> anyhow::Result<()> {
    process::restrict_to(&plan.client_cpus().to_vec())?;
    let config = config(layout, plan)?;
    let reactor = Config {
        name: "mon".into(),
        cpus: vec![None],
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        arena_bytes_per_shard: ARENA_BYTES,
        ..Config::default()
    };
    let (ended, end) = mpsc::channel();
    let addr_file = layout.mon_addr();
    // A port that was merely the last one may have been taken by somebody else meanwhile.
    let fallback = plan.port == 0;
    let reactors = Reactors::start(reactor, move |shard: Shard| {
        let (config, addr_file, ended) = (config.clone(), addr_file.clone(), ended.clone());
        async move {
            let result = async {
                let mon = open(&shard, config, fallback).await?;
                write_whole(&addr_file, format!("{}\n", mon.local_addr()).as_bytes())?;
                mon.serve().await.map_err(anyhow::Error::from)
            };
            let _ = ended.send(result.await);
            shard.stop();
        }
    })
    .context("cannot start the reactor")?;
    let stopper = reactors.stopper();
    signals::on_stop(move || stopper.stop())?;
    reactors.join().context("the reactor failed")?;
    match end.try_recv() {
        Ok(Err(e)) => Err(e),
        _ => Ok(()),
    }
}

async fn open(shard: &Shard, config: MonConfig, fallback: bool) -> anyhow::Result<std::rc::Rc<Mon>> {
    match Mon::open(shard, config.clone()).await {
        Err(MonError::Listen { addr, source }) if fallback && addr.port() != 0 => {
            tracing::info!("port {} is not free any more ({source}): taking another", addr.port());
            let listen = SocketAddr::new(addr.ip(), 0);
            Ok(Mon::open(shard, MonConfig { listen, ..config }).await?)
        }
        other => Ok(other?),
    }
}

fn config(layout: &Layout, plan: &Plan) -> anyhow::Result<MonConfig> {
    let port = if plan.port == 0 { plan.mon_port } else { plan.port };
    Ok(MonConfig {
        dir: layout.mon_dir(),
        listen: SocketAddr::new(plan.addr, port),
        open_files: process::raise_open_files(),
        initial: InitialCluster {
            fsid: plan.fsid.parse().map_err(|e| anyhow!("fsid of the plan: {e}"))?,
            osds: plan.osds(),
            pool: InitialPool {
                name: plan.pool.name.clone(),
                size: plan.pool.size,
                min_size: plan.pool.min_size,
                pg_num: plan.pool.pg_num,
            },
        },
    })
}
