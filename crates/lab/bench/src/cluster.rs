//! A running cluster, a testbed or a peer: its processes, and what they and the kernel count.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use carmine_load::drive::StoreFacts;
use carmine_load::window::Window;
use carmine_testbed::{BedKind, Daemon, Layout, Plan, ProcessId, ask_osd, load, require_plan};
use carmine_types::OsdId;

use crate::sample::series::Recorder;
use crate::sample::{OsdDump, QUESTIONS, Sampler, Snapshot, WatchedOsd, add_dumps, device_of};

/// Time that the machine's idle baseline is measured for.
const BASELINE: Duration = Duration::from_millis(400);

/// A cluster all of whose processes ran when it was found.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) layout: Layout,
    /// Of a peer: the testbed that has its CPUs, pool and devices, and keeps its data; an OSD's cores stand for reactors.
    pub(crate) plan: Plan,
    pub(crate) osds: Vec<(OsdId, ProcessId)>,
    /// The drives under the OSDs' stores; none for stores in memory, and for a peer.
    pub(crate) stores: Vec<StoreFacts>,
    pub(crate) sampler: Sampler,
}

/// One reading of the kernel's counters and the OSDs' own.
pub(crate) struct Reading {
    pub(crate) osds: Vec<OsdDump>,
    pub(crate) kernel: Snapshot,
}

impl Reading {
    /// The window from this reading to a later one.
    pub(crate) fn window_to(&self, end: &Reading, sampler: &Sampler, idle_cores: f64) -> Window {
        let mut window = sampler.window(&self.kernel, &end.kernel, idle_cores);
        add_dumps(&mut window, &self.osds, &end.osds);
        window
    }

    /// Client operations that the OSDs have answered since their start.
    pub(crate) fn client_ops(&self) -> u64 {
        let shards = self.osds.iter().filter_map(|osd| osd.metrics["shards"].as_array()).flatten();
        shards.filter_map(|shard| shard["osd"]["ops"].as_u64()).sum()
    }
}

/// The plan of the peer or the testbed in a folder, for a command that measures it.
///
/// # Errors
/// There is none, or its OSDs are only a part of a cluster.
pub(crate) fn plan(layout: &Layout) -> Result<Plan> {
    let plan = load(BedKind::Peer, layout)?.map_or_else(|| require_plan(layout), Ok)?;
    plan.refuse_part(&format!("--dir {}", layout.dir().display()))?;
    Ok(plan)
}

impl Cluster {
    /// The cluster that runs by a plan.
    ///
    /// # Errors
    /// A daemon of the testbed is not running, or an OSD does not report the drives of its store.
    pub(crate) fn running(layout: Layout, plan: Plan) -> Result<Cluster> {
        let dir = layout.dir().display();
        let start = if plan.peer.is_some() { "carmine peer up" } else { "carmine up" };
        let alive = |daemon: Daemon| -> Result<ProcessId> {
            ProcessId::running(&layout, daemon)?.with_context(|| {
                format!("{daemon} in {dir} is not running; start it with `{start} --dir {dir}`")
            })
        };
        let osds = plan.osd_ids().map(|id| Ok((id, alive(Daemon::Osd(id))?)));
        let osds = osds.collect::<Result<Vec<_>>>()?;
        let mons = plan.daemons().into_iter().filter(|daemon| daemon.as_mon().is_some());
        let mon_pids = mons.map(|mon| Ok(alive(mon)?.pid.unsigned_abs())).collect::<Result<Vec<_>>>()?;
        let stores = if plan.peer.is_some() { Vec::new() } else { stores(&layout, &plan)? };
        let watched_osd = |(id, process): &(OsdId, ProcessId)| -> Result<WatchedOsd> {
            let aliens = &plan.row(*id)?.aliens;
            let alien_cpus = if aliens.own { 0 } else { aliens.cpus.len() as u32 };
            Ok(WatchedOsd { id: id.0, pid: process.pid.unsigned_abs(), alien_cpus })
        };
        let processes = osds.iter().map(watched_osd).collect::<Result<_>>()?;
        let devices = watched(&layout, &plan, &stores);
        let sampler = Sampler::new(processes, mon_pids, devices);
        Ok(Cluster { layout, plan, osds, stores, sampler })
    }

