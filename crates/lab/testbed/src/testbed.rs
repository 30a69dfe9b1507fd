//! A testbed: a folder with a plan, and the processes that run by it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use fs_err as fs;

use crate::bounded::{Ended, run_tool};
use crate::daemons::{self, Daemons, arguments};
use crate::error::{Result, failed, refuse, usage};
use crate::folder::{self, Bed, FolderPlan, daemons_of, running};
use crate::layout::{Daemon, DaemonPrograms, Layout};
use crate::plan::Plan;
use crate::{confine, files, probe};

/// A monitor without OSDs listens within milliseconds.
const MON_LIMIT: Duration = Duration::from_secs(20);
const MON_PAUSE: Duration = Duration::from_millis(5);

/// `carmine-osd --mkfs` prints `progress DONE TOTAL`, in bytes, for each step.
const PROGRESS: &str = "progress ";

/// Progress of making or starting a testbed, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A drive is written into its steady state.
    Precondition {
        /// Which, and what is being done.
        what: String,
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    },
    /// A store is being made.
    Mkfs {
        /// Whose.
        osd: OsdId,
        /// Bytes written so far.
        done_bytes: u64,
        /// Bytes to write.
        total_bytes: u64,
    },
    /// How the OSDs are confined.
    Confined(String),
    /// A daemon was started.
    Started(Daemon),
    /// The start waits for this.
    Waiting(String),
}

/// How a start goes about it.
pub struct StartOptions<'a> {
    /// The daemons' programs.
    pub programs: DaemonPrograms,
    /// Set from outside (Ctrl-C): the start gives up and cleans up.
    pub cancel: &'a AtomicBool,
    /// Told what happens.
    pub events: &'a mut dyn FnMut(Event),
    /// All PGs must be active after this time.
    pub limit: Duration,
}

/// A testbed whose folder this command has locked.
pub type Testbed = Bed<Plan>;

impl FolderPlan for Plan {
    const FILE: &'static str = "testbed.json";
    const WHAT: &'static str = "testbed";
    const COMMAND: &'static str = "carmine";

    fn base(&self) -> &Plan {
        self
    }
}

/// Reads the plan of a folder; `None` if there is no testbed in it.
pub fn load_plan(layout: &Layout) -> Result<Option<Plan>> {
    folder::load(layout)
}

/// Reads the plan of a folder that must hold a testbed.
pub fn require_plan(layout: &Layout) -> Result<Plan> {
    folder::require(layout)
}

impl Testbed {
    /// Makes a new testbed in an empty or absent folder: plan, store folders, stores. If that fails, what was
    /// made is removed again.
    pub fn create(layout: Layout, plan: Plan, wipe: bool, start: &mut StartOptions<'_>) -> Result<Self> {
        Bed::make(&layout, plan, |testbed| testbed.fill(wipe, start))
    }

    fn fill(&mut self, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        self.make_folders()?;
        if self.plan.store.is_durable() {
            self.check_space()?;
            for osd in (0..self.plan.osds()).map(OsdId) {
                make_store(&self.layout, osd, wipe, start)?;
            }
        }
        self.plan.complete = true;
        self.write_plan()?;
        // The daemons sync what they make in their folders; these folders are there after a power cut by this.
        Ok(fs::File::open(self.layout.dir())?.sync_all()?)
    }

    /// Refuses to write block files through that the file system cannot hold.
    fn check_space(&self) -> Result<()> {
        if !self.plan.devices.is_empty() || self.plan.sparse {
            return Ok(());
        }
        let need = self.plan.osd_size_bytes.saturating_mul(u64::from(self.plan.osds()));
        let dir = self.layout.dir();
        let have = rustix::fs::statvfs(dir)
            .map(|s| s.f_bavail.saturating_mul(s.f_frsize))
            .map_err(|e| failed!("cannot ask for the free space of {}: {e}", dir.display()))?;
        if need > have {
            return Err(failed!(
                "{} x {} MiB need {} MiB, {} has {} MiB free: lower --osd-size or --osds, or take --sparse",
                carmine_types::counted(self.plan.osds() as usize, "OSD"),
                self.plan.osd_size_bytes >> 20,
                need >> 20,
                dir.display(),
                have >> 20
            ));
        }
        Ok(())
    }

    /// Starts all processes and waits until every PG is active. If that fails, all are stopped again.
    pub fn start(&mut self, start: &mut StartOptions<'_>) -> Result<SocketAddr> {
        self.require_stopped()?;
        fs::create_dir_all(self.layout.run_dir())?;
        if let Some(how) = confine::prepare(&self.layout, &self.plan)? {
            (start.events)(Event::Confined(how));
        }
        let started = self.start_daemons(&daemons_of(self.plan.osds()), start);
        if started.is_err() {
            confine::remove(&self.layout)?;
        }
        started
    }

