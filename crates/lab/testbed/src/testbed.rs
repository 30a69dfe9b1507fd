//! A testbed: a folder with a plan, and the processes that run by it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_types::{AuthKind, MonKind, OsdId};
use fs_err as fs;

use crate::auth::{access_at, make_keys};
use crate::daemons::{self, Daemons, Lost, arguments};
use crate::error::{Result, TestbedError, fail_if, failed};
use crate::folder::{BedKind, Testbed, require};
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
use crate::process::run_tool;
use crate::{confine, files, network, peer, status};

/// A monitor without OSDs listens within milliseconds.
const MON_LIMIT: Duration = Duration::from_secs(20);
const MON_PAUSE: Duration = Duration::from_millis(5);

/// `carmine-osd --mkfs` prints `progress DONE TOTAL`, in bytes, for each step.
const PROGRESS: &str = "progress ";

/// Progress of making or starting a testbed, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A store is being made, or a drive is written into its steady state: `what` names it and what is being done, and `done` of
    /// `total` steps (bytes, if `is_bytes`) are.
    Progress { what: String, done: u64, total: u64, is_bytes: bool },
    /// How the OSDs are confined.
    Confined(String),
    /// A daemon was started.
    Started(Daemon),
    /// The start waits for this.
    Waiting(String),
}

impl Event {
    /// The progress of making an OSD's store, in bytes.
    pub(crate) fn of_store(osd: OsdId, done: u64, total: u64) -> Self {
        Self::Progress { what: format!("writing the block file of {osd}"), done, total, is_bytes: true }
    }
}

/// The surroundings of a start.
pub struct StartOptions<'a> {
    /// Folder of the daemons' programs.
    pub programs: PathBuf,
    /// Set from outside (Ctrl-C): the start gives up and cleans up.
    pub cancel: &'a AtomicBool,
    /// Told what happens.
    pub events: &'a mut dyn FnMut(Event),
    /// All PGs must be active after this time.
    pub limit: Duration,
}

/// A testbed whose daemons were started.
#[derive(Clone, Debug)]
pub struct Started {
    /// Addresses of the monitors.
    pub mons: Vec<SocketAddr>,
    /// OSDs that were to be started and do not run.
    pub lost: Vec<Lost>,
    /// Names the part of the testbed that was not ready in time, beside the OSDs in `lost`.
    pub waits_for: Option<String>,
}

impl Started {
    /// True if this OSD does not run.
    pub fn is_lost(&self, osd: OsdId) -> bool {
        self.lost.iter().any(|lost| lost.osd == osd)
    }

    /// The reasons of all OSDs that do not run, each text once.
    pub(crate) fn reasons(&self) -> String {
        let mut reasons: Vec<&str> = self.lost.iter().map(|lost| lost.why.as_str()).collect();
        reasons.dedup();
        reasons.join("\n")
    }
}

/// Reads the plan of a folder that must hold a testbed.
///
/// # Errors
/// There is none; also those of [`load`](crate::load).
pub fn require_plan(layout: &Layout) -> Result<Plan> {
    require(BedKind::Testbed, layout)
}

impl Testbed {
    pub(crate) fn fill(&mut self, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        self.make_folders()?;
        make_keys(self.layout(), &self.plan)?;
        if self.plan.mon == MonKind::Ceph && self.plan.joined.is_none() {
            self.make_ceph_mons(start)?;
        }
        if self.plan.store.is_durable() {
            self.check_space()?;
            for osd in self.plan.osd_ids() {
                make_store(self.layout(), osd, wipe, start)?;
            }
        }
        self.plan.complete = true;
        self.write_plan()?;
        // The daemons sync what they make in their folders; this makes the folders themselves survive a power cut.
        Ok(fs::File::open(self.layout().dir())?.sync_all()?)
    }

