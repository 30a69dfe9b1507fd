//! `carmine-osd`: one OSD process. Builds its reactors by the testbed's plan, opens its store, and runs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program starts the reactors and reads what the testbed left in files"
)]

mod damage;
mod hook;
mod metadata;
mod mkfs;
mod slowdown;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, anyhow};
use carmine_daemon::{logging, signals};
use carmine_load::drive::StoreFacts;
use carmine_osd::{
    CrushPlace, Gates, HeartbeatConfig, LogLimits, OsdConfig, OsdShard, RecoveryOptions, RunOptions, caps_of,
    leave, measure_load, serve_admin_socket, serve_http,
};
use carmine_osd_daemon::{Memory, store};
use carmine_reactor::{Config, Group, REGISTER_BYTES, Reactors, Shard, ShardId};
use carmine_store::StoreShared;
use carmine_testbed::drive::facts;
use carmine_testbed::{
    Daemon, Layout, Plan, access_of_osd, confine, mon_addrs, process, require_plan, write_whole,
};
use carmine_types::{AuthKind, MonKind, OsdId, StoreKind};
use clap::Parser;

use metadata::Metadata;

/// The device class of Carmine's OSDs in a cluster with a real monitor: rules choose them by it.
const DEVICE_CLASS: &str = "carmine";
/// Time between two checks that the store still works.
const STORE_WATCH: Duration = Duration::from_secs(1);
/// Time between two checks whether the OSD is to stop.
const STOP_WATCH: Duration = Duration::from_millis(50);
/// Time in which an alien thread writes a line, under `sim`.
const WRITE_NS: u64 = 100_000;

/// One OSD of a testbed. `carmine up` starts it. It listens where `testbed.json` says, on anything but loopback only if that has the
/// setting `insecure` (`carmine up --insecure`).
#[derive(Parser)]
#[command(name = "carmine-osd", version)]
struct Args {
    /// Folder of the testbed
    #[arg(long, value_name = "FOLDER", default_value = "carmine-testbed")]
    dir: PathBuf,
    /// Number of the OSD
    #[arg(long)]
    id: u32,
    /// Make the store and end; prints progress
    #[arg(long)]
    mkfs: bool,
    /// With --mkfs: overwrite a device that is not blank
    #[arg(long, requires = "mkfs")]
    force_wipe: bool,
}

fn main() -> ExitCode {
    carmine_daemon::main(run)
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::keep_private();
    let layout = Layout::new(&args.dir)?;
    let mut plan = require_plan(&layout)?;
    let osd = OsdId(args.id);
    plan.require_osd(osd)?;
    // `carmine osd restart --reactors` may have given it another number than the rest.
    plan.cpu.reactors = plan.row(osd)?.reactor_count();
    if args.mkfs {
        mkfs::run(&layout, &plan, osd, args.force_wipe)?;
        return Ok(ExitCode::SUCCESS);
    }
    plan.refuse_exposure()?;
    process::detach();
    if plan.auth == AuthKind::Cephx {
        process::leave_no_core();
    }
    process::record_own(&layout, Daemon::Osd(osd))?;
    confine::enter(&layout, osd)?;
    logging::start();
    if let Some(warning) = plan.exposure_warning() {
        tracing::warn!("{warning}");
    }
    say_memory(&Memory::from_plan(&plan));
    let config = || config(&layout, &plan, osd);
    Ok(damage::unless_damaged(&layout, osd, config, |config| serve(&layout, &plan, config)))
}

fn say_memory(memory: &Memory) {
    if memory.is_short() {
        tracing::warn!("memory {memory}: that is more than it may have; raise --osd-memory");
    } else {
        tracing::info!("memory {memory}");
    }
}

/// The reactors, pinned as planned, or confined to the CPUs of the OSDs.
fn reactors(plan: &Plan, osd: OsdId) -> anyhow::Result<Config> {
    let row = plan.row(osd)?;
    let pinned = || row.reactor_cpus().into_iter().map(Some).collect();
    Ok(Config {
        name: osd.to_string(),
        cpus: row.floating.as_ref().map_or_else(pinned, |floating| vec![None; floating.reactors]),
        poll: plan.poll.parse()?,
        alien_threads: plan.alien_threads.into(),
        // Aliens of reactors that are not pinned run where these do.
        alien_cpus: if row.floating.is_some() && row.aliens.own {
            Vec::new()
        } else {
            row.aliens.cpus.to_vec()
        },
        alien_shares_cpu: row.aliens.own,
        arena_bytes_per_shard: Memory::from_plan(plan).arena_per_shard,
        register_bytes: if plan.store == StoreKind::Blue { REGISTER_BYTES } else { 0 },
        ..Config::default()
    })
}

