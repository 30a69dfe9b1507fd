//! `carmine-mon`: the monitor process of a testbed.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program starts the reactor and reads what the testbed left in files"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use carmine_auth::issuer::Validity;
use carmine_daemon::{ended, logging, signals};
use carmine_mon::{AuthConfig, DownLimits, InitialCluster, InitialPool, MapRules, Mon, MonConfig, MonError};
use carmine_reactor::{Config, PollPolicy, Reactors, Shard};
use carmine_testbed::{Daemon, Layout, Plan, mon_keyring, process, require_plan, write_whole};
use carmine_types::{AuthKind, MonKind, UTime};
use clap::Parser;

/// The monitor's I/O buffers: it moves maps of some kilobytes.
const ARENA_BYTES: usize = 16 << 20;

/// The monitor of a testbed. `carmine up` starts it. It listens where `testbed.json` says, on anything but loopback only if that has
/// the setting `insecure` (`carmine up --insecure`).
#[derive(Parser)]
#[command(name = "carmine-mon", version)]
struct Args {
    /// Folder of the testbed
    #[arg(long, value_name = "FOLDER", default_value = "carmine-testbed")]
    dir: PathBuf,
}

fn main() -> ExitCode {
    carmine_daemon::main(run)
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::keep_private();
    let layout = Layout::new(&args.dir)?;
    let plan = require_plan(&layout)?;
    plan.refuse_exposure()?;
    process::detach();
    if plan.auth == AuthKind::Cephx {
        process::leave_no_core();
    }
    logging::start();
    if let Some(warning) = plan.exposure_warning() {
        tracing::warn!("{warning}");
    }
    Ok(ended(serve(&layout, &plan)))
}

/// Runs the monitor until it is asked to stop, or fails.
fn serve(layout: &Layout, plan: &Plan) -> anyhow::Result<()> {
    process::restrict_to(&plan.grid.system_cpus().to_vec())?;
    let config = config(layout, plan)?;
    let reactor = Config {
        name: "mon".into(),
        cpus: vec![None],
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        arena_bytes_per_shard: ARENA_BYTES,
        ..Config::default()
    };
    let (result_to, end) = mpsc::channel();
    let addr_file = layout.mon_addr();
    // The port of the last run may be in use by another process now.
    let fallback = plan.addr.port() == 0;
    let reactors = Reactors::start(reactor, move |shard: Shard| {
        let (config, addr_file, result_to) = (config.clone(), addr_file.clone(), result_to.clone());
        async move {
            let result = async {
                let mon = open(&shard, config, fallback).await?;
                write_whole(&addr_file, format!("{}\n", mon.local_addr()).as_bytes())?;
                mon.serve().await.map_err(anyhow::Error::from)
            };
            let _ = result_to.send(result.await);
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

/// How it lets others in.
fn auth(layout: &Layout, plan: &Plan) -> anyhow::Result<Option<AuthConfig>> {
    let Some(keyring) = mon_keyring(layout, plan)? else { return Ok(None) };
    let mut validity = Validity::default();
    if plan.auth_ticket_ttl_s > 0 {
        let ttl = UTime { sec: plan.auth_ticket_ttl_s, nsec: 0 };
        validity = Validity { service: ttl, auth: ttl };
    }
    Ok(Some(AuthConfig { keyring, validity, modes: vec![plan.ms_mode] }))
}

fn config(layout: &Layout, plan: &Plan) -> anyhow::Result<MonConfig> {
    let port = if plan.addr.port() == 0 { plan.mon_port } else { plan.addr.port() };
    Ok(MonConfig {
        dir: layout.mon_dir(0),
        listen: SocketAddr::new(plan.ip_of(Daemon::MON), port),
        open_files: process::raise_open_files(),
        limits: DownLimits {
            heartbeat_grace: Duration::from_secs(plan.osd_heartbeat_grace_s.into()),
            down_out_interval: Duration::from_secs(plan.mon_osd_down_out_interval_s.into()),
            ..DownLimits::default()
        },
        rules: MapRules {
            propose_interval: Duration::from_secs(plan.paxos_propose_interval_s.into()),
            primes_pg_temp: plan.mon_osd_prime_pg_temp,
            ..MapRules::default()
        },
        auth: auth(layout, plan)?,
        facts: carmine_daemon::machine::facts(MonKind::Embedded),
        initial: InitialCluster {
            fsid: plan.fsid.parse().map_err(|e| anyhow!("fsid of the plan: {e}"))?,
            osds: plan.osds(),
            pool: InitialPool {
                name: plan.pool.name.clone(),
                size: plan.pool.size,
                min_size: plan.pool.min_size,
                pg_num: plan.pool.pg_num,
            },
            host: plan.host.clone(),
        },
    })
}