    /// Refuses to write block files in advance that the file system cannot hold.
    fn check_space(&self) -> Result<()> {
        if !self.plan.devices.is_empty() || self.plan.sparse {
            return Ok(());
        }
        let need = self.plan.osd_size_bytes.saturating_mul(u64::from(self.plan.osds()));
        let dir = self.layout().dir();
        let have = files::free_bytes(dir)?;
        let (need_mib, have_mib, each_mib) = (need >> 20, have >> 20, self.plan.osd_size_bytes >> 20);
        fail_if!(
            need > have,
            "{} x {each_mib} MiB need {need_mib} MiB, {} has {have_mib} MiB free: lower --osd-size or --osds, or take --sparse",
            carmine_types::counted(self.plan.osds() as usize, "OSD"),
            dir.display()
        );
        Ok(())
    }

    /// Starts all processes and waits until every PG is active. OSDs that do not start are given up, and the rest runs. If the
    /// monitor does not start, or no OSD does, all are stopped again.
    pub fn start(&mut self, start: &mut StartOptions<'_>) -> Result<Started> {
        if self.plan.kind() == BedKind::Peer {
            let mons = vec![peer::start(self, start)?];
            return Ok(Started { mons, lost: Vec::new(), waits_for: None });
        }
        self.require_stopped()?;
        self.start_some(&self.plan.daemons(), start)
    }