/// Options that the environment sets by their names (`carmine up --osd-env`); the plan has those of recovery.
fn options(plan: &Plan) -> anyhow::Result<RunOptions> {
    let mut options = RunOptions::default();
    for name in RunOptions::names() {
        if let Ok(value) = std::env::var(name) {
            options.set(name, &value).map_err(|why| anyhow!(why))?;
        }
    }
    options.recovery = RecoveryOptions {
        max_backfills: plan.osd_max_backfills,
        max_active: plan.osd_recovery_max_active,
        retry_interval: Duration::from_secs(plan.osd_backfill_retry_interval_s.into()),
        bytes_per_second: plan.osd_recovery_bytes_per_second,
    };
    Ok(options)
}

fn config(layout: &Layout, plan: &Plan, osd: OsdId) -> anyhow::Result<OsdConfig> {
    let mons = mon_addrs(layout).context("the monitor is not running: there is no run/mon.addr")?;
    Ok(OsdConfig {
        id: osd,
        uuid: plan.store_uuid(osd)?,
        listen: plan.ip_of(Daemon::Osd(osd)),
        cluster: plan.cluster_ip,
        nonce: std::process::id(),
        gates: Gates::within(process::raise_open_files()),
        caps_of, // nobody is authenticated
        heartbeat: HeartbeatConfig {
            interval: Duration::from_secs(plan.osd_heartbeat_interval_s.into()),
            grace: Duration::from_secs(plan.osd_heartbeat_grace_s.into()),
            ..HeartbeatConfig::default()
        },
        request_bytes_per_shard: Memory::from_plan(plan).requests_per_shard,
        options: options(plan)?,
        log: LogLimits::default(),
        access: access_of_osd(layout, plan, osd, mons)?,
        mon_kind: plan.mon,
        crush: crush_place(plan, osd)?,
    })
}

/// Its place in the CRUSH map; the monitor of a testbed knows the places of the testbed's own OSDs.
fn crush_place(plan: &Plan, osd: OsdId) -> anyhow::Result<Option<CrushPlace>> {
    let is_embedded = plan.mon == MonKind::Embedded;
    if is_embedded && plan.joined.is_none() {
        return Ok(None);
    }
    let (location, weight) = plan.crush_place(osd)?;
    // There are no others in a testbed; its monitor gives an OSD the class of its drive.
    let class = (!is_embedded).then(|| DEVICE_CLASS.to_owned());
    Ok(Some(CrushPlace { weight, location, class }))
}

/// Runs the OSD until it is asked to stop, or fails.
fn serve(layout: &Layout, plan: &Plan, config: OsdConfig) -> anyhow::Result<()> {
    let (osd, config) = (config.id, Arc::new(config));
    let (row, reactors) = (plan.row(osd)?, reactors(plan, osd)?);
    // For the threads that nobody pins: RocksDB's, the signal handler's, this one.
    process::restrict_to(&row.aliens.cpus.to_vec())?;
    let _slice = store::lock_slice(layout, plan, osd)?;
    let kv = store::open_kv(layout, plan, osd)?;
    let (failed, failure) = mpsc::channel();
    let (layout, plan) = (layout.clone(), plan.clone());
    let facts = facts::read(&layout, &plan, osd).map(Arc::new);
    if let Some(facts) = &facts {
        tracing::info!("{}; {}: {}", facts.line(), facts.flush_mode, facts.flush_reason);
        tracing::info!("I/O path {}: {}", facts.io_path, facts.io_path_reason);
    }
    let metadata: Metadata = metadata::collect(&layout, &plan, osd, facts.as_deref()).into();
    let stays_damaged = layout.damage_accepted(osd).exists();
    let known = Known { metadata, facts, stays_damaged };
    if let Some(floating) = &row.floating {
        // The reactors inherit it.
        process::restrict_to(&floating.cpus.to_vec())?;
    }
    let asked = Arc::new(AtomicBool::new(false));
    let ask = Arc::clone(&asked);
    let running = Reactors::start(reactors, move |shard: Shard| {
        let asked = Arc::clone(&asked);
        let (layout, plan, config, kv, failed) =
            (layout.clone(), plan.clone(), Arc::clone(&config), kv.clone(), failed.clone());
        let known = known.clone();
        async move {
            // Shard 0 opens what all share, then starts the others.
            if shard.id() != ShardId(0) {
                return;
            }
            shard.spawn(Group::Admin, "leave", leave_when(shard.clone(), asked));
            let started = async {
                let store = store::open(&shard, &layout, &plan, osd, kv, known.facts.as_deref()).await?;
                let (has_network, plan) = (plan.namespaces, Arc::new(plan));
                for to in (1..shard.shards()).map(ShardId) {
                    let parts = (Arc::clone(&plan), Arc::clone(&config), store.clone(), known.clone());
                    let failed = failed.clone();
                    shard.submit_to(to, move |shard| start_shard(shard, parts, failed));
                }
                let osd = run_shard(&shard, (plan, config, store, known), failed.clone()).await?;
                show_live(&osd, &layout, has_network).await
            };
            if let Err(e) = started.await {
                give_up(&shard, &failed, e);
            }
        }
    })
    .context("cannot start the reactors")?;
    signals::on_stop(move || ask.store(true, Ordering::Relaxed))?;
    // Its store then says which file it was, and ends it in order.
    signals::survive_file_limit()?;
    running.join().context("a reactor failed")?;
    match failure.try_recv() {
        Ok(e) => Err(e),
        Err(_) => Ok(()),
    }
}

