//! `carmine baseline`: what the drive and the messenger do without an OSD. A result says which part of that it reached.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use carmine_load::baseline::{Baseline, RawFigures};
use carmine_load::{
    DeviceTarget, Geometry, JobSetup, LoadSpec, Prefill, Rw, Target, TargetError, parse_bytes, parse_millis,
    run_job,
};
use carmine_messenger::{ClientConfig, Connection, Dispatcher, Message, ServerConfig, connect, serve};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Config, Group, Payload, PollPolicy, Reactors, Shard};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::drive::facts_of;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{Layout, Plan, require_plan, write_json};
use carmine_types::{FlushMode, OsdId, StoreKind};
use carmine_wire::{EntityAddr, EntityType};
use clap::Args;
use tempfile::NamedTempFile;

use crate::sample::device_of;
use crate::steering::{Measured, run_raw};

/// Options of the baseline, as those of `bench`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 measured; 1 it failed or was interrupted; 2 it cannot be measured as asked."
)]
pub struct BaselineArgs {
    /// Folder of the testbed; it may run (idle) or be stopped. Its data is not touched: files are measured by a scratch file
    /// beside them that is removed afterwards, devices are only read
    #[command(flatten)]
    dir: DirArgs,
    /// read, write, randread, randwrite or randrw; on a device only read and randread
    #[arg(long, value_name = "WORD", default_value = "randread")]
    rw: Rw,
    /// Percentage of reads in randrw
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Bytes of one operation, such as 4k or 1m
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_bytes)]
    bs: u64,
    /// Operations in flight of each of the bench's jobs
    #[arg(long, value_name = "N", default_value_t = 1)]
    iodepth: u32,
    /// Jobs of the bench: the baselines have as many operations in flight as all of them together
    #[arg(long, value_name = "N", default_value_t = 1)]
    numjobs: u32,
    /// Length of each of the two windows, such as 10 or 500ms
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_millis)]
    runtime: u64,
    /// Load before each window
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_millis)]
    ramp: u64,
    /// Bytes of the scratch file, or of the device that are read
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_bytes)]
    size: u64,
    /// File for the result, which `carmine bench --baseline` reads
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl BaselineArgs {
    fn spec(&self) -> LoadSpec {
        LoadSpec {
            rw: self.rw,
            rwmixread: self.rwmixread,
            bs_bytes: self.bs,
            iodepth: self.iodepth.saturating_mul(self.numjobs),
            runtime_ms: self.runtime,
            ramp_ms: self.ramp,
            size_bytes: self.size,
            ..LoadSpec::default()
        }
    }
}