    /// Starts the embedded monitor, and waits until it listens.
    fn start_embedded_mon(&self, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<()> {
        files::remove_file(&self.layout().mon_addr())?;
        daemons.start(&self.plan, &start.programs, Daemon::MON)?;
        (start.events)(Event::Started(Daemon::MON));
        let missing = || mon_addrs(self.layout()).is_none().then(|| "the monitor".to_owned());
        daemons.wait(missing, Daemon::MON, Instant::now() + MON_LIMIT, MON_PAUSE, start)?;
        let Some(mons) = mon_addrs(self.layout()) else { return Ok(()) };
        let conf = ceph_conf(&self.plan, &mons, self.layout().dir());
        files::write_whole(&self.layout().ceph_conf(), conf.as_bytes())
    }

    /// Starts daemons, the monitors first, and waits until they are up and, if then nothing is missing, every PG is active and
    /// clean. `is_first`: nothing else runs.
    fn start_daemons(
        &mut self,
        which: &[Daemon],
        is_first: bool,
        start: &mut StartOptions<'_>,
    ) -> Result<Started> {
        let (end, dir) = (Instant::now() + start.limit, self.layout().dir().to_path_buf());
        let (running, missing) = self.parts()?;
        let is_whole = missing.iter().all(|daemon| which.contains(daemon));
        let mut daemons = Daemons::new(self.layout());
        let to_start = which.iter().filter_map(|daemon| daemon.as_mon()).collect::<Vec<_>>();
        if !to_start.is_empty() {
            match self.plan.mon {
                MonKind::Embedded => self.start_embedded_mon(&mut daemons, start)?,
                MonKind::Ceph => self.start_ceph_mons(&to_start, &mut daemons, is_first, start)?,
            }
        }
        if which.contains(&Daemon::Mgr) {
            self.start_ceph_mgr(&mut daemons, start)?;
        }
        self.find_mons()?;
        let dir = dir.display();
        let again = format!("`carmine down --dir {dir}`, then `carmine up`");
        let mons = mon_addrs(self.layout())
            .ok_or_else(|| failed!("the monitor of {dir} has no address yet: {again}"))?;
        let access = access_at(self.layout(), &self.plan, mons.clone())?;
        let has_own_mon = self.plan.joined.is_none();
        if has_own_mon && is_first {
            self.plan.mon_port = mons[0].port();
            self.write_plan()?;
            if self.plan.mon == MonKind::Ceph {
                self.register_osds(&access)?;
            }
        } else if has_own_mon {
            let port = self.plan.mon_port;
            let is_other = mons[0].port() != port;
            fail_if!(
                is_other,
                "port {port} of the monitor is taken, and the OSDs that run look for it there: {again}"
            );
        }
        for daemon in which {
            let Daemon::Osd(osd) = daemon else { continue };
            files::remove_file(&self.layout().http_addr(*osd))?;
            daemons.try_start(&self.plan, &start.programs, *osd);
            (start.events)(Event::Started(*daemon));
        }
        let beside_others = running.iter().any(|daemon| matches!(daemon, Daemon::Osd(_)));
        // The PGs of a cluster are not those of its OSDs on one host.
        let awaited = (is_whole && !self.plan.is_part(), beside_others);
        let waits_for = status::wait_until_ready(&self.plan, awaited, &access, &mut daemons, start, end)?;
        let started = Started { mons, lost: daemons.lost.clone(), waits_for };
        let runs_an_osd = beside_others || daemons.osds().next().is_some();
        fail_if!(!runs_an_osd && !started.lost.is_empty(), "{}", started.reasons());
        daemons.keep();
        Ok(started)
    }

    /// Starts the daemons in `some` anew and waits for them; an OSD that does not start is given up. A start that fails stops the
    /// daemons in `some` again. It never touches the others.
    ///
    /// # Errors
    /// The monitor is among them and its port is taken: the OSDs that run look for it there. Or then no OSD runs. Or others would
    /// reach them, and the user has not agreed to that.
    pub fn start_some(&mut self, some: &[Daemon], start: &mut StartOptions<'_>) -> Result<Started> {
        self.plan.refuse_exposure()?;
        // Stop those that still run, and what their wrappers may have left.
        daemons::stop(self.layout(), some, true)?;
        let is_first = self.parts()?.0.is_empty();
        if is_first {
            fs::create_dir_all(self.layout().run_dir())?;
            network::prepare(self.layout(), &self.plan)?;
            if let Some(how) = confine::prepare(self.layout(), &self.plan)? {
                (start.events)(Event::Confined(how));
            }
        }
        let started = self.start_daemons(some, is_first, start);
        if started.is_err() && is_first {
            network::remove(self.layout())?;
            confine::remove(self.layout())?;
        }
        started
    }

    /// Fails if something that was to be started does not run or is not ready; says what, why, and what can be done.
    ///
    /// # Errors
    /// [`TestbedError::Partial`]
    pub fn require_whole(&self, started: &Started) -> Result<()> {
        let dir = self.layout().dir().display();
        let lost = (!started.lost.is_empty()).then(|| {
            format!("not all OSDs run; the others serve what they can, see `carmine status --dir {dir}`")
        });
        let late = started.waits_for.as_ref().map(|what| {
            format!("not ready within the time of --timeout: still waiting for {what}; what was started runs")
        });
        let accounts = started.lost.iter().map(|lost| self.account_of(lost));
        let text: Vec<String> = lost.into_iter().chain(accounts).chain(late).collect();
        if text.is_empty() { Ok(()) } else { Err(TestbedError::Partial(text.join("\n"))) }
    }

    /// An OSD that does not run: how it ended, its store, and the commands that start, remove or replace it.
    fn account_of(&self, lost: &Lost) -> String {
        let (dir, osd, block) = (self.layout().dir().display(), lost.osd, self.layout().block(lost.osd));
        let place = fs::read_link(&block).unwrap_or(block);
        let store =
            if self.plan.store.is_durable() { format!("on {}", place.display()) } else { "in memory".into() };
        let number = osd.0;
        format!(
            "{}\n{osd} has its data {store}. `carmine osd start {number} --dir {dir}` tries again; `carmine osd remove {number} --dir {dir}` \
             removes it, and then `carmine osd add --dir {dir}` makes a new one",
            lost.why
        )
    }
}

/// Text of the `ceph.conf` that stock clients read: for these monitors, and OSDs that have their admin sockets in `dir`.
pub(crate) fn ceph_conf(plan: &Plan, mons: &[SocketAddr], dir: &Path) -> String {
    let (fsid, mons) = (&plan.fsid, mons.iter().map(|mon| format!("[v2:{mon}]")).collect::<Vec<_>>());
    let shared = if plan.is_part() { plan.heartbeats() } else { String::new() };
    let networks: String = plan
        .networks()
        .map(|(name, networks)| format!("{} = {networks}\n", name.replace('_', " ")))
        .collect();
    // Without a keyring line and with auth none a stock client neither looks for keys nor warns about them. Its log
    // and admin socket would go to /var/log/ceph and /var/run/ceph, which need not exist. librbd's cache would answer
    // before the OSDs do.
    format!(
        "# Written by carmine at every start. Use it as: rados -c THIS_FILE -p bench ls\n\
         [global]\n\
         fsid = {fsid}\n\
         mon host = {}\n\
         {networks}{shared}\
         {}\
         log file = /dev/null\n\
         admin socket =\n\
         [client]\n\
         rbd cache = false\n\
         [osd]\n\
         admin socket = {}/$name.asok\n",
        mons.join(","),
        auth_lines(plan, dir),
        dir.display()
    )
}

/// How stock clients prove who they are, and in which modes they talk.
fn auth_lines(plan: &Plan, dir: &Path) -> String {
    let required = |service: &str| format!("auth {service} required = {}\n", plan.auth);
    let mut lines: String = ["cluster", "service", "client"].map(required).concat();
    if plan.auth == AuthKind::Cephx {
        lines += &format!("keyring = {}/ceph.$name.keyring\n", dir.display());
        let mode = |kind: &str| format!("ms {kind} mode = {}\n", plan.ms_mode);
        lines += &["client", "mon client", "cluster", "service"].map(mode).concat();
    }
    lines
}

/// Addresses of the monitors, a line each, as they were written down at the start; `None`: there are none, or not yet.
pub fn mon_addrs(layout: &Layout) -> Option<Vec<SocketAddr>> {
    let text = fs::read_to_string(layout.mon_addr()).ok()?;
    let addrs: Vec<_> = text.lines().map(|line| line.trim().parse().ok()).collect::<Option<_>>()?;
    (!addrs.is_empty()).then_some(addrs)
}

/// Address of an OSD's metrics, as it wrote it down itself; it may have stopped since.
pub fn http_addr(layout: &Layout, id: OsdId) -> Option<SocketAddr> {
    fs::read_to_string(layout.http_addr(id)).ok()?.trim().parse().ok()
}

/// A progress line for the parent.
pub fn progress_line(done_bytes: u64, total_bytes: u64) -> String {
    format!("{PROGRESS}{done_bytes} {total_bytes}")
}

fn parse_progress(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.strip_prefix(PROGRESS)?.split_once(' ')?;
    Some((done.parse().ok()?, total.trim().parse().ok()?))
}

/// Makes the store of one OSD. `wipe` lets it overwrite a device that is not blank.
pub(crate) fn make_store(
    layout: &Layout,
    osd: OsdId,
    wipe: bool,
    start: &mut StartOptions<'_>,
) -> Result<()> {
    let mut command = Command::new(Daemon::Osd(osd).program_in(&start.programs)?);
    command.args(arguments(layout, Daemon::Osd(osd))).arg("--mkfs").current_dir("/");
    if wipe {
        command.arg("--force-wipe");
    }
    let failed = run_tool(command, Duration::MAX, Some(start.cancel), &mut |line| {
        if let Some((done, total)) = parse_progress(&line) {
            (start.events)(Event::of_store(osd, done, total));
        }
    })?;
    let Some((how, said)) = failed else { return Ok(()) };
    let said = said.trim();
    let why = if said.is_empty() { &how } else { said.strip_prefix("error: ").unwrap_or(said) };
    Err(failed!("cannot make the store of {osd}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_round_trip() {
        assert_eq!(parse_progress(&progress_line(3, 10)), Some((3, 10)));
        assert_eq!(parse_progress("progress x 1"), None);
        assert_eq!(parse_progress("hello"), None);
    }
}
