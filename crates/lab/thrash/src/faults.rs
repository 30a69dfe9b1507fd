//! Faults of a running testbed, drawn from a seed: how each begins and ends, and how all of them are ended.

mod ceph;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use carmine_testbed::process::ProcessId;
use carmine_testbed::{BedKind, Daemon, POOL_NAME, Status, Testbed, cut, pgs_of, status, why_no_cuts};
use carmine_types::{MonKind, OsdId, counted};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::pauses::{Meant, Strike};
use ceph::{Loss, Other};

/// The end of [`Kind::Full`].
const ROOM: &str = "room";
/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_millis(100);
/// Milliseconds between two faults.
const BETWEEN_MS: std::ops::Range<u64> = 200..2_500;
/// Milliseconds that a dead OSD stays dead, and that an OSD stays out or the pool changed.
const DEAD_MS: std::ops::Range<u64> = 300..6_000;
const CHANGED_MS: std::ops::Range<u64> = 1_000..10_000;
/// Milliseconds that an OSD or a monitor is cut off from all others.
const ISOLATED_MS: std::ops::Range<u64> = 1_000..30_000;
/// Most PGs of the pool, as a multiple of those at first.
const PGS_TIMES: u32 = 4;
/// Most PGs that are merged at a time: each takes a monitor about two seconds.
const MERGES_MAX: u32 = 6;
/// Milliseconds that writes wait since the pool is full.
const FULL_MS: std::ops::Range<u64> = 500..4_000;
/// Ratio of used space from which drives count as full while they are meant to be. A real monitor takes 0 for "not set".
const RATIO_FULL: f64 = 1e-6;
/// OSDs report every two seconds how much of their drives is used: then the map says that the pool is full, or no longer.
const REPORT_LIMIT: Duration = Duration::from_secs(20);
const REPORTED: Duration = Duration::from_secs(4);
/// Bytes that can still be added to the OSD's log, so that it says why it ends; its data lies behind so many.
const FILE_BYTES: u64 = 1 << 20;
/// An OSD that cannot write must have ended after this time.
const ENDS_LIMIT: Duration = Duration::from_secs(20);

carmine_types::words! {
    /// A kind of fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind: "fault" {
        /// An OSD dies (kill -9).
        Kill = "kill",
        /// An OSD stands still for a time (SIGSTOP).
        Stop = "stop",
        /// An OSD ends and starts with another number of reactors.
        Restart = "restart",
        /// An OSD is out for a time.
        Out = "out",
        /// The pool has another size or min_size for a time.
        Pool = "pool",
        /// The pool gets more PGs.
        Split = "split",
        /// The pool gets fewer PGs, one after the other.
        Merge = "merge",
        /// The connections of an OSD break.
        Cut = "cut",
        /// An OSD cannot write its files.
        File = "file",
        /// The map calls the drives full for a time: clients' writes and backfills wait.
        Full = "full",
        /// A real monitor dies (kill -9), the leader first.
        Mon = "mon",
        /// The manager beside real monitors dies (kill -9).
        Mgr = "mgr",
        /// An OSD or a real monitor is cut off from all others for a time.
        Partition = "partition",
    }
}

impl Kind {
    /// How often it is drawn.
    fn weight(self) -> usize {
        match self {
            Kind::Kill => 5,
            Kind::Stop | Kind::Out | Kind::Cut | Kind::File | Kind::Mon | Kind::Partition => 2,
            Kind::Restart | Kind::Pool | Kind::Split | Kind::Merge | Kind::Full | Kind::Mgr => 1,
        }
    }

