//! Commands for single OSDs of a running testbed: stop, kill, start and restart, also with another number of reactors.

use std::collections::BTreeSet;
use std::path::Path;

use carmine_topology::{ClientCpus, Grid, OsdRow, PlanRequest, Topology};
use carmine_types::OsdId;
use fs_err as fs;
use rustix::process::Signal;
use serde_json::Value;

use crate::daemons::{self, Daemons, Stopped};
use crate::drive;
use crate::error::{Result, fail_if, failed, usage};
use crate::files;
use crate::folder::Testbed;
use crate::layout::Daemon;
use crate::process::ProcessId;
use crate::status::{ANSWER_LIMIT, with_client};
use crate::testbed::{StartOptions, Started};

impl Testbed {
    /// Stops OSDs; the others keep running. With `kill` they end at once, as in a crash.
    ///
    /// # Errors
    /// The testbed has no such OSD, or one does not end.
    pub fn stop_osds(&self, osds: &[OsdId], kill: bool) -> Result<Vec<(Daemon, Stopped)>> {
        let daemons = self.named(osds)?;
        if kill {
            daemons::kill(self.layout(), &daemons)
        } else {
            daemons::stop(self.layout(), &daemons, true)
        }
    }

    /// Lets OSDs that have ended themselves, because they cannot read their metadata, be started again: they serve what they
    /// can read. For the last copy of something.
    ///
    /// # Errors
    /// The testbed has no such OSD.
    pub fn accept_damage(&self, osds: &[OsdId]) -> Result<()> {
        self.named(osds)?;
        let marked = osds.iter().filter(|osd| self.layout().damaged(**osd).exists());
        marked.copied().try_for_each(|osd| {
            Ok(fs::rename(self.layout().damaged(osd), self.layout().damage_accepted(osd))?)
        })
    }

    /// Keeps an OSD from running (SIGSTOP), or lets it go on.
    ///
    /// # Errors
    /// Its record is damaged.
    pub fn freeze_osd(&self, osd: OsdId, is_frozen: bool) -> Result<()> {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let process = ProcessId::running(self.layout(), Daemon::Osd(osd))?;
        process.map_or(Ok(()), |process| process.signal(signal))
    }

    /// Starts an OSD that does not run, with this number of `reactors` if it is given, and does not wait until it is up.
    ///
    /// # Errors
    /// The testbed has no such OSD or not enough CPUs for its reactors, or the program does not start.
    pub fn launch_osd(&mut self, osd: OsdId, reactors: Option<u16>, programs: &Path) -> Result<()> {
        let named = self.named(&[osd])?;
        if let Some(reactors) = reactors {
            self.place_anew(osd, reactors)?;
            self.write_plan()?;
        }
        // Its wrapper may have left something.
        daemons::stop(self.layout(), &named, true)?;
        files::remove_file(&self.layout().http_addr(osd))?;
        let mut daemons = Daemons::new(self.layout());
        daemons.start(&self.plan, programs, Daemon::Osd(osd))?;
        daemons.keep();
        Ok(())
    }

    /// Gives the monitor a command and returns its output.
    ///
    /// # Errors
    /// The monitor does not run, or it refuses the command.
    pub fn mon_command(&self, command: &Value) -> Result<Vec<u8>> {
        with_client(&self.running()?, ANSWER_LIMIT, ANSWER_LIMIT, async |_, client| {
            let reply = client.mon_command(&command.to_string()).await;
            reply.map(|reply| reply.data).map_err(|e| failed!("{e}"))
        })?
    }

    /// Starts OSDs and waits until they are up; if then all OSDs of the testbed run, also until every PG is active and clean.
    /// With `again` those that run are stopped first. With `reactors` they get this number, until all are started by `up`.
    /// Where nothing runs, the monitor is started, too.
    ///
    /// # Errors
    /// No such OSD, one that runs already (unless `again`), OSDs that run without a monitor, too few CPUs for the reactors, or then no
    /// OSD runs.
    pub fn start_osds(
        &mut self,
        osds: &[OsdId],
        again: bool,
        reactors: Option<u16>,
        start: &mut StartOptions<'_>,
    ) -> Result<Started> {
        let mut daemons = self.named(osds)?;
        let (running, missing) = self.parts()?;
        if running.is_empty() {
            self.require_stopped()?;
            daemons.extend(missing.iter().filter(|daemon| !matches!(daemon, Daemon::Osd(_))));
        }
        let dir = self.layout().dir().display();
        fail_if!(
            !self.plan.have_quorum(&running) && !running.is_empty(),
            "the monitor of {dir} is not running, and OSDs are: `carmine up --dir {dir}` starts all that is missing"
        );
        let runs = daemons.iter().find(|daemon| !again && running.contains(daemon));
        if let Some(daemon) = runs {
            return Err(usage!("{daemon} runs already: `carmine osd restart` starts it anew"));
        }
        if let Some(reactors) = reactors {
            osds.iter().try_for_each(|osd| self.place_anew(*osd, reactors))?;
            self.write_plan()?;
        }
        self.start_some(&daemons, start)
    }

    /// These OSDs as daemons, each once.
    fn named(&self, osds: &[OsdId]) -> Result<Vec<Daemon>> {
        osds.iter().try_for_each(|osd| self.plan.require_osd(*osd))?;
        Ok(BTreeSet::from_iter(osds).into_iter().copied().map(Daemon::Osd).collect())
    }

    /// Gives an OSD other reactors: on its own CPUs and on those that nobody has; where CPUs may be shared, on any.
    pub(crate) fn place_anew(&mut self, osd: OsdId, reactors: u16) -> Result<()> {
        let drives = self.plan.device_of(osd).map(drive::name_of);
        let place = self.plan.place_of(osd).ok_or_else(|| failed!("the plan has no place for {osd}"))?;
        let plan = &mut self.plan;
        let topology = Topology::detect().map_err(|e| usage!("{e}"))?;
        let mut others = plan.grid.clone();
        let old = others.osds.remove(place);
        let lists = [&others.system, &others.neighbour].into_iter().chain(&plan.cpu.alien_cpus);
        let taken = others.allocated_cpus().union(&others.client_cpus());
        let taken = lists.fold(taken, |taken, list| taken.union(list));
        let given = plan.cpu.cpus.as_ref();
        let free = given.unwrap_or(topology.allowed()).difference(&taken);
        let placed = if plan.overprovisioned { given.cloned() } else { Some(free) };
        // All OSDs whose reactors are not pinned have the same CPUs.
        let floating = old.floating.map(|floating| floating.cpus);
        let request = PlanRequest {
            osds: 1,
            reactors: reactors.into(),
            cpus: floating.or(placed),
            client_cpus: Some(ClientCpus::List(others.client_cpus())),
            osds_per_device: 1,
            drives: drives.into_iter().collect(),
            pgs: 0,
            ..plan.cpu.clone()
        };
        let mut grid = Grid::plan(&topology, &request).map_err(|e| usage!("{osd}: {e}"))?;
        let row = OsdRow { osd: old.osd, shared_device: old.shared_device, ..grid.osds.remove(0) };
        others.osds.insert(place, row);
        others.devices = grid.devices;
        plan.grid = others.marked();
        Ok(())
    }
}
