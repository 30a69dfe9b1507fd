//! A testbed: a folder with a plan, and the processes that run by it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use carmine_types::OsdId;

use crate::daemons::{self, Daemons};
use crate::error::{Result, TestbedError, failed, usage};
use crate::folder::{self, Bed, FolderPlan, daemons_of, running};
use crate::layout::{Daemon, DaemonPrograms, Layout};
use crate::plan::{PLAN_FORMAT, Plan};
use crate::{confine, files, mkfs, probe};

/// A monitor without OSDs listens within milliseconds.
const MON_LIMIT: Duration = Duration::from_secs(20);
const MON_PAUSE: Duration = Duration::from_millis(5);

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
    const FORMAT: u32 = PLAN_FORMAT;
    const FILE: &'static str = "testbed.json";
    const WHAT: &'static str = "testbed";
    const COMMAND: &'static str = "carmine";

    fn osds(&self) -> u32 {
        self.spec.osds
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    /// Block files that OSDs share.
    fn own_files(&self, layout: &Layout) -> Vec<PathBuf> {
        let slices = self.slices.iter().filter(|_| self.devices.is_empty());
        slices.map(|slice| layout.device_file(slice.device)).collect()
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
        let osds: Vec<OsdId> = (0..self.plan.osds()).map(OsdId).collect();
        let stores = osds.iter().map(|id| self.layout.osd_dir(*id));
        for dir in [self.layout.run_dir(), self.layout.mon_dir()].into_iter().chain(stores) {
            fs::create_dir_all(&dir).map_err(TestbedError::io("create", &dir))?;
        }
        if self.plan.store.is_durable() {
            self.check_space()?;
            for osd in osds {
                mkfs::run(&self.layout, &start.programs, osd, wipe, start.cancel, start.events)?;
            }
        }
        self.plan.complete = true;
        self.write_plan()?;
        // The daemons sync what they make in their folders; these folders are there after a power cut by this.
        let dir = self.layout.dir();
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(TestbedError::io("sync", dir))
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
        let end = Instant::now() + start.limit;
        fs::create_dir_all(self.layout.run_dir())
            .map_err(TestbedError::io("create", &self.layout.run_dir()))?;
        files::remove_file(&self.layout.mon_addr())?;
        if let Some(how) = confine::prepare(&self.layout, &self.plan)? {
            (start.events)(Event::Confined(how));
        }
        let started = self.start_daemons(start, end);
        if started.is_err() {
            confine::remove(&self.layout)?;
        }
        started
    }

    fn start_daemons(&mut self, start: &mut StartOptions<'_>, end: Instant) -> Result<SocketAddr> {
        let mut daemons = Daemons::new(&self.layout);
        let mon = self.start_mon(&mut daemons, start)?;
        self.plan.mon_port = mon.port();
        self.write_plan()?;
        let conf = ceph_conf(&self.plan.fsid, mon, self.layout.dir());
        files::write_whole(&self.layout.ceph_conf(), conf.as_bytes())?;
        self.start_osds((0..self.plan.osds()).map(OsdId), mon, daemons, start, end)
    }

    /// Starts OSDs beside the monitor at `mon`, and waits until every PG is active.
    fn start_osds(
        &self,
        osds: impl Iterator<Item = OsdId>,
        mon: SocketAddr,
        mut daemons: Daemons,
        start: &mut StartOptions<'_>,
        end: Instant,
    ) -> Result<SocketAddr> {
        for osd in osds {
            files::remove_file(&self.layout.http_addr(osd))?;
            daemons.start(&self.plan, &start.programs, Daemon::Osd(osd))?;
            (start.events)(Event::Started(Daemon::Osd(osd)));
        }
        probe::wait_until_ready(&self.plan, mon, &mut daemons, start, end)?;
        daemons.keep();
        Ok(mon)
    }

    /// The daemons that run and those that do not, if there are both.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn parts(&self) -> Result<Option<(Vec<Daemon>, Vec<Daemon>)>> {
        let running = running(&self.layout, &self.plan)?;
        let all = daemons_of(self.plan.osds());
        let missing: Vec<Daemon> = all.into_iter().filter(|daemon| !running.contains(daemon)).collect();
        Ok((self.plan.complete && !running.is_empty() && !missing.is_empty()).then_some((running, missing)))
    }

    /// Starts daemons that are dead, beside those that run, and waits until every PG is active. If that fails, these are
    /// stopped; what runs beside them is left alone.
    ///
    /// # Errors
    /// The monitor is among them and its port is taken: the OSDs that run look for it there.
    pub fn start_missing(&mut self, missing: &[Daemon], start: &mut StartOptions<'_>) -> Result<SocketAddr> {
        let (end, dir) = (Instant::now() + start.limit, self.layout.dir().display());
        // Their wrappers may have left processes.
        daemons::stop(&self.layout, missing)?;
        let mut daemons = Daemons::new(&self.layout);
        if missing.contains(&Daemon::Mon) {
            files::remove_file(&self.layout.mon_addr())?;
            let mon = self.start_mon(&mut daemons, start)?;
            if mon.port() != self.plan.mon_port {
                return Err(failed!(
                    "port {} of the monitor is taken, and the OSDs that run look for it there: `carmine down --dir {dir}`, \
                     then `carmine up`",
                    self.plan.mon_port
                ));
            }
        }
        let mon = mon_addr(&self.layout).ok_or_else(|| {
            failed!("the monitor of {dir} tells no address: `carmine down --dir {dir}`, then `carmine up`")
        })?;
        let osds = missing.iter().filter_map(|daemon| match daemon {
            Daemon::Osd(id) => Some(*id),
            Daemon::Mon => None,
        });
        self.start_osds(osds, mon, daemons, start, end)
    }

    /// Starts OSDs of a running testbed again, stopping those that still run, and waits until every PG is active. If
    /// that fails, these OSDs are stopped; what runs beside them is left alone.
    ///
    /// # Errors
    /// An OSD that the plan does not have, a monitor that does not run, or another OSD that is dead, too.
    pub fn restart(&mut self, osds: &[OsdId], start: &mut StartOptions<'_>) -> Result<()> {
        let (count, dir) = (self.plan.osds(), self.layout.dir().display());
        if let Some(unknown) = osds.iter().find(|osd| osd.0 >= count) {
            return Err(usage!("--osd {}: this testbed has OSDs 0 to {}", unknown.0, count - 1));
        }
        let running = running(&self.layout, &self.plan)?;
        let mon = mon_addr(&self.layout).filter(|_| running.contains(&Daemon::Mon)).ok_or_else(|| {
            failed!("the monitor of {dir} does not run: stop the rest with `carmine down --dir {dir}`, then `carmine up`")
        })?;
        let is_dead = |osd: &OsdId| !osds.contains(osd) && !running.contains(&Daemon::Osd(*osd));
        if let Some(dead) = (0..count).map(OsdId).find(is_dead) {
            return Err(usage!(
                "{dead} is dead, too: restart it together with the others, or all by leaving --osd out"
            ));
        }
        let end = Instant::now() + start.limit;
        let daemons: Vec<Daemon> = osds.iter().copied().map(Daemon::Osd).collect();
        daemons::stop(&self.layout, &daemons)?;
        self.start_osds(osds.iter().copied(), mon, Daemons::new(&self.layout), start, end).map(drop)
    }

    fn start_mon(&self, daemons: &mut Daemons, start: &mut StartOptions<'_>) -> Result<SocketAddr> {
        let layout = &self.layout;
        daemons.start(&self.plan, &start.programs, Daemon::Mon)?;
        (start.events)(Event::Started(Daemon::Mon));
        let missing = || mon_addr(layout).is_none().then(|| "the monitor".to_owned());
        daemons.wait(Daemon::Mon, start, Instant::now() + MON_LIMIT, MON_PAUSE, missing)?;
        mon_addr(layout).ok_or_else(|| failed!("the monitor tells no address"))
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
