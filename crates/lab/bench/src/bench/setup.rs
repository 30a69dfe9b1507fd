//! Everything that is decided before a load starts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sample::series::SampleOptions;
use crate::sample::{Sampler, WatchedOsd, host_report};
use anyhow::{Context, bail};
use carmine_doctor::Finding;
use carmine_load::baseline::Baseline;
use carmine_load::drive::StoreFacts;
use carmine_load::profile::ProfileMode;
use carmine_load::report::{CacheState, Context as ReportContext};
use carmine_load::window::DrainWindow;
use carmine_load::{LoadSpec, Prefill, VerifyState, hosted};
use carmine_testbed::peer::PeerPlan;
use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, Plan, mon_addr};
use carmine_topology::Grid;
use carmine_types::{FlushMode, OsdId, StoreKind, counted};
use serde_json::{Value, json};

use super::args::BenchArgs;
use super::fill;
use super::peer::{adapt, plan_of};
use super::room::{Room, present_bytes, written_bytes};
use super::stores::{self, data_drives, stores};
use crate::Doctor;
use carmine_testbed::TestbedError::Usage;

/// A load that can start.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) spec: LoadSpec,
    pub(crate) plan: Plan,
    pub(crate) mon: SocketAddr,
    pub(crate) pool: String,
    pub(crate) osds: Vec<(OsdId, ProcessId)>,
    pub(crate) sampler: Sampler,
    /// The OSD that is loaded from within.
    pub(crate) in_process: Option<OsdId>,
    pub(crate) state: Option<VerifyState>,
    pub(crate) state_path: Option<PathBuf>,
    /// What of the machine's settings the figures depend on.
    doctor: Vec<Finding>,
    /// Samples are wanted.
    samples: bool,
    /// A flamegraph is wanted.
    pub(crate) profile: Option<ProfileMode>,
    baseline: Option<Baseline>,
    cache: Option<CacheState>,
    /// What the OSDs' stores lie on.
    stores: Vec<StoreFacts>,
    /// What is loaded, if it is no testbed.
    pub(crate) peer: Option<PeerPlan>,
}

/// Length of the window with more load, and of the load before it.
const CONFIRM_MS: u64 = 3_000;
const CONFIRM_RAMP_MS: u64 = 500;

/// Why there is no profile of cold caches.
pub(super) const COLD_PROFILE: &str =
    "--cache cold: it is taken under load before the window, which would warm the caches";

/// `--cache cached` without `--ramp` loads for this long before the window.
const CACHED_RAMP_MS: u64 = 5_000;

impl Setup {
    pub(crate) fn prepare(args: BenchArgs, doctor: Doctor) -> anyhow::Result<Setup> {
        let mut spec = args.spec();
        cache_conditions(&mut spec, args.cache)?;
        spec.check().map_err(|e| Usage(e.to_string()))?;
        let baseline = args.baseline.as_deref().map(load_baseline).transpose()?;
        let layout = Layout::new(&args.dir.dir)?;
        let (plan, peer) = plan_of(&layout)?;
        if peer.is_some() {
            adapt(&mut spec, &args)?;
        }
        fill::apply(&mut spec, &plan, args.fill, args.age)?;
        spec.check().map_err(|e| Usage(e.to_string()))?;
        hosted::check(args.client, &spec).map_err(|e| Usage(e.to_string()))?;
        let (mon, mon_pid, osds) = running(&layout, &plan)?;
        check_room(&layout, &plan, peer.is_some(), mon, &spec, &args)?;
        if args.in_process && args.osd >= plan.osds() {
            bail!(Usage(format!("--osd {}: the testbed has OSDs 0 to {}", args.osd, plan.osds() - 1)));
        }
        let state = load_state(&mut spec, &args)?;
        let watched = osds.iter().map(|(id, pid)| WatchedOsd {
            id: id.0,
            pid: pid.pid.unsigned_abs(),
            alien_cpus: alien_cpus(&plan, *id),
        });
        let stores = if peer.is_none() { stores(&layout, &plan)? } else { Vec::new() };
        let devices = stores::watched(&layout, plan.osds(), &plan.devices, &stores);
        let sampler = Sampler::new(watched.collect(), Some(mon_pid), devices);
        Ok(Setup {
            spec,
            mon,
            pool: args.pool,
            osds,
            sampler,
            in_process: args.in_process.then_some(OsdId(args.osd)),
            state,
            state_path: args.verify_state,
            doctor: doctor(&layout, &plan),
            samples: args.samples.is_some(),
            profile: args.profile,
            baseline,
            cache: args.cache,
            plan,
            stores,
            peer,
        })
    }

    /// What is to be sampled, if anything is.
    pub(crate) fn sample_options(&self) -> Option<SampleOptions> {
        let osds = self.osds.iter().map(|(id, _)| id.0).zip(self.osd_pids());
        self.samples.then(|| SampleOptions {
            osds: osds.collect(),
            devices: self.sampler.devices().to_vec(),
            osd_cpus: self.plan.grid.allocated_cpus().to_vec(),
            client_cpus: self.plan.client_cpus().to_vec(),
        })
    }