/// Says goodbye and stops when it is asked to.
async fn leave_when(shard: Shard, asked: Arc<AtomicBool>) {
    while !asked.load(Ordering::Relaxed) {
        shard.sleep(STOP_WATCH).await;
    }
    leave(&shard).await;
    shard.stop();
}

/// Every shard of an OSD is started with these.
type Parts = (Arc<Plan>, Arc<OsdConfig>, StoreShared, Known);

/// Facts that were looked up before the reactors ran.
#[derive(Clone)]
struct Known {
    metadata: Metadata,
    /// `None`: the store is in memory.
    facts: Option<Arc<StoreFacts>>,
    /// It was told to serve what it can read.
    stays_damaged: bool,
}

fn start_shard(shard: &Shard, parts: Parts, failed: mpsc::Sender<anyhow::Error>) {
    let own = shard.clone();
    shard.spawn(Group::Admin, "osd", async move {
        if let Err(e) = run_shard(&own, parts, failed.clone()).await {
            give_up(&own, &failed, e);
        }
    });
}

async fn run_shard(
    shard: &Shard,
    (plan, config, store, known): Parts,
    failed: mpsc::Sender<anyhow::Error>,
) -> anyhow::Result<Rc<OsdShard>> {
    let stays_damaged = known.stays_damaged;
    let hook = hook::hook(plan, known, failed.clone());
    let osd = carmine_osd::run(shard.clone(), config, store, Some(hook)).await?;
    if let Some(part) = slowdown::asked()? {
        slowdown::start(shard, part)?;
    }
    let (own, watched) = (shard.clone(), Rc::clone(&osd));
    // A store that has stopped (a full disk, a dead device) acknowledges nothing any more: better a dead OSD, which
    // everybody sees, than one that only seems to live.
    shard.spawn(Group::Admin, "store-watch", async move {
        loop {
            own.sleep(STORE_WATCH).await;
            if let Err(e) = watched.store.sync().await
                && !watched.is_stopping()
            {
                let e = match watched.store.damage() {
                    Some(damage) if !stays_damaged => damage::GaveUp(damage.to_string()).into(),
                    _ => anyhow!(e),
                };
                return give_up(&own, &failed, e);
            }
        }
    });
    Ok(osd)
}

/// Starts the OSD's live view: its metrics on a free loopback port, or on one of its own network if it has one; its admin socket in the testbed's folder. A folder whose name is too long for a socket has none; the log says so.
async fn show_live(osd: &Rc<OsdShard>, layout: &Layout, has_network: bool) -> anyhow::Result<()> {
    let id = osd.config.id;
    measure_load(osd);
    if let Err(e) = serve_admin_socket(osd, &layout.admin_socket(id)) {
        tracing::warn!("no admin socket: {e}; `carmine admin --osd {} QUESTION` asks the same", id.0);
    }
    // Never the cluster's address, unless it is one of this machine alone: remote readers of metrics need a proxy that authenticates them.
    let local = match osd.config.listen {
        ip if has_network => ip,
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(ip),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let addr = serve_http(osd, SocketAddr::new(local, 0)).await.context("cannot serve metrics")?;
    let path = layout.http_addr(id);
    let written = osd.shard.alien(WRITE_NS, move || write_whole(&path, format!("{addr}\n").as_bytes()));
    written.await.context("cannot tell the metrics' address")
}

/// One shard that cannot run ends the process.
fn give_up(shard: &Shard, failed: &mpsc::Sender<anyhow::Error>, error: anyhow::Error) {
    // The receiver lives as long as the reactors do.
    let _ = failed.send(error);
    shard.stop();
}
