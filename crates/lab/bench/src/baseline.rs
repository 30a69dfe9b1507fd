//! `carmine baseline`: what the drive and the messenger do without an OSD. A result says which part of that it reached.

mod echo;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use carmine_load::baseline::{AtDepth, Baseline, RawFigures, WAITED_MAX};
use carmine_load::{DeviceTarget, JobSetup, LoadSpec, Prefill, Rw, parse_bytes, parse_millis, run_dealt_job};
use carmine_reactor::{Config, PollPolicy, Shard};
use carmine_testbed::drive::facts;
use carmine_testbed::{DirArgs, Layout, Plan, note, print, refuse, require_plan, usage, write_json};
use carmine_types::{FlushMode, OsdId, StoreKind};
use clap::Args;
use tempfile::NamedTempFile;

use crate::GitHash;
use crate::sample::{device_of, origin_here, unix_now};
use crate::steering::{Measured, reactors, run_raw};

/// Options of the baseline, like those of `bench`.
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
    /// Bytes of the scratch file, or bytes to read of the device
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_bytes)]
    size: u64,
    /// Result of an earlier baseline of the same kind of load: what the drive does at other depths is copied from it, and not measured
    #[arg(long, value_name = "FILE")]
    depths_of: Option<PathBuf>,
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
pub fn run(args: &BaselineArgs, cancel: &AtomicBool, git_hash: GitHash) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let spec = args.spec();
    spec.check().map_err(|e| usage!("{e}"))?;
    let device = match plan.store {
        StoreKind::Blue => measure_device(&layout, &plan, &spec, args.depths_of.as_deref(), cancel)?,
        StoreKind::Cyan | StoreKind::Null => {
            let store = plan.store;
            note(&format!("the store {store} keeps nothing on a device: only the messenger is measured"));
            None
        }
    };
    let messenger = Some(echo::measure(&plan, &spec, cancel)?);
    let store = facts::read(&layout, &plan, OsdId(0));
    let baseline = Baseline { device, messenger, origin: origin_here(git_hash).on(store.as_slice()) };
    print(&table(&spec, &baseline))?;
    if let Some(path) = &args.json {
        write_json(path, &baseline)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(spec: &LoadSpec, baseline: &Baseline) -> String {
    let mut text = spec.summary() + "\nraw              IOPS      MB/s   mean us    p99 us\n";
    for (name, raw) in [("device", &baseline.device), ("messenger", &baseline.messenger)] {
        let Some(raw) = raw else { continue };
        let (mb, mean_us, p99_us) = (raw.bw_bytes / 1e6, raw.mean_ns / 1e3, raw.p99_ns as f64 / 1e3);
        let note = format!("{}, flush mode {}", raw.drive, raw.flush_mode);
        text += &format!("{name:<10} {:>10.0} {mb:>9.1} {mean_us:>9.1} {p99_us:>9.1}  {note}\n", raw.iops);
        for at in &raw.other_depths {
            text += &format!("{:<10} {:>10.0}  at iodepth {}\n", "", at.iops, at.iodepth);
        }
        if raw.waited >= WAITED_MAX {
            let percent = raw.waited * 100.0;
            text += &format!(
                "{:<10} it was without a CPU for {percent:.0} % of its time: it is no limit of anything\n",
                ""
            );
        }
    }
    text
}

/// Depths at which a drive is measured beside the load's own: its limit is what it does at the best of them.
const DEPTHS: [u32; 4] = [1, 8, 32, 128];
/// Longest window of each.
const DEPTH_RUNTIME_MS: u64 = 1_000;
const DEPTH_RAMP_MS: u64 = 200;
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
    depths_of: Option<&Path>,
    cancel: &AtomicBool,
) -> Result<Option<RawFigures>> {
    let (bs, multiples) = (spec.bs_bytes, "a device is read past the page cache, in multiples of");
    refuse!(!bs.is_multiple_of(BLOCK_BYTES), "--bs {bs}: {multiples} {BLOCK_BYTES} bytes");
    if !plan.devices.is_empty() && spec.rw.writes() {
        note("the OSDs have devices of their own, which are only read: no baseline of writes");
        return Ok(None);
    }
    let place = place(layout, plan)?;
    let store = facts::read(layout, plan, OsdId(0));
    let mode = store.filter(|_| spec.rw.writes()).map_or(FlushMode::None, |store| store.flush_mode);
    let cpus = plan.grid.osds.first().map(|osd| osd.reactor_cpus()).unwrap_or_default();
    let writable = place.scratch.is_some();
    let poll: PollPolicy = plan.poll.parse().map_err(|e| usage!("poll policy of the plan: {e}"))?;
    let measure = |spec: &LoadSpec, fills: bool| {
        let load = dealt(spec, cpus.len() as u32, fills);
        let (path, object_bytes) = (place.path.clone(), spec.object_size_bytes);
        let job = async move |shard: Shard, setup: JobSetup| {
            let target = DeviceTarget::open(&shard, &path, object_bytes, writable, mode).await;
            run_dealt_job(&shard, target, setup).await;
        };
        let config = Config { poll, ..reactors("raw") };
        let measured = run_raw(&load, &cpus, config, cancel, &mut || Ok(()), job)
            .with_context(|| format!("raw device ({})", place.path.display()))?;
        Ok::<_, anyhow::Error>(figures(spec, &measured, mode, &place.drive))
    };
    let mut raw = measure(spec, writable)?;
    if let Some(path) = depths_of {
        raw.other_depths = depths(path, &raw)?;
        return Ok(Some(raw));
    }
    for iodepth in DEPTHS.into_iter().filter(|depth| *depth != spec.iodepth) {
        let (runtime_ms, ramp_ms) = (spec.runtime_ms.min(DEPTH_RUNTIME_MS), spec.ramp_ms.min(DEPTH_RAMP_MS));
        let at = measure(&LoadSpec { iodepth, runtime_ms, ramp_ms, ..spec.clone() }, false)?;
        raw.waited = raw.waited.max(at.waited);
        raw.other_depths.extend(at.depths());
    }
    Ok(Some(raw))
}