/// Measures the drive and the messenger without an OSD. `cancel` ends it early.
///
/// # Errors
/// It cannot be measured as asked, failed, or was interrupted.
pub fn run(args: &BaselineArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let spec = args.spec();
    spec.check().map_err(|e| Usage(e.to_string()))?;
    let device = match plan.store {
        StoreKind::Blue => measure_device(&layout, &plan, &spec, cancel)?,
        StoreKind::Cyan | StoreKind::Null => {
            let store = plan.store;
            note(&format!("the store {store} keeps nothing on a device: only the messenger is measured"));
            None
        }
    };
    let messenger = Some(measure(&plan, &spec, cancel)?);
    let baseline = Baseline { device, messenger };
    print(&table(&spec, &baseline))?;
    if let Some(path) = &args.json {
        write_json(path, &baseline)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reactors of a raw load: nothing in it blocks.
fn raw_config(poll: PollPolicy) -> Config {
    Config { name: "raw".into(), poll, alien_threads: 0, ..Config::default() }
}

fn table(spec: &LoadSpec, baseline: &Baseline) -> String {
    let mut text = spec.summary() + "\nraw              IOPS      MB/s   mean us    p99 us\n";
    for (name, raw) in [("device", &baseline.device), ("messenger", &baseline.messenger)] {
        let Some(raw) = raw else { continue };
        let (mb, mean_us, p99_us) = (raw.bw_bytes / 1e6, raw.mean_ns / 1e3, raw.p99_ns as f64 / 1e3);
        let note = format!("{}, flush mode {}", raw.drive, raw.flush_mode);
        text += &format!("{name:<10} {:>10.0} {mb:>9.1} {mean_us:>9.1} {p99_us:>9.1}  {note}\n", raw.iops);
    }
    text
}

/// Direct I/O goes in whole blocks of this.
const BLOCK_BYTES: u64 = 4096;

/// The file or device that is read and written instead of the store.
struct RawDevice {
    path: PathBuf,
    /// A file of our own, removed at the end; devices are only read.
    scratch: Option<NamedTempFile>,
    drive: String,
}

/// Measures the drive of OSD 0; `None` (and a note) where the load would have to write to a device.
fn measure_device(
    layout: &Layout,
    plan: &Plan,
    spec: &LoadSpec,
    cancel: &AtomicBool,
) -> Result<Option<RawFigures>> {
    if !spec.bs_bytes.is_multiple_of(BLOCK_BYTES) {
        let multiples = "a device is read past the page cache, in multiples of";
        bail!(Usage(format!("--bs {}: {multiples} {BLOCK_BYTES} bytes", spec.bs_bytes)));
    }
    if !plan.devices.is_empty() && spec.rw.writes() {
        note("the OSDs have devices of their own, which are only read: no baseline of writes");
        return Ok(None);
    }
    let place = place(layout, plan)?;
    let store = facts_of(layout, plan, OsdId(0));
    let mode = store.filter(|_| spec.rw.writes()).map_or(FlushMode::None, |store| store.flush_mode);
    let cpus = plan.grid.osds.first().map(|osd| osd.reactor_cpus()).unwrap_or_default();
    let writable = place.scratch.is_some();
    let load = dealt(spec, cpus.len() as u32, writable);
    let poll: PollPolicy = plan.poll.parse().map_err(|e| Usage(format!("poll policy of the plan: {e}")))?;
    let (path, object_bytes) = (place.path.clone(), spec.object_size_bytes);
    let job = async move |shard: Shard, setup: JobSetup| match DeviceTarget::open(
        &shard,
        &path,
        object_bytes,
        writable,
        mode,
    )
    .await
    {
        Ok(target) => {
            let geometry = Geometry::dealt(setup.spec(), setup.job());
            run_job(&shard, Rc::new(target), geometry, setup).await;
        }
        Err(error) => setup.abort(&error.to_string()),
    };
    let measured = run_raw(&load, &cpus, raw_config(poll), cancel, &mut || Ok(()), job)
        .with_context(|| format!("raw device ({})", place.path.display()))?;
    Ok(Some(figures(spec, &measured, mode, &place.drive)))
}

/// As many jobs as the OSD has reactors, if the depth can be dealt evenly.
fn dealt(spec: &LoadSpec, reactors: u32, scratch: bool) -> LoadSpec {
    let jobs = (1..=reactors.max(1)).rev().find(|jobs| spec.iodepth.is_multiple_of(*jobs)).unwrap_or(1);
    // A file that was never written would be read without touching the drive.
    let prefill = if scratch { Prefill::Always } else { Prefill::Never };
    LoadSpec { numjobs: jobs, iodepth: spec.iodepth / jobs, prefill, ..spec.clone() }
}

fn place(layout: &Layout, plan: &Plan) -> Result<RawDevice> {
    let name = |path: &Path| device_of(path).unwrap_or_else(|| "unknown drive".into());
    if let Some(path) = plan.devices.first().cloned() {
        let drive = format!("{}, the device itself, only read", name(&path));
        return Ok(RawDevice { path, scratch: None, drive });
    }
    let folder = layout.osd_dir(OsdId(0));
    let scratch = tempfile::Builder::new().prefix("baseline-scratch.").tempfile_in(&folder);
    let scratch = scratch.with_context(|| format!("cannot make a scratch file in {}", folder.display()))?;
    let (path, drive) = (scratch.path().to_owned(), format!("{}, scratch file", name(&folder)));
    Ok(RawDevice { path, scratch: Some(scratch), drive })
}

/// The figures of a raw load, both directions together.
fn figures(spec: &LoadSpec, measured: &Measured, mode: FlushMode, drive: &str) -> RawFigures {
    let result = &measured.result;
    let mut latency = result.read.latency_ns.clone();
    latency.merge(&result.write.latency_ns);
    let seconds = measured.seconds.max(1e-9);
    RawFigures {
        iops: result.ops() as f64 / seconds,
        bw_bytes: (result.read.bytes + result.write.bytes) as f64 / seconds,
        mean_ns: latency.mean(),
        p99_ns: latency.percentile(99.0),
        bs_bytes: spec.bs_bytes,
        iodepth: spec.iodepth,
        rw: spec.rw,
        flush_mode: mode.to_string(),
        drive: drive.to_owned(),
    }
}

// The raw messenger: messages of the load's size between a reactor on an OSD's CPU and one on a client's, over loopback,
// with checksums as always. The payload goes the way it goes in the load: with the request of a write, with the answer to
// a read.

/// A message type that Ceph does not use.
const ECHO: u16 = 0x7e0;
/// Time for the server to say where it listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Measures one connection.
fn measure(plan: &Plan, spec: &LoadSpec, cancel: &AtomicBool) -> Result<RawFigures> {
    let osd_cpu = plan.grid.osds.first().and_then(|osd| osd.reactor_cpus().first().copied());
    let poll: PollPolicy = plan.poll.parse().map_err(|e| Usage(format!("poll policy of the plan: {e}")))?;
    let (sender, receiver) = channel();
    let bs = usize::try_from(spec.bs_bytes).context("--bs")?;
    let config =
        Config { name: "echo".into(), cpus: vec![osd_cpu], poll, alien_threads: 0, ..Config::default() };
    let server = Reactors::start(config, move |shard: Shard| listen(shard, bs, sender.clone()))?;
    let addr = receiver.recv_timeout(START_LIMIT).map_err(|_| anyhow!("the echo server did not start"));
    let measured = addr.and_then(|addr| {
        let load = LoadSpec { prefill: Prefill::Never, numjobs: 1, ..spec.clone() };
        let cpus = plan.grid.client_cpus().to_vec();
        let config = raw_config(PollPolicy::default());
        let job = async move |shard, setup| job(shard, addr, setup).await;
        run_raw(&load, &cpus, config, cancel, &mut || Ok(()), job)
    });
    server.stopper().stop();
    let joined = server.join();
    let measured = measured.context("raw messenger")?;
    joined.context("raw messenger")?;
    Ok(figures(spec, &measured, FlushMode::None, "one connection on loopback"))
}

/// The answering side, until it is stopped.
async fn listen(shard: Shard, bs: usize, told: Sender<EntityAddr>) {
    let Ok(listener) = shard.listen(([127, 0, 0, 1], 0).into()).await else { return };
    let addr = EntityAddr::msgr2(listener.local_addr(), std::process::id());
    // Nobody waits any more: then the command has failed already.
    let _ = told.send(addr);
    let config = Rc::new(ServerConfig::new(EntityType::OSD, 0, addr.into()));
    let mut block = shard.buf(bs);
    block.fill(0xa5);
    let echo: Rc<dyn Dispatcher> = Rc::new(Echo { block: block.freeze() });
    let accepting = shard.clone();
    shard.spawn(Group::Admin, "accept", async move {
        while let Ok((socket, _)) = listener.accept().await {
            serve(&accepting, socket, Rc::clone(&config), Rc::clone(&echo)).await;
        }
    });
}

struct Echo {
    block: Bytes,
}

impl Dispatcher for Echo {
    fn on_message(&self, conn: &Rc<Connection>, mut msg: Message) {
        drop(msg.take_permit());
        let answer = Message::new(ECHO, 1, 1, Vec::new()).with_tid(msg.header.tid);
        // A request with a front wants the payload, one with the payload wants none.
        conn.send(if msg.front.is_empty() {
            answer
        } else {
            answer.with_data(Payload::from(self.block.clone()))
        });
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {}
}

/// Requests without an answer, by their numbers: the asking side's dispatcher.
#[derive(Default)]
struct Waiting(RefCell<HashMap<u64, oneshot::Sender<Payload>>>);

impl Dispatcher for Waiting {
    fn on_message(&self, _: &Rc<Connection>, mut msg: Message) {
        drop(msg.take_permit());
        if let Some(sender) = self.0.borrow_mut().remove(&msg.header.tid) {
            // The worker may have given up.
            let _ = sender.send(msg.data);
        }
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {
        self.0.borrow_mut().clear();
    }
}

/// The asking side.
struct EchoTarget {
    conn: Rc<Connection>,
    waiting: Rc<Waiting>,
    tid: Cell<u64>,
}

async fn job(shard: Shard, addr: EntityAddr, setup: JobSetup) {
    let waiting = Rc::new(Waiting::default());
    let config = ClientConfig::new(EntityType::CLIENT, "admin", std::process::id());
    config.gid.set(1);
    match connect(&shard, addr, EntityType::OSD, Rc::new(config), Rc::<Waiting>::clone(&waiting)).await {
        Ok(conn) => {
            let target = EchoTarget { conn: Rc::clone(&conn), waiting, tid: Cell::default() };
            let geometry = Geometry::dealt(setup.spec(), setup.job());
            run_job(&shard, Rc::new(target), geometry, setup).await;
            conn.close("measured");
        }
        Err(error) => setup.abort(&error.to_string()),
    }
}

impl EchoTarget {
    async fn ask(&self, msg: Message) -> Result<Payload, TargetError> {
        self.tid.set(self.tid.get() + 1);
        let (sender, receiver) = oneshot::channel();
        self.waiting.0.borrow_mut().insert(self.tid.get(), sender);
        self.conn.send(msg.with_tid(self.tid.get()));
        receiver.await.map_err(|_| TargetError("the connection ended".into()))
    }
}

impl Target for EchoTarget {
    async fn read(&self, object: &str, _off: u64, _len: u64) -> Result<Payload, TargetError> {
        self.ask(Message::new(ECHO, 1, 1, object.as_bytes().to_vec())).await
    }

    async fn write(&self, _object: &str, _off: u64, data: Payload) -> Result<(), TargetError> {
        self.ask(Message::new(ECHO, 1, 1, Vec::new()).with_data(data)).await.map(drop)
    }

    async fn stat(&self, _object: &str) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_dealt_to_the_reactors_or_kept_on_fewer() {
        for (depth, reactors, want) in [(16, 2, (2, 8)), (1, 4, (1, 1)), (9, 2, (1, 9)), (6, 4, (3, 2))] {
            let spec = LoadSpec { iodepth: depth, ..LoadSpec::default() };
            let load = dealt(&spec, reactors, true);
            assert_eq!((load.numjobs, load.iodepth), want);
            assert_eq!(load.depth_total(), spec.depth_total());
        }
    }
}
