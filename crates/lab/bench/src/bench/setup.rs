//! A load that can start: everything that is decided before it starts, and the running cluster that it loads, a testbed or a peer.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use carmine_doctor::{Finding, Options, examine};
use carmine_load::baseline::Baseline;
use carmine_load::drive::StoreFacts;
use carmine_load::hosted::jobfile::JobFile;
use carmine_load::hosted::{self, Tool};
use carmine_load::origin::Origin;
use carmine_load::profile::ProfileMode;
use carmine_load::report::{CacheState, Context as ReportContext, Setting};
use carmine_load::samples::Samples;
use carmine_load::window::{InstrumentWindow, Window};
use carmine_load::{LoadSpec, Prefill, Route, Rw, VerifyState};
use carmine_testbed::{
    BedKind, Daemon, Layout, Plan, ProcessId, ask_osd, load, mon_addr, refuse, require_plan, usage,
};
use carmine_topology::Grid;
use carmine_types::{FlushMode, OsdId, StoreKind, counted};
use serde_json::json;

use super::args::BenchArgs;
use super::{Seen, jobfile, room};
use crate::Doctor;
use crate::baseline::load_baseline;
use crate::sample::series::Recorder;
use crate::sample::{OsdDump, QUESTIONS, Sampler, Snapshot, WatchedOsd, add_dumps, device_of, host_report};
use crate::steering::generator_threads;

/// Time that the machine's idle baseline is measured for.
const BASELINE: Duration = Duration::from_millis(400);
/// Length of the window with more load, and of the load before it.
const CONFIRM_MS: u64 = 3_000;
const CONFIRM_RAMP_MS: u64 = 500;
/// `--cache cached` without `--ramp` loads for this long before the window.
const CACHED_RAMP_MS: u64 = 5_000;
/// Most rounds of overwriting: a typing error would take days.
const AGE_MAX: f64 = 1000.0;

/// A load that can start.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) args: BenchArgs,
    pub(super) spec: LoadSpec,
    pub(super) state: Option<VerifyState>,
    /// The jobs that fio runs instead of a load from the options.
    pub(super) jobfile: Option<JobFile>,
    /// The tool's differences.
    marks: Vec<String>,
    pub(super) layout: Layout,
    /// Of a peer: the testbed that has its CPUs, pool and devices, and keeps its data; an OSD's cores stand for reactors.
    pub(super) plan: Plan,
    pub(super) mon: SocketAddr,
    pub(super) osds: Vec<(OsdId, ProcessId)>,
    pub(super) sampler: Sampler,
    /// The drives under the OSDs' stores; none for stores in memory, and for a peer.
    stores: Vec<StoreFacts>,
    /// Settings of the machine that the figures depend on.
    doctor: Vec<Finding>,
    baseline: Option<Baseline>,
}

/// One reading.
pub(crate) struct Reading {
    pub(super) osds: Vec<OsdDump>,
    pub(super) kernel: Snapshot,
}

impl Reading {
    /// Reads the kernel's counters and the OSDs' own.
    pub(crate) fn now(layout: &Layout, plan: &Plan, sampler: &Sampler) -> Result<Reading> {
        Ok(Reading { osds: dumps(layout, plan), kernel: sampler.sample()? })
    }

    /// The window from this reading to a later one.
    pub(crate) fn window_to(&self, end: &Reading, sampler: &Sampler, idle_cores: f64) -> Window {
        let mut window = sampler.window(&self.kernel, &end.kernel, idle_cores);
        add_dumps(&mut window, &self.osds, &end.osds);
        window
    }

    /// Client operations that the OSDs have answered since their start.
    pub(super) fn client_ops(&self) -> u64 {
        let shards = self.osds.iter().filter_map(|osd| osd.metrics["shards"].as_array()).flatten();
        shards.filter_map(|shard| shard["osd"]["ops"].as_u64()).sum()
    }
}

/// The processes of the monitor and of all OSDs.
///
/// # Errors
/// One of them does not run.
pub(crate) fn running(layout: &Layout, plan: &Plan) -> Result<(u32, Vec<(OsdId, ProcessId)>)> {
    let dir = layout.dir().display();
    let start = if plan.peer.is_some() { "carmine peer up" } else { "carmine up" };
    let alive = |daemon: Daemon| -> Result<ProcessId> {
        ProcessId::running(layout, daemon)?
            .with_context(|| format!("{daemon} in {dir} is not running; start it with `{start} --dir {dir}`"))
    };
    let osds = plan.osd_ids().map(|id| Ok((id, alive(Daemon::Osd(id))?)));
    Ok((alive(Daemon::Mon)?.pid.unsigned_abs(), osds.collect::<Result<Vec<_>>>()?))
}