/// Reads the file that an option names.
///
/// # Errors
/// It cannot be read, or is no baseline.
pub(crate) fn load_baseline(option: &str, file: &Path) -> Result<Baseline> {
    let (path, make) = (file.display(), "`carmine baseline --json FILE` makes a baseline");
    let wrong = |what: String| usage!("{option} {path}: {what}; {make}");
    let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
    Ok(Baseline::parse(&text).map_err(|what| wrong(format!("this is {what}")))?)
}

/// What the drive did at other depths in an earlier result, which must be of the same kind of load.
fn depths(path: &Path, raw: &RawFigures) -> Result<Vec<AtDepth>> {
    let shown = path.display();
    let earlier = load_baseline("--depths-of", path)?.device;
    let earlier = earlier.ok_or_else(|| usage!("--depths-of {shown}: it has no figures of a device"))?;
    let kind =
        |raw: &RawFigures| (raw.bs_bytes, raw.rw, raw.rwmixread, raw.flush_mode.clone(), raw.drive.clone());
    refuse!(
        kind(&earlier) != kind(raw),
        "--depths-of {shown}: it is of another kind of load, or of another drive"
    );
    refuse!(earlier.waited >= WAITED_MAX, "--depths-of {shown}: it was measured without CPUs");
    Ok(earlier.depths().filter(|at| at.iodepth != raw.iodepth).collect())
}

/// As many jobs as the OSD has reactors, if the depth can be dealt evenly.
fn dealt(spec: &LoadSpec, reactors: u32, fills: bool) -> LoadSpec {
    let jobs = (1..=reactors.max(1)).rev().find(|jobs| spec.iodepth.is_multiple_of(*jobs)).unwrap_or(1);
    // A file that was never written would be read without touching the drive.
    let prefill = if fills { Prefill::Always } else { Prefill::Never };
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
        rwmixread: spec.rwmixread,
        other_depths: Vec::new(),
        waited: result.client.wait_ns as f64 / result.client.wall_ns.max(1) as f64,
        unix_s: unix_now().as_secs(),
        flush_mode: mode.to_string(),
        drive: drive.to_owned(),
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
