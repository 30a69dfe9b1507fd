//! What is loaded: a Carmine testbed, or a peer.

use std::path::{Path, PathBuf};

use crate::sample::series::SampleOptions;
use crate::sample::{Sampler, WatchedOsd, host_report};
use anyhow::Context;
use carmine_doctor::{Finding, Options, examine};
use carmine_load::drive::StoreFacts;
use carmine_load::report::Context as ReportContext;
use carmine_testbed::peer::About;
use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, ask_osd};
use carmine_topology::{CpuList, Grid};
use carmine_types::{FlushMode, OsdId};
use serde_json::{Value, json};

use super::super::stores::{data_drives, stores, watched};
use crate::Doctor;
use crate::bench::osd_dump::{OsdDump, QUESTIONS};

/// A running cluster in a folder.
pub(super) struct Target {
    layout: Layout,
    pub(super) grid: Grid,
    /// Cores that the OSDs may use.
    pub(super) allocated_cores: f64,
    pub(super) client_cpus: CpuList,
    pub(super) osds: Vec<(OsdId, ProcessId)>,
    pub(super) sampler: Sampler,
    plan: Value,
    size: u32,
    /// What the OSDs' stores lie on; none for a peer.
    stores: Vec<StoreFacts>,
    doctor: Value,
    /// `None`: a Carmine testbed.
    about: Option<About>,
}

/// What both kinds have in common.
struct Known {
    grid: Grid,
    allocated_cores: f64,
    plan: Value,
    size: u32,
    devices: Vec<PathBuf>,
    stores: Vec<StoreFacts>,
    start: &'static str,
    doctor: Vec<Finding>,
    about: Option<About>,
}

impl Target {
    /// Looks at the cluster in `dir`, all of whose processes must run.
    pub(super) fn open(dir: &Path, doctor: Doctor) -> anyhow::Result<Target> {
        let layout = Layout::new(dir)?;
        let known = match carmine_testbed::peer::load_plan(&layout)? {
            Some(plan) => peer(&plan)?,
            None => testbed(&layout, doctor)?,
        };
        let alive = |daemon: Daemon| -> anyhow::Result<ProcessId> {
            ProcessId::load(&layout.pid_file(daemon))?.filter(ProcessId::alive).with_context(|| {
                let dir = layout.dir().display();
                format!("{daemon} in {dir} does not run; start it with `{} --dir {dir}`", known.start)
            })
        };
        let ids = (0..known.grid.osds.len() as u32).map(OsdId);
        let osds: Vec<(OsdId, ProcessId)> =
            ids.map(|id| Ok((id, alive(Daemon::Osd(id))?))).collect::<anyhow::Result<_>>()?;
        let processes = osds.iter().zip(&known.grid.osds).map(|((id, process), row)| WatchedOsd {
            id: id.0,
            pid: process.pid.unsigned_abs(),
            alien_cpus: if row.aliens.own { 0 } else { row.aliens.cpus.len() as u32 },
        });
        let devices = watched(&layout, osds.len() as u32, &known.devices, &known.stores);
        let sampler =
            Sampler::new(processes.collect(), Some(alive(Daemon::Mon)?.pid.unsigned_abs()), devices);
        Ok(Target {
            client_cpus: known.grid.client_cpus(),
            grid: known.grid,
            allocated_cores: known.allocated_cores,
            osds,
            sampler,
            plan: known.plan,
            size: known.size,
            stores: known.stores,
            doctor: serde_json::to_value(&known.doctor).unwrap_or_default(),
            about: known.about,
            layout,
        })
    }

    /// The OSDs' processes.
    pub(super) fn osd_pids(&self) -> Vec<u32> {
        self.osds.iter().map(|(_, process)| process.pid.unsigned_abs()).collect()
    }

    /// What a sampler looks at.
    pub(super) fn sample_options(&self) -> SampleOptions {
        SampleOptions {
            osds: self.osds.iter().map(|(id, _)| id.0).zip(self.osd_pids()).collect(),
            devices: self.sampler.devices().to_vec(),
            osd_cpus: self.grid.allocated_cpus().to_vec(),
            client_cpus: self.client_cpus.to_vec(),
        }
    }

    /// Path of its `ceph.conf`.
    pub(super) fn conf(&self) -> PathBuf {
        self.layout.ceph_conf()
    }

    /// What the OSDs tell; nothing for a peer. One that does not answer has told nothing.
    pub(super) fn dumps(&self) -> Vec<OsdDump> {
        let ask = |id: OsdId, question: &str| -> Option<Value> {
            serde_json::from_str(&ask_osd(&self.layout, id, question).ok()?).ok()
        };
        let one = |id: OsdId| {
            let [metrics, status] = QUESTIONS;
            Some(OsdDump::new([ask(id, metrics)?, ask(id, status)?]))
        };
        if self.about.is_some() {
            return Vec::new();
        }
        self.osds.iter().map(|(id, _)| one(*id).unwrap_or_default()).collect()
    }

    /// The part of the report that this knows.
    pub(super) fn context(&self, marks: Vec<String>) -> ReportContext {
        // A peer's devices are all its data's.
        let (drives, (flush_mode, flush_forced)) = match &self.about {
            Some(_) => (self.sampler.devices().len() as u32, (FlushMode::Flush.to_string(), false)),
            None => (data_drives(&self.stores), StoreFacts::flush_of(&self.stores)),
        };
        ReportContext {
            plan: self.plan.clone(),
            shared: self.grid.shared,
            allocated_cores: self.allocated_cores,
            client_cpus: Some(self.client_cpus.len() as u32),
            grid: serde_json::to_value(&self.grid).unwrap_or_default(),
            host: host_report(),
            size: self.size,
            flush_mode,
            flush_forced,
            stores: self.stores.clone(),
            doctor: self.doctor.clone(),
            drives: (drives > 0).then_some(drives),
            marks,
            ..ReportContext::default()
        }
    }

    /// What the peer is; `null` for a testbed.
    pub(super) fn about_json(&self) -> anyhow::Result<Value> {
        serde_json::to_value(&self.about).context("cannot describe the peer")
    }
}

fn without_grid(plan: Value) -> Value {
    match plan {
        Value::Object(mut map) => {
            map.remove("grid");
            Value::Object(map)
        }
        other => json!({ "plan": other }),
    }
}

fn peer(plan: &carmine_testbed::peer::PeerPlan) -> anyhow::Result<Known> {
    Ok(Known {
        grid: plan.grid.clone(),
        allocated_cores: plan.grid.allocated_cpus().len() as f64,
        plan: without_grid(serde_json::to_value(plan)?),
        size: u32::from(plan.size),
        devices: plan.devices.clone(),
        stores: Vec::new(),
        start: "carmine peer up",
        doctor: examine(&Options {
            reactor_cpus: plan.grid.allocated_cpus(),
            client_cpus: plan.client_cpus(),
            ..Options::default()
        }),
        about: Some(carmine_testbed::peer::about(plan)?),
    })
}

fn testbed(layout: &Layout, doctor: Doctor) -> anyhow::Result<Known> {
    let plan = carmine_testbed::require_plan(layout)?;
    Ok(Known {
        grid: plan.grid.clone(),
        allocated_cores: plan.allocated_cores(),
        plan: without_grid(serde_json::to_value(&plan)?),
        size: u32::from(plan.pool.size),
        devices: plan.devices.clone(),
        stores: stores(layout, &plan)?,
        start: "carmine up",
        doctor: doctor(layout, &plan),
        about: None,
    })
}