    /// The OSDs' processes.
    pub(crate) fn osd_pids(&self) -> Vec<u32> {
        self.osds.iter().map(|(_, process)| process.pid.unsigned_abs()).collect()
    }

    /// Why there can be no load before the window, in which a profile is taken.
    pub(crate) fn cannot_profile(&self) -> Option<&'static str> {
        if self.wants_cold() {
            Some(COLD_PROFILE)
        } else if self.spec.ends_by_itself() {
            Some("--io-size: it is taken under load before the window, which would be more than these bytes")
        } else {
            None
        }
    }

    /// The same load for a moment, with twice the threads, or inside an OSD, which has as many as it has reactors, with twice
    /// the depth. Second: what was doubled.
    pub(crate) fn with_more_load(&self) -> (Setup, String) {
        let mut more = self.clone();
        let spec = &mut more.spec;
        let what = if self.in_process.is_some() {
            spec.iodepth = spec.iodepth.saturating_mul(2);
            format!("iodepth {}", spec.iodepth)
        } else {
            spec.numjobs = spec.numjobs.saturating_mul(2);
            format!("numjobs {}", spec.numjobs)
        };
        spec.prefill = Prefill::Never;
        (spec.ramp_ms, spec.runtime_ms) = (CONFIRM_RAMP_MS, CONFIRM_MS.min(spec.runtime_ms));
        spec.keep_seconds = false;
        more.samples = false;
        more.profile = None;
        more.cache = None;
        (more, what)
    }

    /// The store has work that it does later: its metadata is compacted.
    pub(crate) fn defers_work(&self) -> bool {
        self.peer.is_none() && self.plan.store == StoreKind::Blue && !self.spec.verify_only
    }

    /// The OSDs' caches are to be empty: they must have served nothing yet.
    pub(crate) fn wants_cold(&self) -> bool {
        self.cache == Some(CacheState::Cold)
    }

    /// The part of the report that this knows. `settled`: the OSDs' background work before the load.
    pub(crate) fn context(&self, mut marks: Vec<String>, settled: Option<DrainWindow>) -> ReportContext {
        let client_cpus = self.plan.client_cpus().len();
        if self.in_process.is_none() && self.spec.numjobs as usize > client_cpus {
            let threads = counted(self.spec.numjobs as usize, "generator thread");
            marks.push(format!("{threads} share {}", counted(client_cpus, "client CPU")));
        }
        let in_process = self.in_process.is_some();
        let grid = self.grid();
        let mut plan = match &self.peer {
            Some(peer) => serde_json::to_value(peer).unwrap_or_default(),
            None => serde_json::to_value(&self.plan).unwrap_or_default(),
        };
        if let Value::Object(map) = &mut plan {
            map.remove("grid");
        }
        // A peer's devices are all its data's.
        let drives = match &self.peer {
            Some(_) => self.sampler.devices().len() as u32,
            None => data_drives(&self.stores),
        };
        let (flush_mode, flush_forced) = match &self.peer {
            Some(_) => (FlushMode::Flush.to_string(), false),
            None => StoreFacts::flush_of(&self.stores),
        };
        ReportContext {
            plan,
            shared: grid.shared,
            allocated_cores: self.plan.allocated_cores(),
            grid: serde_json::to_value(&grid).unwrap_or_default(),
            host: host_report(),
            size: u32::from(self.plan.pool.size),
            in_process,
            flush_mode,
            flush_forced,
            stores: self.stores.clone(),
            doctor: serde_json::to_value(&self.doctor).unwrap_or_default(),
            drives: (drives > 0).then_some(drives),
            marks,
            cache_state: self.cache,
            baseline: self.baseline.clone(),
            conditions: json!({
                "prefill": self.spec.prefill,
                "ramp_ms": self.spec.ramp_ms,
                "background_work_before": settled,
            }),
            ..ReportContext::default()
        }
    }

    /// Who sits where under this load.
    pub(crate) fn grid(&self) -> Grid {
        let grid = self.plan.grid.clone();
        if self.in_process.is_some() { grid.without_clients() } else { grid }
    }
}

/// Sets what a cache state asks of the load.
pub(super) fn cache_conditions(spec: &mut LoadSpec, cache: Option<CacheState>) -> anyhow::Result<()> {
    match cache {
        Some(CacheState::Cold) if spec.prefill == Prefill::Always || spec.ramp_ms > 0 => {
            bail!(Usage("--cache cold: --prefill always and --ramp would warm the caches; leave them out".into()))
        }
        Some(CacheState::Cold) => spec.prefill = Prefill::Never,
        Some(CacheState::OnodeWarm) if spec.prefill == Prefill::Never => bail!(Usage(
            "--cache onode-warm: the metadata is loaded by the look for missing objects; leave --prefill never out".into()
        )),
        Some(CacheState::Cached) if spec.ramp_ms == 0 => spec.ramp_ms = CACHED_RAMP_MS,
        _ => {}
    }
    Ok(())
}

