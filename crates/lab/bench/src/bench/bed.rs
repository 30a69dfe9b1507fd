//! The cluster that is loaded: a running testbed, or a peer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use carmine_doctor::{Finding, Options, examine};
use carmine_load::baseline::Baseline;
use carmine_load::drive::StoreFacts;
use carmine_load::hosted::{self, Tool};
use carmine_load::report::{Context as ReportContext, Setting};
use carmine_load::samples::Samples;
use carmine_load::window::{InstrumentWindow, Window};
use carmine_load::{LoadSpec, Route};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::peer::{self, PeerPlan};
use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, Plan, ask_osd, mon_addr, require_plan};
use carmine_topology::Grid;
use carmine_types::{FlushMode, OsdId, counted};
use serde_json::{Value, json};

use super::args::BenchArgs;
use super::room::{Room, written_bytes};
use super::setup::{cache_conditions, fill_and_age, load_baseline};
use crate::Doctor;
use crate::sample::series::Recorder;
use crate::sample::{OsdDump, QUESTIONS, Sampler, Snapshot, WatchedOsd, add_dumps, device_of, host_report};

/// Time that the machine's idle baseline is measured for.
pub(super) const BASELINE: Duration = Duration::from_millis(400);

/// A running cluster in a folder.
#[derive(Clone)]
pub(super) struct Bed {
    layout: Layout,
    /// Of a peer: the testbed that has its CPUs, pool and devices, and keeps its data; an OSD's cores stand for reactors.
    pub(super) plan: Plan,
    /// `None`: a testbed.
    pub(super) peer: Option<PeerPlan>,
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
pub(super) struct Reading {
    pub(super) osds: Vec<OsdDump>,
    pub(super) kernel: Snapshot,
}

impl Reading {
    /// Client operations that the OSDs have answered since their start.
    pub(super) fn client_ops(&self) -> u64 {
        let shards = self.osds.iter().filter_map(|osd| osd.metrics["shards"].as_array()).flatten();
        shards.filter_map(|shard| shard["osd"]["ops"].as_u64()).sum()
    }
}

impl Bed {
    /// Looks at the cluster that is to be loaded, all of whose processes must run. Second: the load, checked; third: the marks of
    /// the tool, which does some of it differently.
    pub(super) fn open(args: &BenchArgs, doctor: Doctor) -> anyhow::Result<(Bed, LoadSpec, Vec<String>)> {
        let check = |spec: &LoadSpec| -> anyhow::Result<Vec<String>> {
            let checked = spec.check().and_then(|()| hosted::check(args.client, spec));
            Ok(checked.map_err(|e| Usage(e.to_string()))?)
        };
        let mut spec = args.spec();
        cache_conditions(&mut spec, args.cache)?;
        check(&spec)?;
        for (option, given) in [("--in-process", args.in_process), ("--confirm", args.confirm)] {
            if given && args.client != Tool::Carmine {
                bail!(Usage(format!("{option}: only --client carmine can do that, {} cannot", args.client)));
            }
        }
        let baseline = args.baseline.as_deref().map(load_baseline).transpose()?;
        let layout = Layout::new(&args.dir.dir)?;
        let peer = peer::load_plan(&layout)?;
        // A peer's cores stand for reactors.
        let plan = peer.as_ref().map_or_else(|| require_plan(&layout), |peer| Ok(peer.plan.clone()))?;
        if peer.is_some() && args.in_process {
            bail!(Usage("--in-process: a peer's OSDs do not load themselves; leave it out".into()));
        }
        // A stock client has one connection for each OSD, and a stock OSD takes no other.
        if peer.is_some() || args.client != Tool::Carmine {
            spec.route = Route::Single;
        }
        fill_and_age(&mut spec, &plan, args.fill, args.age)?;
        let marks = check(&spec)?;
        let dir = layout.dir().display();
        let start = if peer.is_some() { "carmine peer up" } else { "carmine up" };
        let alive = |daemon: Daemon| -> anyhow::Result<ProcessId> {
            ProcessId::running(&layout, daemon)?.with_context(|| {
                format!("{daemon} of the testbed in {dir} does not run; start it with `{start} --dir {dir}`")
            })
        };
        let mon_pid = alive(Daemon::Mon)?.pid.unsigned_abs();
        let mon =
            mon_addr(&layout).with_context(|| format!("the monitor of {dir} has not told its address"))?;
        let osds = (0..plan.osds()).map(OsdId).map(|id| Ok((id, alive(Daemon::Osd(id))?)));
        let osds = osds.collect::<anyhow::Result<Vec<_>>>()?;
        let (stores, doctor) = match &peer {
            None => (stores(&layout, &plan)?, doctor(&layout, &plan)),
            Some(peer) => {
                let (reactor_cpus, client_cpus) = (peer.grid.allocated_cpus(), peer.client_cpus());
                let options = Options { reactor_cpus, client_cpus, ..Options::default() };
                (Vec::new(), examine(&options))
            }
        };
        let processes = osds.iter().zip(&plan.grid.osds).map(|((id, process), row)| WatchedOsd {
            id: id.0,
            pid: process.pid.unsigned_abs(),
            alien_cpus: if row.aliens.own { 0 } else { row.aliens.cpus.len() as u32 },
        });
        let devices = watched(&layout, &plan, &stores);
        let sampler = Sampler::new(processes.collect(), Some(mon_pid), devices);
        Ok((Bed { layout, plan, peer, mon, osds, sampler, stores, doctor, baseline }, spec, marks))
    }