/// Reads of these processes what the kernel counts, and of the drives under their stores.
pub(crate) fn sampler(
    layout: &Layout,
    plan: &Plan,
    stores: &[StoreFacts],
    mon_pid: u32,
    osds: &[(OsdId, ProcessId)],
) -> Sampler {
    let processes = osds.iter().zip(&plan.grid.osds).map(|((id, process), row)| WatchedOsd {
        id: id.0,
        pid: process.pid.unsigned_abs(),
        alien_cpus: if row.aliens.own { 0 } else { row.aliens.cpus.len() as u32 },
    });
    Sampler::new(processes.collect(), Some(mon_pid), watched(layout, plan, stores))
}

/// The OSDs' answers. An OSD that does not answer has none; a peer's OSDs do not know these questions.
fn dumps(layout: &Layout, plan: &Plan) -> Vec<OsdDump> {
    let dump = |id: OsdId| -> Result<OsdDump> {
        let [metrics, status] = QUESTIONS.map(|question| ask_osd(layout, id, question));
        OsdDump::parse([&metrics?, &status?])
    };
    let osds = plan.osd_ids().filter(|_| plan.peer.is_none());
    osds.map(|id| dump(id).unwrap_or_default()).collect()
}

impl Setup {
    /// Checks the load, and looks at the cluster that is to be loaded, all of whose processes must run.
    pub(super) fn prepare(mut args: BenchArgs, doctor: Doctor) -> Result<Setup> {
        let (jobfile, mut spec) = jobfile::read(&args, args.spec())?;
        cache_conditions(&mut spec, args.cache)?;
        check(&args, &spec)?;
        args.profile = args.profile.or(args.stages.then_some(ProfileMode::OnCpu));
        let baseline = args.baseline.as_deref().map(|file| load_baseline("--baseline", file)).transpose()?;
        let layout = Layout::new(&args.dir.dir)?;
        // A peer's cores stand for reactors.
        let plan = load(BedKind::Peer, &layout)?.map_or_else(|| require_plan(&layout), Ok)?;
        let is_peer = plan.peer.is_some();
        let (in_process, osd, last) = (args.in_process, args.osd, plan.osds().saturating_sub(1));
        refuse!(is_peer && in_process, "--in-process: a peer's OSDs do not load themselves; leave it out");
        refuse!(in_process && osd > last, "--osd {osd}: the testbed has OSDs 0 to {last}");
        if let Some(out) = args.osd_out {
            let (osds, size) = (plan.osds(), u32::from(plan.pool.size));
            refuse!(is_peer, "--osd-out: only of Carmine's OSDs; a peer is measured by `scripts/recovery`");
            refuse!(out > last, "--osd-out {out}: the testbed has OSDs 0 to {last}");
            refuse!(
                osds <= size,
                "--osd-out {out}: {osds} OSDs are too few to keep {size} copies without one"
            );
        }
        // A stock client has one connection for each OSD, and a stock OSD takes no other.
        if is_peer || args.client != Tool::Carmine {
            spec.route = Route::Single;
        }
        fill_and_age(&mut spec, &plan, (args.fill, args.age))?;
        let mut marks = check(&args, &spec)?;
        marks.extend(jobfile.iter().flat_map(JobFile::marks));
        let (mon_pid, osds) = running(&layout, &plan)?;
        let dir = layout.dir().display();
        let mon = mon_addr(&layout).with_context(|| format!("the monitor of {dir} has no address yet"))?;
        let (stores, doctor) = match &plan.peer {
            None => (stores(&layout, &plan)?, doctor(&layout, &plan)),
            Some(_) => {
                let (reactor_cpus, client_cpus) = (plan.grid.allocated_cpus(), plan.grid.client_cpus());
                (Vec::new(), examine(&Options { reactor_cpus, client_cpus, ..Options::default() }))
            }
        };
        let sampler = sampler(&layout, &plan, &stores, mon_pid, &osds);
        let state = load_state(&mut spec, &args)?;
        let setup = Setup {
            args,
            spec,
            state,
            jobfile,
            marks,
            layout,
            plan,
            mon,
            osds,
            sampler,
            stores,
            doctor,
            baseline,
        };
        if setup.args.client == Tool::Carmine {
            room::check(&setup, |enough| room::present_bytes(&setup, enough))?;
        }
        Ok(setup)
    }