    /// Starts daemons, the monitor first, and waits until every PG is active. If that fails, these are stopped again.
    fn start_daemons(&mut self, which: &[Daemon], start: &mut StartOptions<'_>) -> Result<SocketAddr> {
        let (end, dir) = (Instant::now() + start.limit, self.layout.dir().to_path_buf());
        let mut daemons = Daemons::new(&self.layout);
        if which.contains(&Daemon::Mon) {
            files::remove_file(&self.layout.mon_addr())?;
            daemons.start(&self.plan, &start.programs, Daemon::Mon)?;
            (start.events)(Event::Started(Daemon::Mon));
            let missing = || mon_addr(&self.layout).is_none().then(|| "the monitor".to_owned());
            daemons.wait(Daemon::Mon, start, Instant::now() + MON_LIMIT, MON_PAUSE, missing)?;
        }
        let dir = dir.display();
        let again = format!("`carmine down --dir {dir}`, then `carmine up`");
        let mon = mon_addr(&self.layout)
            .ok_or_else(|| failed!("the monitor of {dir} tells no address: {again}"))?;
        if which.len() == daemons_of(self.plan.osds()).len() {
            self.plan.mon_port = mon.port();
            self.write_plan()?;
            let conf = ceph_conf(&self.plan.fsid, mon, self.layout.dir());
            files::write_whole(&self.layout.ceph_conf(), conf.as_bytes())?;
        } else if mon.port() != self.plan.mon_port {
            return Err(failed!(
                "port {} of the monitor is taken, and the OSDs that run look for it there: {again}",
                self.plan.mon_port
            ));
        }
        for daemon in which {
            let Daemon::Osd(osd) = daemon else { continue };
            files::remove_file(&self.layout.http_addr(*osd))?;
            daemons.start(&self.plan, &start.programs, *daemon)?;
            (start.events)(Event::Started(*daemon));
        }
        probe::wait_until_ready(&self.plan, mon, &mut daemons, start, end)?;
        daemons.keep();
        Ok(mon)
    }

    /// Starts some daemons anew, beside those that run, and waits until every PG is active. If that fails, these are stopped;
    /// what runs beside them is left alone.
    ///
    /// # Errors
    /// The monitor is among them and its port is taken: the OSDs that run look for it there.
    pub fn start_some(&mut self, some: &[Daemon], start: &mut StartOptions<'_>) -> Result<SocketAddr> {
        // Those that still run, and what their wrappers may have left.
        daemons::stop(&self.layout, some, true)?;
        self.start_daemons(some, start)
    }

    /// Starts OSDs of a running testbed again, stopping those that still run, as [`Testbed::start_some`] does.
    ///
    /// # Errors
    /// An OSD that the plan does not have, a monitor that does not run, or another OSD that is dead, too.
    pub fn restart(&mut self, osds: &[OsdId], start: &mut StartOptions<'_>) -> Result<()> {
        let (count, dir) = (self.plan.osds(), self.layout.dir().display());
        for OsdId(osd) in osds {
            refuse!(*osd >= count, "--osd {osd}: this testbed has OSDs 0 to {}", count - 1);
        }
        let running = running(&self.layout, &self.plan)?;
        if !running.contains(&Daemon::Mon) {
            return Err(failed!(
                "the monitor of {dir} does not run: stop the rest with `carmine down --dir {dir}`, then `carmine up`"
            ));
        }
        let is_dead = |osd: &OsdId| !osds.contains(osd) && !running.contains(&Daemon::Osd(*osd));
        if let Some(dead) = (0..count).map(OsdId).find(is_dead) {
            return Err(usage!(
                "{dead} is dead, too: restart it together with the others, or all by leaving --osd out"
            ));
        }
        let daemons: Vec<Daemon> = osds.iter().copied().map(Daemon::Osd).collect();
        self.start_some(&daemons, start).map(drop)
    }
}

/// Text of the `ceph.conf` that stock clients read: for the monitor at `mon`, whose OSDs have their admin sockets in `dir`.
fn ceph_conf(fsid: &str, mon: SocketAddr, dir: &Path) -> String {
    // Without a keyring line and with auth none a stock client neither looks for keys nor warns about them. Its log
    // and admin socket would go to /var/log/ceph and /var/run/ceph, which need not exist. librbd's cache would answer
    // before the OSDs do.
    format!(
        "# Written by carmine at every start. Use it as: rados -c THIS_FILE -p bench ls\n\
         [global]\n\
         fsid = {fsid}\n\
         mon host = [v2:{mon}]\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         log file = /dev/null\n\
         admin socket =\n\
         [client]\n\
         rbd cache = false\n\
         [osd]\n\
         admin socket = {}/$name.asok\n",
        dir.display()
    )
}

/// Address of the running monitor, as it wrote it down itself.
pub fn mon_addr(layout: &Layout) -> Option<SocketAddr> {
    fs::read_to_string(layout.mon_addr()).ok()?.trim().parse().ok()
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
fn make_store(layout: &Layout, osd: OsdId, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
    let mut command = Command::new(start.programs.of(Daemon::Osd(osd))?);
    command.args(arguments(layout, Daemon::Osd(osd))).arg("--mkfs").current_dir("/");
    if wipe {
        command.arg("--force-wipe");
    }
    let (ended, said) = run_tool(command, Duration::MAX, Some(start.cancel), &mut |line| {
        if let Some((done_bytes, total_bytes)) = parse_progress(&line) {
            (start.events)(Event::Mkfs { osd, done_bytes, total_bytes });
        }
    })?;
    let said = said.trim();
    match ended {
        Ended::Ok => Ok(()),
        Ended::Cancelled => Err(failed!("interrupted")),
        Ended::Failed(how) if said.is_empty() => Err(failed!("cannot make the store of {osd}: {how}")),
        Ended::Failed(_) => {
            let why = said.strip_prefix("error: ").unwrap_or(said);
            Err(failed!("cannot make the store of {osd}: {why}"))
        }
    }
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