    /// Fails if the data of the load does not fit into the OSDs. `present` counts bytes of it that are there already, up to a
    /// number; `None`: it is not known which.
    pub(super) fn check_room(
        &self,
        spec: &LoadSpec,
        args: &BenchArgs,
        present: impl FnOnce(u64) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        let Some(room) = Room::look(&self.layout, &self.plan, self.peer.is_some(), &args.pool)? else {
            return Ok(());
        };
        let all = written_bytes(spec, args.client);
        // An OSD loads those objects that it leads.
        let bytes = if args.in_process { all / u64::from(self.plan.osds().max(1)) } else { all };
        room.check(spec, bytes, present)
    }

    /// CPUs of the generator.
    pub(super) fn client_cpus(&self) -> Vec<usize> {
        self.plan.grid.client_cpus().to_vec()
    }

    /// The OSDs' processes.
    pub(super) fn osd_pids(&self) -> Vec<u32> {
        self.osds.iter().map(|(_, process)| process.pid.unsigned_abs()).collect()
    }

    /// Fails if an OSD has died.
    pub(super) fn check_alive(&self) -> anyhow::Result<()> {
        if let Some((id, pid)) = self.osds.iter().find(|(_, process)| !process.alive()) {
            bail!("{id} (pid {}) died under the load; see its log", pid.pid);
        }
        Ok(())
    }

    /// Starts to sample what `sampler` looks at.
    pub(super) fn record(&self, sampler: &Sampler) -> anyhow::Result<Recorder> {
        let grid = &self.plan.grid;
        let client_cpus = grid.client_cpus().union(&grid.neighbour).to_vec();
        Ok(Recorder::start(sampler.clone(), grid.allocated_cpus().to_vec(), &client_cpus)?)
    }

    /// Path of its `ceph.conf`.
    pub(super) fn conf(&self) -> PathBuf {
        self.layout.ceph_conf()
    }

    /// The OSDs' answers. One that does not answer has told nothing; a peer's know no such questions.
    pub(super) fn dumps(&self) -> Vec<OsdDump> {
        let ask = |id: OsdId, question: &str| -> Option<Value> {
            serde_json::from_str(&ask_osd(&self.layout, id, question).ok()?).ok()
        };
        let one = |id: OsdId| {
            let [metrics, status] = QUESTIONS;
            Some(OsdDump::new([ask(id, metrics)?, ask(id, status)?]))
        };
        if self.peer.is_some() {
            return Vec::new();
        }
        self.osds.iter().map(|(id, _)| one(*id).unwrap_or_default()).collect()
    }

    /// The window between two readings, the kernel's of which `sampler` has made.
    pub(super) fn window(
        &self,
        sampler: &Sampler,
        start: &Reading,
        end: &Reading,
        idle_cores: f64,
    ) -> Window {
        let mut window = sampler.window(&start.kernel, &end.kernel, idle_cores);
        add_dumps(&mut window, &start.osds, &end.osds);
        window
    }