    /// The OSD that is loaded from within.
    pub(super) fn in_process(&self) -> Option<OsdId> {
        self.args.in_process.then_some(OsdId(self.args.osd))
    }

    /// Why there can be no load before the window, in which a profile is taken.
    pub(super) fn cannot_profile(&self) -> Option<&'static str> {
        if self.wants_cold() {
            Some("--cache cold: it is taken under load before the window, which would warm the caches")
        } else if self.runs_untimed_jobs() {
            Some("--jobfile: its jobs have no common ramp_time and runtime, with time_based")
        } else if self.spec.ends_by_itself() && self.args.client == Tool::Carmine {
            Some("--io-size: it is taken under load before the window, which would be more than these bytes")
        } else {
            None
        }
    }

    /// A job file is run whose jobs have no common window.
    pub(super) fn runs_untimed_jobs(&self) -> bool {
        self.jobfile.as_ref().is_some_and(|file| !file.is_timed())
    }

    /// The same load for a moment, with twice the threads, or inside an OSD, which has as many as it has reactors, with twice
    /// the depth. Second: the name and value of the doubled option.
    pub(super) fn with_more_load(&self) -> (Setup, String) {
        let mut more = self.clone();
        let spec = &mut more.spec;
        let (name, number) = match self.args.in_process {
            true => ("iodepth", &mut spec.iodepth),
            false => ("numjobs", &mut spec.numjobs),
        };
        *number = number.saturating_mul(2);
        let doubled = format!("{name} {number}");
        spec.prefill = Prefill::Never;
        (spec.ramp_ms, spec.runtime_ms) = (CONFIRM_RAMP_MS, CONFIRM_MS.min(spec.runtime_ms));
        spec.keep_seconds = false;
        (more.args.samples, more.args.profile, more.args.cache) = (None, None, None);
        (more, doubled)
    }

    /// The store has work that it does later: its metadata is compacted.
    pub(super) fn defers_work(&self) -> bool {
        self.plan.peer.is_none() && self.plan.store == StoreKind::Blue && !self.spec.verify_only
    }

    /// The OSDs' caches are to be empty: they must have served nothing yet.
    pub(super) fn wants_cold(&self) -> bool {
        self.args.cache == Some(CacheState::Cold)
    }

    /// CPUs of the generator.
    pub(super) fn client_cpus(&self) -> Vec<usize> {
        self.plan.grid.client_cpus().to_vec()
    }

    /// The OSDs' processes.
    pub(super) fn osd_pids(&self) -> Vec<u32> {
        self.osds.iter().map(|(_, process)| process.pid.unsigned_abs()).collect()
    }

    /// A remark that names the OSDs that have died since the beginning, including those that were started again.
    pub(super) fn died_mark(&self) -> Option<String> {
        let died = self.osds.iter().filter(|(_, process)| !process.alive());
        let names: Vec<String> = died.map(|(id, _)| id.to_string()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "DIED: {} ended under the load; CPU time and memory since a restart are missing",
                names.join(", ")
            )
        })
    }

    /// Fails if no OSD runs: none of those that ran at the beginning, and none that was started since.
    pub(super) fn check_one_runs(&self) -> Result<()> {
        let runs = |(id, first): &(OsdId, ProcessId)| {
            first.alive() || matches!(ProcessId::running(&self.layout, Daemon::Osd(*id)), Ok(Some(_)))
        };
        if self.osds.iter().any(runs) { Ok(()) } else { self.check_alive() }
    }

    /// True if the monitor is dead: clients could not find an OSD that is started again.
    pub(super) fn mon_is_dead(&self) -> bool {
        !matches!(ProcessId::running(&self.layout, Daemon::Mon), Ok(Some(_)))
    }

    /// Fails if an OSD has died.
    pub(super) fn check_alive(&self) -> Result<()> {
        let dead = self.osds.iter().find(|(_, process)| !process.alive());
        dead.map_or(Ok(()), |(id, pid)| bail!("{id} (pid {}) died under the load; see its log", pid.pid))
    }

    /// Starts to sample what `sampler` looks at.
    pub(super) fn record(&self, sampler: &Sampler) -> Result<Recorder> {
        let grid = &self.plan.grid;
        let client_cpus = grid.client_cpus().union(&grid.neighbour).to_vec();
        Recorder::start(sampler.clone(), grid.allocated_cpus().to_vec(), &client_cpus)
    }

    /// Cores that are busy with other things when there is no load.
    pub(super) fn idle_cores(&self) -> Result<f64> {
        let before = self.sampler.sample()?;
        std::thread::sleep(BASELINE);
        Ok(self.sampler.baseline_cores(&before, &self.sampler.sample()?))
    }

    /// The part of the report that this knows.
    pub(super) fn context(&self, spec: &LoadSpec, seen: &Seen) -> ReportContext {
        let mut marks = [&self.marks[..], &seen.marks].concat();
        let cpus = self.client_cpus().len();
        let is_own = self.args.client == Tool::Carmine;
        let threads = if is_own { generator_threads(spec, cpus) } else { spec.numjobs as usize };
        if !self.args.in_process && threads > cpus {
            let (threads, cpus) = (counted(threads, "generator thread"), counted(cpus, "client CPU"));
            marks.push(format!("{threads} share {cpus}"));
        }
        let mut plan = serde_json::to_value(&self.plan).unwrap_or_default();
        plan.as_object_mut().map(|map| map.remove("grid"));
        // A peer's devices are all its data's.
        let (drives, allocated_cores, (flush_mode, flush_forced)) = match &self.plan.peer {
            Some(_) => {
                let flush = (FlushMode::Flush.to_string(), false);
                (self.sampler.devices.len(), self.plan.grid.allocated_cpus().len() as f64, flush)
            }
            None => {
                let drives = self.stores.iter().filter_map(|store| store.data.drive.node.as_ref());
                let flush = StoreFacts::flush_of(&self.stores);
                (drives.collect::<BTreeSet<_>>().len(), self.plan.allocated_cores(), flush)
            }
        };
        let grid = self.grid();
        let setting = Setting {
            plan,
            shared: grid.shared,
            grid: serde_json::to_value(&grid).unwrap_or_default(),
            host: host_report(),
            origin: Origin::default(),
            in_process: self.args.in_process,
            flush_mode,
            flush_forced,
            stores: self.stores.clone(),
            doctor: serde_json::to_value(&self.doctor).unwrap_or_default(),
            cache_state: self.args.cache.map(|state| state.to_string()),
            baseline: self.baseline.clone(),
            conditions: json!({
                "prefill": spec.prefill, "ramp_ms": spec.ramp_ms, "background_work_before": seen.settled,
            }),
            more_load: None,
        };
        let client_cpus = (self.args.client != Tool::Carmine).then_some(cpus as u32);
        let drives = (drives > 0).then_some(drives as u32);
        ReportContext {
            setting,
            allocated_cores,
            client_cpus,
            size: self.plan.pool.size.into(),
            drives,
            marks,
            client_seconds: None,
        }
    }

    /// The CPUs of OSDs and clients under this load.
    pub(super) fn grid(&self) -> Grid {
        let grid = self.plan.grid.clone();
        if self.args.in_process { grid.without_clients() } else { grid }
    }
}