    /// These kinds, each as often as its weight says.
    fn weighted(kinds: &[Kind]) -> Vec<Kind> {
        kinds.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.weight())).collect()
    }

    /// Why this testbed, or this machine, cannot have such a fault.
    pub(crate) fn why_not(self, bed: &Testbed) -> Option<String> {
        let plan = bed.plan();
        match self {
            Kind::Cut if plan.namespaces => Some("`ss` does not see into the OSDs' namespaces".to_owned()),
            Kind::Cut => why_no_cuts(),
            Kind::Partition if !plan.namespaces => {
                Some("it takes namespaces (`carmine up --namespaces`, as root)".to_owned())
            }
            Kind::File if !plan.store.is_durable() => Some(format!("store {} has no files", plan.store)),
            Kind::File if plan.osd_ids().all(|osd| plan.device_of(osd).is_some()) => {
                Some("the data lies on devices, of which no file's size is limited".to_owned())
            }
            Kind::Mon | Kind::Mgr if plan.mon == MonKind::Embedded => Some(
                "the monitor is the embedded one; `carmine up --mon ceph` has real ones and a manager"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Dead,
    Frozen,
    /// It runs, and reaches nobody.
    Isolated,
    /// It cannot write its files, and is to end by itself.
    Failing,
}

/// An OSD as the faults have left it.
struct Osd {
    id: OsdId,
    state: State,
    /// When a dead one is started, a frozen one goes on, and an isolated one reaches others again.
    until: Instant,
    /// Out until then.
    out_until: Option<Instant>,
}

/// What happens to the whole pool for a time: at most one of each.
#[derive(Default)]
struct Times {
    /// Another size or min_size.
    changed_until: Option<Instant>,
    /// The map says that drives are full.
    full_until: Option<Instant>,
    /// It may say so until then, though they are not.
    reported_at: Option<Instant>,
}

/// Copies of the pool's objects, and how many of them are needed to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copies {
    size: u8,
    min_size: u8,
}

impl Meant {
    /// An OSD, and what happens to it may matter to all PGs.
    fn osd(osd: OsdId) -> Meant {
        Meant { osd: Some(osd), ..Meant::default() }
    }

    /// An OSD's PGs.
    fn pgs_of(osd: OsdId, seen: &Status) -> Meant {
        Meant { pgs: Some(pgs_of(seen.details(), osd)), ..Meant::osd(osd) }
    }

    /// An OSD that does not serve its PGs any more.
    fn loss(osd: OsdId, seen: &Status) -> Meant {
        Meant { is_loss: true, ..Meant::pgs_of(osd, seen) }
    }
}

/// The faults, while they are made.
pub(crate) struct Faults {
    bed: Testbed,
    programs: PathBuf,
    rng: Rng,
    osds: Vec<Osd>,
    /// The monitors, and the manager.
    others: Vec<Other>,
    has_lost_leader: bool,
    /// As planned, and as they are now, until a time.
    planned: Copies,
    now: Copies,
    times: Times,
    /// The used shares at which OSDs take no backfill, and no writes, as they were.
    ratios: [f64; 2],
    /// The kinds of faults to draw from.
    kinds: Vec<Kind>,
    strikes: Sender<Strike>,
    stop: Arc<AtomicBool>,
    heal_limit: Duration,
}

impl Faults {
    /// # Errors
    /// The monitor does not answer.
    pub(crate) fn new(
        bed: Testbed,
        kinds: &[Kind],
        seed: u64,
        heal_limit: Duration,
        strikes: Sender<Strike>,
        stop: Arc<AtomicBool>,
    ) -> Result<Faults> {
        let plan = bed.plan();
        let planned = Copies { size: plan.pool.size, min_size: plan.pool.min_size };
        let osd = |id| Osd { id, state: State::Runs, until: Instant::now(), out_until: None };
        let osds = plan.osd_ids().map(osd).collect();
        let others = plan.daemons().into_iter().filter(|daemon| !matches!(daemon, Daemon::Osd(_)));
        let others = others.map(Other::new).collect();
        let map = osd_dump(&bed)?;
        let ratio = |name: &str| map[name].as_f64().with_context(|| format!("`osd dump` has no `{name}`"));
        let ratios = [ratio("backfillfull_ratio")?, ratio("full_ratio")?];
        Ok(Faults {
            bed,
            programs: std::env::current_exe()?.with_file_name(""),
            rng: Rng::with_seed(seed),
            osds,
            others,
            has_lost_leader: false,
            planned,
            now: planned,
            times: Times::default(),
            ratios,
            kinds: Kind::weighted(kinds),
            strikes,
            stop,
            heal_limit,
        })
    }

    /// Makes faults for `time`, then heals everything; the seconds until all was clean.
    ///
    /// # Errors
    /// An OSD ended by itself, a command failed, or not everything is clean in time.
    pub(crate) fn run(mut self, time: Duration) -> Result<f64> {
        let made = self.make(Instant::now() + time);
        // Whatever happened, the testbed is not left damaged.
        let healed = self.heal();
        made.and(healed)
    }

    fn make(&mut self, end: Instant) -> Result<()> {
        let mut next = Instant::now();
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            self.check_own_ends()?;
            self.end_due(Instant::now())?;
            if Instant::now() >= next {
                self.fault()?;
                next = self.after(BETWEEN_MS);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn after(&mut self, range_ms: std::ops::Range<u64>) -> Instant {
        Instant::now() + Duration::from_millis(self.rng.u64(range_ms))
    }

    /// Reports a fault that is about to be made, or its end. Pauses of others are not measured while writes wait for room.
    fn strike(&self, kind: &'static str, text: String, meant: Meant) {
        let Times { full_until, reported_at, .. } = self.times;
        let waits = full_until.is_some() || reported_at.is_some_and(|at| Instant::now() < at);
        let is_measured = !waits || kind == ROOM;
        // Nobody listens any more if the load has ended.
        let _ = self.strikes.send(Strike { at: Instant::now(), kind, text, meant, is_measured });
    }

    /// A daemon that nobody has killed must run.
    fn check_own_ends(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        for other in self.others.iter_mut().filter(|other| !other.is_dead()) {
            if ProcessId::running(self.bed.layout(), other.daemon)?.is_none() {
                other.lost = Some((Loss::Dead, Instant::now()));
                let log = self.bed.layout().log(other.daemon);
                ended.push(format!("{} ended by itself; see {}", other.daemon, log.display()));
            }
        }
        for osd in self.osds.iter_mut().filter(|osd| osd.state != State::Dead) {
            let daemon = Daemon::Osd(osd.id);
            if ProcessId::running(self.bed.layout(), daemon)?.is_none() {
                let is_meant = osd.state == State::Failing;
                osd.state = State::Dead;
                let log = self.bed.layout().log(daemon);
                ended.extend((!is_meant).then(|| format!("{daemon} ended by itself; see {}", log.display())));
            }
        }
        let now = Instant::now();
        let late =
            self.osds.iter_mut().filter(|osd| osd.state == State::Failing && osd.until + ENDS_LIMIT < now);
        for osd in late {
            ended.push(format!("{} cannot write its files, and goes on", osd.id));
            self.bed.stop_osds(&[osd.id], true)?;
            osd.state = State::Dead;
        }
        if ended.is_empty() { Ok(()) } else { bail!(ended.join("; ")) }
    }

    /// True if enough copies stay up when one more OSD goes down.
    fn can_spare_one(&self) -> bool {
        let down = self.osds.iter().filter(|osd| osd.state != State::Runs).count();
        down < usize::from(self.now.size - self.now.min_size)
            && self.serving() > usize::from(self.now.min_size)
    }

    /// OSDs that are up and in.
    fn serving(&self) -> usize {
        self.osds.iter().filter(|osd| osd.state == State::Runs && osd.out_until.is_none()).count()
    }

    /// Draws a fault and makes it, if it is one that the cluster can survive now.
    fn fault(&mut self) -> Result<()> {
        if !self.have_quorum() {
            return Ok(());
        }
        let seen = status(BedKind::Testbed, self.bed.layout())?;
        let is_clean = is_clean(&seen);
        // A store in memory loses its copies when its OSD dies, so the others' must be complete.
        let waits = !self.bed.plan().store.is_durable() || self.rng.bool();
        let running: Vec<usize> =
            (0..self.osds.len()).filter(|at| self.osds[*at].state == State::Runs).collect();
        // An OSD that was just started does not count yet.
        let is_up = |at: usize| seen.osds.get(at).is_some_and(|osd| osd.up);
        let are_up = running.iter().all(|at| is_up(*at));
        let can_hurt = self.can_spare_one() && are_up && (is_clean || !waits);
        let Some(at) = self.rng.choice(&running).copied() else { return Ok(()) };
        let Some(kind) = self.rng.choice(&self.kinds).copied() else { return Ok(()) };
        match kind {
            Kind::Kill if can_hurt => self.kill(at, &seen, is_clean),
            Kind::Stop if can_hurt => self.freeze(at, &seen, is_clean),
            Kind::Restart if can_hurt => self.restart(at, &seen),
            Kind::Out if self.serving() > usize::from(self.now.min_size) => self.out(at),
            Kind::Pool if self.times.changed_until.is_none() => self.change_pool(),
            Kind::Split | Kind::Merge => self.resize(kind),
            // One that was just started has no connections yet.
            Kind::Cut if is_up(at) => self.cut(at, &seen),
            Kind::File if can_hurt && self.writes_a_file(at, &seen) => self.fail_files(at, &seen),
            Kind::Full if self.times.full_until.is_none() && is_clean && self.all_serve() => self.fill(),
            Kind::Mon if self.all_serve() => self.kill_mon(),
            Kind::Mgr if self.all_serve() => self.kill_mgr(),
            Kind::Partition if self.all_serve() && self.can_isolate_mon() && self.rng.bool() => {
                self.isolate_mon()
            }
            Kind::Partition if can_hurt => self.isolate(at, &seen, is_clean),
            _ => Ok(()),
        }
    }

    fn kill(&mut self, at: usize, seen: &Status, is_clean: bool) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(DEAD_MS));
        let (kind, text) = match is_clean {
            true => ("kill -9", format!("kill -9 of {id}")),
            false => ("kill -9, not clean", format!("kill -9 of {id} while PGs are not clean")),
        };
        self.strike(kind, text, Meant::loss(id, seen));
        (self.osds[at].state, self.osds[at].until) = (State::Dead, until);
        self.bed.stop_osds(&[id], true)?;
        Ok(())
    }

    fn freeze(&mut self, at: usize, seen: &Status, is_clean: bool) -> Result<()> {
        // Sometimes shorter than the grace, sometimes longer.
        let grace_ms = u64::from(self.bed.plan().osd_heartbeat_grace_s) * 1000;
        let (id, until) = (self.osds[at].id, self.after(500..grace_ms * 3 / 2));
        let seconds = until.duration_since(Instant::now()).as_secs_f64();
        let kind = if is_clean { "stop" } else { "stop, not clean" };
        self.strike(kind, format!("SIGSTOP to {id} for {seconds:.1} s"), Meant::loss(id, seen));
        (self.osds[at].state, self.osds[at].until) = (State::Frozen, until);
        Ok(self.bed.freeze_osd(id, true)?)
    }

    /// Cuts an OSD off from all others, sometimes for longer than the grace.
    fn isolate(&mut self, at: usize, seen: &Status, is_clean: bool) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(ISOLATED_MS));
        let seconds = until.duration_since(Instant::now()).as_secs_f64();
        let kind = if is_clean { "partition" } else { "partition, not clean" };
        self.strike(kind, format!("{id} is cut off for {seconds:.1} s"), Meant::loss(id, seen));
        (self.osds[at].state, self.osds[at].until) = (State::Isolated, until);
        Ok(self.bed.set_link(Daemon::Osd(id), false)?)
    }

    /// Breaks all connections of an OSD, which are then made again: to the monitor, to other OSDs and to clients.
    fn cut(&mut self, at: usize, seen: &Status) -> Result<()> {
        let id = self.osds[at].id;
        let connections = self.bed.connections(id)?;
        if connections.is_empty() {
            return Ok(());
        }
        let text = format!("{} of {id} are cut", counted(connections.len(), "connection"));
        self.strike("cut", text, Meant::pgs_of(id, seen));
        Ok(cut(&connections)?)
    }

    /// Its store is a file, and it has PGs, so that it writes.
    fn writes_a_file(&self, at: usize, seen: &Status) -> bool {
        let Osd { id, out_until, .. } = self.osds[at];
        let plan = self.bed.plan();
        let has_file = plan.store.is_durable() && plan.device_of(id).is_none();
        has_file && out_until.is_none() && !pgs_of(seen.details(), id).is_empty()
    }

    /// Its files take no more data: it has to find out, and to end, so that others serve in its place.
    fn fail_files(&mut self, at: usize, seen: &Status) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(DEAD_MS));
        self.strike("failing file", format!("the files of {id} fail"), Meant::loss(id, seen));
        (self.osds[at].state, self.osds[at].until) = (State::Failing, until);
        let log_bytes = self.bed.layout().log(Daemon::Osd(id)).metadata().map_or(0, |meta| meta.len());
        Ok(self.bed.fail_files(id, log_bytes + FILE_BYTES)?)
    }

    /// The space that is in use is too much: clients' writes and backfills wait until it is not. Returns when the map says so.
    fn fill(&mut self) -> Result<()> {
        self.times.full_until = Some(Instant::now());
        self.strike("full", "the drives are full".to_owned(), Meant::default());
        self.set_ratios([RATIO_FULL; 2])?;
        let limit = Instant::now() + REPORT_LIMIT;
        while !self.stop.load(Ordering::Relaxed) && !is_full(&osd_dump(&self.bed)?)? {
            self.check_own_ends()?;
            ensure!(
                Instant::now() < limit,
                "the full ratio is {RATIO_FULL}, and the pool is not full after {REPORT_LIMIT:?}"
            );
            std::thread::sleep(LOOK);
        }
        self.times.full_until = Some(self.after(FULL_MS));
        Ok(())
    }

    /// Writes go on.
    fn make_room(&mut self) -> Result<()> {
        (self.times.full_until, self.times.reported_at) = (None, Some(Instant::now() + REPORTED));
        self.strike(ROOM, "the drives have room".to_owned(), Meant::default());
        self.set_ratios(self.ratios)
    }

    fn set_ratios(&self, [backfillfull, full]: [f64; 2]) -> Result<()> {
        for (prefix, ratio) in [("osd set-backfillfull-ratio", backfillfull), ("osd set-full-ratio", full)] {
            self.bed.mon_command(&json!({ "prefix": prefix, "ratio": ratio }))?;
        }
        Ok(())
    }

    fn restart(&mut self, at: usize, seen: &Status) -> Result<()> {
        let (id, reactors) = (self.osds[at].id, self.rng.u16(1..=3));
        self.strike("restart", format!("restart of {id}"), Meant::loss(id, seen));
        self.osds[at].state = State::Dead;
        self.bed.stop_osds(&[id], false)?;
        self.start(at, Some(reactors))
    }

    /// Starts a dead OSD with this number of reactors, or with as many as before if none is given or there are too few CPUs.
    fn start(&mut self, at: usize, reactors: Option<u16>) -> Result<()> {
        let id = self.osds[at].id;
        let mut words = String::new();
        match (self.bed.launch_osd(id, reactors, &self.programs), reactors) {
            (Ok(()), Some(reactors)) => words = format!(" with {}", counted(reactors.into(), "reactor")),
            (Err(error), Some(_)) if error.is_usage() => self.bed.launch_osd(id, None, &self.programs)?,
            (launched, _) => launched?,
        }
        self.osds[at].state = State::Runs;
        self.strike("start", format!("{id} is started{words}"), Meant::osd(id));
        Ok(())
    }

    fn out(&mut self, at: usize) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(CHANGED_MS));
        if self.osds[at].out_until.is_none() {
            self.strike("out", format!("{id} is out"), Meant::osd(id));
            self.osds[at].out_until = Some(until);
            self.bed.mon_command(&json!({ "prefix": "osd out", "ids": [id.0.to_string()] }))?;
        }
        Ok(())
    }

    /// Takes one copy less, or requires one less.
    fn change_pool(&mut self) -> Result<()> {
        let Copies { size, min_size } = self.planned;
        let copies = if self.rng.bool() {
            Copies { size: (size - 1).max(min_size), min_size }
        } else {
            Copies { size, min_size: (min_size - 1).max(1) }
        };
        let down = self.osds.iter().filter(|osd| osd.state != State::Runs).count();
        if copies == self.planned || down > usize::from(copies.size - copies.min_size) {
            return Ok(());
        }
        self.times.changed_until = Some(self.after(CHANGED_MS));
        self.set_pool(copies)
    }

    fn set_pool(&mut self, copies: Copies) -> Result<()> {
        let Copies { size, min_size } = copies;
        self.strike("pool", format!("the pool has size {size}, min_size {min_size}"), Meant::default());
        self.now = copies;
        self.set_value("size", size.into())?;
        self.set_value("min_size", min_size.into())
    }

    fn set_value(&self, var: &str, value: u32) -> Result<()> {
        let (pool, val) = (POOL_NAME, value.to_string());
        self.bed.mon_command(&json!({ "prefix": "osd pool set", "pool": pool, "var": var, "val": val }))?;
        Ok(())
    }

    /// Gives the pool more PGs, or fewer, if it has those that were wanted last.
    fn resize(&mut self, kind: Kind) -> Result<()> {
        let (planned, pool) = (self.bed.plan().pool.pg_num, pool(&osd_dump(&self.bed)?)?);
        let now = pool["pg_num"].as_u64().and_then(|pgs| u32::try_from(pgs).ok()).unwrap_or(planned);
        let wanted = match kind {
            Kind::Merge => planned.div_ceil(2).max(now.saturating_sub(MERGES_MAX))..now,
            _ => now + 1..(now + now.div_ceil(2)).min(planned * PGS_TIMES) + 1,
        };
        if !is_settled(&pool) || wanted.is_empty() {
            return Ok(());
        }
        let wanted = self.rng.u32(wanted);
        let what = format!("the pool is to have {wanted} PGs, and has {now}");
        self.strike(kind.word(), what, Meant::default());
        self.set_value("pg_num", wanted)
    }

    /// Ends the faults whose time is over at `now`.
    fn end_due(&mut self, now: Instant) -> Result<()> {
        self.bring_back(now)?;
        let can_ask = self.have_quorum();
        for at in 0..self.osds.len() {
            let Osd { id, state, until, out_until } = self.osds[at];
            match state {
                State::Dead if until <= now => {
                    let reactors = self.rng.bool().then(|| self.rng.u16(1..=3));
                    self.start(at, reactors)?;
                }
                State::Frozen if until <= now => {
                    self.strike("go on", format!("{id} goes on"), Meant::osd(id));
                    self.bed.freeze_osd(id, false)?;
                    self.osds[at].state = State::Runs;
                }
                State::Isolated if until <= now => {
                    self.strike("reach", format!("{id} reaches the others"), Meant::osd(id));
                    self.bed.set_link(Daemon::Osd(id), true)?;
                    self.osds[at].state = State::Runs;
                }
                _ => {}
            }
            if out_until.is_some_and(|until| until <= now && can_ask) {
                self.strike("in", format!("{id} is in"), Meant::osd(id));
                self.bed.mon_command(&json!({ "prefix": "osd in", "ids": [id.0.to_string()] }))?;
                self.osds[at].out_until = None;
            }
        }
        // Not while fewer OSDs are up than will then be needed.
        let down = self.osds.iter().filter(|osd| osd.state != State::Runs).count();
        let fits = can_ask && down <= usize::from(self.planned.size - self.planned.min_size);
        if self.times.changed_until.is_some_and(|until| until <= now && fits) {
            self.times.changed_until = None;
            self.set_pool(self.planned)?;
        }
        if self.times.full_until.is_some_and(|until| until <= now && can_ask) {
            self.make_room()?;
        }
        Ok(())
    }

    /// Ends all faults, and waits until all PGs are active and clean.
    fn heal(&mut self) -> Result<f64> {
        let began = Instant::now();
        // Whatever is found meanwhile, the rest is healed.
        let mut found = Ok(());
        loop {
            found = found.and(self.check_own_ends());
            self.end_due(began + Duration::from_secs(1 << 30))?;
            let seen = status(BedKind::Testbed, self.bed.layout())?;
            let all_run = self.osds.iter().all(|osd| osd.state == State::Runs);
            if seen.state == "running" && all_run && is_settled(&pool(&osd_dump(&self.bed)?)?) {
                return found.map(|()| began.elapsed().as_secs_f64());
            }
            if began.elapsed() > self.heal_limit {
                bail!("not clean {:?} after the last fault: {}", self.heal_limit, seen.problems.join("; "));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The map.
fn osd_dump(bed: &Testbed) -> Result<Value> {
    let dump = bed.mon_command(&json!({ "prefix": "osd dump", "format": "json" }))?;
    serde_json::from_slice(&dump).context("`osd dump` is not JSON")
}

/// The pool by the map.
fn pool(map: &Value) -> Result<Value> {
    let pool = map["pools"].as_array().into_iter().flatten().find(|pool| pool["pool_name"] == POOL_NAME);
    pool.cloned().with_context(|| format!("there is no pool {POOL_NAME}"))
}

/// By the map, writes to the pool wait.
fn is_full(map: &Value) -> Result<bool> {
    let pool = pool(map)?;
    Ok(pool["flags_names"].as_str().is_some_and(|flags| flags.split(',').any(|flag| flag == "full")))
}

/// The pool has reached the numbers of PGs that were asked for.
fn is_settled(pool: &Value) -> bool {
    let is_reached = |name: &&str| pool[*name] == pool[format!("{name}_target")];
    ["pg_num", "pg_placement_num"].iter().all(is_reached) && pool["pg_num"] == pool["pg_num_pending"]
}

/// All PGs have all of their copies, by the newest map.
fn is_clean(seen: &Status) -> bool {
    let has_newest = |told: &Value| seen.epoch.is_some_and(|epoch| told["epoch"] == epoch);
    seen.details().all(has_newest) && seen.pgs.is_some_and(|pgs| Some(pgs.clean) == seen.pgs_total)
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn help_names_every_kind() {
        let command = crate::ThrashArgs::augment_args(clap::Command::new("thrash"));
        let faults = command.get_arguments().find(|arg| arg.get_id() == "faults").expect("--faults");
        let help = faults.get_help().expect("a help text").to_string();
        let missing: Vec<&str> = Kind::WORDS.iter().copied().filter(|word| !help.contains(*word)).collect();
        assert!(missing.is_empty(), "{missing:?} in {help}");
    }
}