    /// The part of the report that this knows.
    pub(super) fn context(&self, spec: &LoadSpec, args: &BenchArgs) -> ReportContext {
        let mut marks = Vec::new();
        let (threads, cpus) = (spec.numjobs as usize, self.client_cpus().len());
        if !args.in_process && threads > cpus {
            marks.push(format!(
                "{} share {}",
                counted(threads, "generator thread"),
                counted(cpus, "client CPU")
            ));
        }
        let mut plan = match &self.peer {
            Some(peer) => serde_json::to_value(peer),
            None => serde_json::to_value(&self.plan),
        }
        .unwrap_or_default();
        plan.as_object_mut().map(|map| map.remove("grid"));
        // A peer's devices are all its data's.
        let (drives, allocated_cores, (flush_mode, flush_forced)) = match &self.peer {
            Some(peer) => {
                let flush = (FlushMode::Flush.to_string(), false);
                (self.sampler.devices().len() as u32, peer.grid.allocated_cpus().len() as f64, flush)
            }
            None => {
                (data_drives(&self.stores), self.plan.allocated_cores(), StoreFacts::flush_of(&self.stores))
            }
        };
        let grid = self.grid_of(args.in_process);
        let setting = Setting {
            plan,
            shared: grid.shared,
            grid: serde_json::to_value(&grid).unwrap_or_default(),
            host: host_report(),
            in_process: args.in_process,
            flush_mode,
            flush_forced,
            stores: self.stores.clone(),
            doctor: serde_json::to_value(&self.doctor).unwrap_or_default(),
            cache_state: args.cache,
            baseline: self.baseline.clone(),
            conditions: json!({ "prefill": spec.prefill, "ramp_ms": spec.ramp_ms }),
            more_load: None,
        };
        let size = u32::from(self.plan.pool.size);
        let drives = (drives > 0).then_some(drives);
        ReportContext { setting, allocated_cores, client_cpus: None, size, drives, marks }
    }

    /// The CPUs of OSDs and clients under a load.
    pub(super) fn grid_of(&self, in_process: bool) -> Grid {
        let grid = self.plan.grid.clone();
        if in_process { grid.without_clients() } else { grid }
    }

    /// `carmine.peer` of a result; `null` for a testbed.
    pub(super) fn about_json(&self) -> anyhow::Result<Value> {
        let about = self.peer.as_ref().map(peer::about).transpose()?;
        Ok(serde_json::to_value(about)?)
    }
}

/// The cost of these samples.
pub(super) fn instrument(samples: Option<&Samples>) -> Option<InstrumentWindow> {
    let instrument = &samples?.instrument;
    Some(InstrumentWindow { cores: instrument.cores, apart: !instrument.cpus.is_empty() })
}

/// The drives under the stores, as the OSDs tell them; none for stores in memory.
fn stores(layout: &Layout, plan: &Plan) -> anyhow::Result<Vec<StoreFacts>> {
    let ask = |osd: OsdId| -> anyhow::Result<Option<StoreFacts>> {
        let answer = ask_osd(layout, osd, r#"{"prefix":"dump_store"}"#)?;
        serde_json::from_str(&answer).with_context(|| format!("{osd} does not say what its store lies on"))
    };
    (0..plan.osds()).map(OsdId).filter_map(|osd| ask(osd).transpose()).collect()
}

/// Block devices to watch, as the kernel's statistics name them: those of all parts of the stores; of stores in memory and of
/// others', what the OSDs' folders and the named devices lie on.
fn watched(layout: &Layout, plan: &Plan, stores: &[StoreFacts]) -> Vec<String> {
    let mut names: Vec<String> = if stores.is_empty() {
        let folders = (0..plan.osds()).map(|id| layout.osd_dir(OsdId(id)));
        plan.devices.iter().cloned().chain(folders).filter_map(|path| device_of(&path)).collect()
    } else {
        stores.iter().flat_map(StoreFacts::nodes).map(str::to_owned).collect()
    };
    names.sort_unstable();
    names.dedup();
    names
}

/// Distinct devices that hold data.
fn data_drives(stores: &[StoreFacts]) -> u32 {
    let mut names: Vec<&String> = stores.iter().filter_map(|store| store.data.drive.node.as_ref()).collect();
    names.sort_unstable();
    names.dedup();
    names.len() as u32
}