/// Fails if this is not a valid load, or if the tool cannot make it. Returns remarks on what the tool does differently.
fn check(args: &BenchArgs, spec: &LoadSpec) -> Result<Vec<String>> {
    let checked = spec.check().and_then(|()| hosted::check(args.client, spec));
    let marks = checked.map_err(|e| usage!("{e}"))?;
    let own = [
        ("--in-process", args.in_process),
        ("--confirm", args.confirm),
        ("--osd-out", args.osd_out.is_some()),
    ];
    for (option, given) in own {
        let vain = given && args.client != Tool::Carmine;
        refuse!(vain, "{option}: only --client carmine can do that; {} cannot", args.client);
    }
    let is_off = args.stages && args.profile == Some(ProfileMode::OffCpu);
    refuse!(is_off, "--stages: CPU time comes from --profile oncpu; leave --profile offcpu out");
    Ok(marks)
}

/// The cost of these samples.
pub(super) fn instrument(samples: Option<&Samples>) -> Option<InstrumentWindow> {
    let instrument = &samples?.instrument;
    Some(InstrumentWindow { cores: instrument.cores, apart: !instrument.cpus.is_empty() })
}

/// The drives under the stores, as the OSDs report them; none for stores in memory.
pub(crate) fn stores(layout: &Layout, plan: &Plan) -> Result<Vec<StoreFacts>> {
    let ask = |osd: OsdId| -> Result<Option<StoreFacts>> {
        let answer = ask_osd(layout, osd, r#"{"prefix":"dump_store"}"#)?;
        serde_json::from_str(&answer).with_context(|| format!("{osd} does not say what its store lies on"))
    };
    plan.osd_ids().filter_map(|osd| ask(osd).transpose()).collect()
}

/// Block devices to watch, as the kernel's statistics name them: those of all parts of the stores; for stores in memory and for
/// peers, the devices under the OSDs' folders and the named devices.
fn watched(layout: &Layout, plan: &Plan, stores: &[StoreFacts]) -> Vec<String> {
    let names: BTreeSet<String> = if stores.is_empty() {
        let folders = plan.osd_ids().map(|id| layout.osd_dir(id));
        plan.devices.iter().cloned().chain(folders).filter_map(|path| device_of(&path)).collect()
    } else {
        stores.iter().flat_map(StoreFacts::nodes).map(str::to_owned).collect()
    };
    names.into_iter().collect()
}

/// Makes `spec` cover the part of the pool's capacity that `--fill` names, and write what it covers as many times as `--age`
/// says: the stores of a comparison are then equally full and equally worn.
fn fill_and_age(spec: &mut LoadSpec, plan: &Plan, (fill, age): (Option<u8>, Option<f64>)) -> Result<()> {
    if let Some(percent) = fill {
        let part = plan.capacity_bytes()? / u64::from(plan.pool.size) / 100 * u64::from(percent);
        spec.size_bytes = part / spec.object_size_bytes.max(1) * spec.object_size_bytes;
    }
    if let Some(rounds) = age {
        let is_right = rounds > 0.0 && rounds <= AGE_MAX;
        refuse!(!is_right, "--age {rounds}: take a number of rounds above 0, up to {AGE_MAX}");
        spec.rw = Rw::RandWrite;
        spec.io_bytes = Some((spec.size_bytes as f64 * rounds) as u64 / spec.bs_bytes.max(1) * spec.bs_bytes);
    }
    Ok(())
}

/// Changes the load as a cache state requires.
fn cache_conditions(spec: &mut LoadSpec, cache: Option<CacheState>) -> Result<()> {
    match cache {
        Some(CacheState::Cold) if spec.prefill == Prefill::Always || spec.ramp_ms > 0 => {
            bail!(usage!("--cache cold: --prefill always and --ramp would warm the caches; leave them out"))
        }
        Some(CacheState::Cold) => spec.prefill = Prefill::Never,
        Some(CacheState::OnodeWarm) if spec.prefill == Prefill::Never => bail!(usage!(
            "--cache onode-warm: the metadata is loaded by the search for missing objects; leave --prefill never out"
        )),
        Some(CacheState::Cached) if spec.ramp_ms == 0 => spec.ramp_ms = CACHED_RAMP_MS,
        _ => {}
    }
    Ok(())
}

/// The state of verified blocks. Without a file, or with one that does not exist yet, nothing is known; the load then gets
/// a generation of its own, so that blocks of earlier loads can't be taken for its own.
fn load_state(spec: &mut LoadSpec, args: &BenchArgs) -> Result<Option<VerifyState>> {
    if !spec.verify {
        return Ok(None);
    }
    spec.generation = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let Some(path) = &args.verify_state else { return Ok(None) };
    let state = match std::fs::read(path) {
        Ok(bytes) => VerifyState::decode(&bytes, spec).map_err(|e| usage!("{}: {e}", path.display()))?,
        Err(e) if e.kind() == ErrorKind::NotFound && !spec.verify_only => VerifyState::new(spec),
        Err(e) => {
            return Err(e).with_context(|| format!("cannot read the verify state {}", path.display()));
        }
    };
    spec.generation = state.generation();
    Ok(Some(state))
}

#[cfg(test)]
mod tests;