pub(super) fn load_baseline(path: &Path) -> anyhow::Result<Baseline> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Usage(format!("--baseline {}: {e}; `carmine baseline --json FILE` makes it", path.display()))
    })?;
    Ok(Baseline::parse(&text).map_err(|what| {
        let path = path.display();
        Usage(format!("--baseline {path}: this is {what}; `carmine baseline --json FILE` makes a baseline"))
    })?)
}

type Running = (SocketAddr, u32, Vec<(OsdId, ProcessId)>);

/// The monitor's address and pid, and the OSDs' processes; an error if one of them is missing.
fn running(layout: &Layout, plan: &Plan) -> anyhow::Result<Running> {
    let dir = layout.dir().display();
    let alive = |daemon: Daemon| -> anyhow::Result<ProcessId> {
        match ProcessId::load(&layout.pid_file(daemon))?.filter(ProcessId::alive) {
            Some(process) => Ok(process),
            None => {
                bail!("{daemon} of the testbed in {dir} does not run; start it with `carmine up --dir {dir}`")
            }
        }
    };
    let mon_pid = alive(Daemon::Mon)?.pid.unsigned_abs();
    let mon = mon_addr(layout).with_context(|| format!("the monitor of {dir} has not told its address"))?;
    let osds = (0..plan.osds()).map(OsdId).map(|id| Ok((id, alive(Daemon::Osd(id))?)));
    Ok((mon, mon_pid, osds.collect::<anyhow::Result<_>>()?))
}

/// Fails if the data of the load does not fit into the OSDs.
fn check_room(
    layout: &Layout,
    plan: &Plan,
    is_peer: bool,
    mon: SocketAddr,
    spec: &LoadSpec,
    args: &BenchArgs,
) -> anyhow::Result<()> {
    let Some(room) = Room::look(layout, plan, is_peer, &args.pool)? else { return Ok(()) };
    let all = written_bytes(spec, args.client);
    // An OSD loads those objects that it leads.
    let bytes = if args.in_process { all / u64::from(plan.osds().max(1)) } else { all };
    room.check(spec, bytes, |enough| {
        if args.in_process || args.cache == Some(CacheState::Cold) {
            // Which objects these are is not known, or the look for them would warm the caches: all may be there.
            return Ok(enough);
        }
        present_bytes(mon, &args.pool, spec, enough)
    })
}

/// CPUs that only the aliens of this OSD have.
fn alien_cpus(plan: &Plan, id: OsdId) -> u32 {
    let row = plan.grid.osds.get(id.0 as usize).filter(|row| !row.aliens.own);
    row.map_or(0, |row| row.aliens.cpus.len() as u32)
}

/// What is known of verified blocks. Without a file, or with one that does not exist yet, nothing is; the load then gets
/// a generation of its own, so that blocks of earlier loads can't be taken for its own.
fn load_state(spec: &mut LoadSpec, args: &BenchArgs) -> anyhow::Result<Option<VerifyState>> {
    if !spec.verify {
        return Ok(None);
    }
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let Some(path) = &args.verify_state else {
        spec.generation = fresh;
        return Ok(None);
    };
    match std::fs::read(path) {
        Ok(bytes) => {
            let state =
                VerifyState::decode(&bytes, spec).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
            spec.generation = state.generation();
            Ok(Some(state))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !spec.verify_only => {
            spec.generation = fresh;
            Ok(Some(VerifyState::new(spec)))
        }
        Err(e) => Err(e).with_context(|| format!("cannot read the verify state {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_of_baseline_is_a_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            load_baseline(&path).map_err(|e| e.to_string())
        };
        let raw = r#"{"iops": 1000.0, "bs_bytes": 4096, "iodepth": 1}"#;
        assert!(of(&format!(r#"{{"device": null, "messenger": {raw}}}"#)).unwrap().messenger.is_some());
        for (text, what) in [
            (r#"{"fio version": "x", "jobs": [], "carmine": {}}"#, "a result of `carmine bench --json`"),
            (r#"{"fio version": "x", "jobs": []}"#, "a result of fio"),
            ("{}", "JSON without raw figures"),
            ("[1]", "JSON without raw figures"),
            (r#"{"device": null, "messenger": null}"#, "JSON without raw figures"),
            (r#"{"device": {}}"#, "JSON without raw figures"),
            (&format!(r#"{{"device": {raw}, "points": []}}"#), "JSON without raw figures"),
            ("iops 5", "no JSON"),
        ] {
            let error = of(text).unwrap_err();
            assert!(
                error.contains(what) && error.contains("`carmine baseline --json FILE`"),
                "{text}: {error}"
            );
        }
    }
}