    /// Reads what `sampler` looks at, and the OSDs' answers. An OSD that does not answer has none; a peer's OSDs do not know the
    /// questions.
    ///
    /// # Errors
    /// Those of [`Sampler::sample`].
    pub(crate) fn read(&self, sampler: &Sampler) -> Result<Reading> {
        let dump = |id: OsdId| -> Result<OsdDump> {
            let [metrics, status] = QUESTIONS.map(|question| ask_osd(&self.layout, id, question));
            OsdDump::parse([&metrics?, &status?])
        };
        let osds = self.plan.osd_ids().filter(|_| self.plan.peer.is_none());
        let osds = osds.map(|id| dump(id).unwrap_or_default()).collect();
        Ok(Reading { osds, kernel: sampler.sample()? })
    }

    /// CPUs of the generator.
    pub(crate) fn client_cpus(&self) -> Vec<usize> {
        self.plan.grid.client_cpus().to_vec()
    }

    /// The OSDs' processes.
    pub(crate) fn osd_pids(&self) -> Vec<u32> {
        self.osds.iter().map(|(_, process)| process.pid.unsigned_abs()).collect()
    }

    /// A remark that names the OSDs that died after the load began, including OSDs that were started again.
    pub(crate) fn died_mark(&self) -> Option<String> {
        let died = self.osds.iter().filter(|(_, process)| !process.alive());
        let names: Vec<String> = died.map(|(id, _)| id.to_string()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "DIED: {} ended under the load; CPU time and memory since a restart are missing",
                names.join(", ")
            )
        })
    }

    /// Fails if no OSD is running, whether it ran when the load began or was started later.
    pub(crate) fn check_one_runs(&self) -> Result<()> {
        let runs = |(id, first): &(OsdId, ProcessId)| {
            first.alive() || matches!(ProcessId::running(&self.layout, Daemon::Osd(*id)), Ok(Some(_)))
        };
        if self.osds.iter().any(runs) { Ok(()) } else { self.check_alive() }
    }

    /// True if the monitors that live are no quorum: clients could not find an OSD that is started again.
    pub(crate) fn mons_are_dead(&self) -> bool {
        let runs = |daemon: &Daemon| matches!(ProcessId::running(&self.layout, *daemon), Ok(Some(_)));
        let running: Vec<Daemon> = self.plan.daemons().into_iter().filter(runs).collect();
        !self.plan.have_quorum(&running)
    }

    /// Fails if an OSD has died.
    pub(crate) fn check_alive(&self) -> Result<()> {
        let dead = self.osds.iter().find(|(_, process)| !process.alive());
        dead.map_or(Ok(()), |(id, pid)| bail!("{id} (pid {}) died under the load; see its log", pid.pid))
    }

    /// Starts to sample what `sampler` looks at.
    pub(crate) fn record(&self, sampler: &Sampler) -> Result<Recorder> {
        let grid = &self.plan.grid;
        let client_cpus = grid.client_cpus().union(&grid.neighbour).to_vec();
        Recorder::start(sampler.clone(), grid.allocated_cpus().to_vec(), &client_cpus)
    }

    /// Cores that are busy with other things when there is no load.
    pub(crate) fn idle_cores(&self) -> Result<f64> {
        let before = self.sampler.sample()?;
        std::thread::sleep(BASELINE);
        Ok(self.sampler.baseline_cores(&before, &self.sampler.sample()?))
    }
}

/// The drives under the stores, as the OSDs report them; none for stores in memory.
fn stores(layout: &Layout, plan: &Plan) -> Result<Vec<StoreFacts>> {
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
