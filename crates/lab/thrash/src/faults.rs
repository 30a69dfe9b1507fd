//! Faults of a running testbed, drawn from a seed: how each begins and ends, and how all of them are ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use carmine_testbed::process::ProcessId;
use carmine_testbed::{BedKind, Daemon, POOL_NAME, Status, Testbed, pgs_of, status};
use carmine_types::OsdId;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::pauses::Strike;

/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_millis(100);
/// Milliseconds between two faults.
const BETWEEN_MS: std::ops::Range<u64> = 200..2_500;
/// Milliseconds that a dead OSD stays dead, and that an OSD stays out or the pool changed.
const DEAD_MS: std::ops::Range<u64> = 300..6_000;
const CHANGED_MS: std::ops::Range<u64> = 1_000..10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Dead,
    Frozen,
}

/// An OSD as the faults have left it.
struct Osd {
    id: OsdId,
    state: State,
    /// When a dead one is started, and a frozen one goes on.
    until: Instant,
    /// Out until then.
    out_until: Option<Instant>,
}

/// Copies of the pool's objects, and how many of them are needed to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copies {
    size: u8,
    min_size: u8,
}

/// The faults, while they are made.
pub(crate) struct Faults {
    bed: Testbed,
    programs: PathBuf,
    rng: Rng,
    osds: Vec<Osd>,
    /// As planned, and as they are now, until a time.
    planned: Copies,
    now: Copies,
    changed_until: Option<Instant>,
    strikes: Sender<Strike>,
    stop: Arc<AtomicBool>,
    heal_limit: Duration,
}

impl Faults {
    pub(crate) fn new(
        bed: Testbed,
        programs: PathBuf,
        seed: u64,
        strikes: Sender<Strike>,
        stop: Arc<AtomicBool>,
        heal_limit: Duration,
    ) -> Faults {
        let plan = bed.plan();
        let planned = Copies { size: plan.pool.size, min_size: plan.pool.min_size };
        let osd = |id| Osd { id, state: State::Runs, until: Instant::now(), out_until: None };
        let osds = plan.osd_ids().map(osd).collect();
        let (rng, changed_until) = (Rng::with_seed(seed), None);
        Faults { bed, programs, rng, osds, planned, now: planned, changed_until, strikes, stop, heal_limit }
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

    /// Reports a fault that is about to be made.
    fn strike(&self, kind: &'static str, text: String, pgs: Option<Vec<String>>) {
        // Nobody listens any more if the load has ended.
        let _ = self.strikes.send(Strike { at: Instant::now(), kind, text, pgs });
    }

    /// An OSD that nobody has killed must run.
    fn check_own_ends(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        for osd in self.osds.iter_mut().filter(|osd| osd.state != State::Dead) {
            let daemon = Daemon::Osd(osd.id);
            if ProcessId::running(self.bed.layout(), daemon)?.is_none() {
                osd.state = State::Dead;
                ended.push(format!(
                    "{daemon} ended by itself; see {}",
                    self.bed.layout().log(daemon).display()
                ));
            }
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
        let seen = status(BedKind::Testbed, self.bed.layout())?;
        let is_clean = is_clean(&seen);
        // A store in memory loses its copies when its OSD dies, so the others' must be complete.
        let waits = !self.bed.plan().store.is_durable() || self.rng.bool();
        let running: Vec<usize> =
            (0..self.osds.len()).filter(|at| self.osds[*at].state == State::Runs).collect();
        // An OSD that was just started does not count yet.
        let are_up = running.iter().all(|at| seen.osds.get(*at).is_some_and(|osd| osd.up));
        let can_hurt = self.can_spare_one() && are_up && (is_clean || !waits);
        let Some(at) = self.rng.choice(&running).copied() else { return Ok(()) };
        match self.rng.u32(..12) {
            0..=4 if can_hurt => self.kill(at, &seen, is_clean),
            5 | 6 if can_hurt => self.freeze(at, &seen),
            7 if can_hurt => self.restart(at, &seen),
            8 | 9 if self.serving() > usize::from(self.now.min_size) => self.out(at),
            10 if self.changed_until.is_none() => self.change_pool(),
            _ => Ok(()),
        }
    }

    fn kill(&mut self, at: usize, seen: &Status, is_clean: bool) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(DEAD_MS));
        let (kind, text) = match is_clean {
            true => ("kill -9", format!("kill -9 of {id}")),
            false => ("kill -9, not clean", format!("kill -9 of {id} while PGs are not clean")),
        };
        self.strike(kind, text, Some(pgs_of(seen.details(), id)));
        (self.osds[at].state, self.osds[at].until) = (State::Dead, until);
        self.bed.stop_osds(&[id], true)?;
        Ok(())
    }

    fn freeze(&mut self, at: usize, seen: &Status) -> Result<()> {
        // Sometimes shorter than the grace, sometimes longer.
        let grace_ms = u64::from(self.bed.plan().osd_heartbeat_grace_s) * 1000;
        let (id, until) = (self.osds[at].id, self.after(500..grace_ms * 3 / 2));
        let seconds = until.duration_since(Instant::now()).as_secs_f64();
        self.strike("stop", format!("SIGSTOP to {id} for {seconds:.1} s"), Some(pgs_of(seen.details(), id)));
        (self.osds[at].state, self.osds[at].until) = (State::Frozen, until);
        Ok(self.bed.freeze_osd(id, true)?)
    }

    fn restart(&mut self, at: usize, seen: &Status) -> Result<()> {
        let (id, reactors) = (self.osds[at].id, self.rng.u16(1..=3));
        self.strike("restart", format!("restart of {id}"), Some(pgs_of(seen.details(), id)));
        self.osds[at].state = State::Dead;
        self.bed.stop_osds(&[id], false)?;
        self.start(at, Some(reactors))
    }

    /// Starts a dead OSD with this number of reactors, or with as many as before if none is given or there are too few CPUs.
    fn start(&mut self, at: usize, reactors: Option<u16>) -> Result<()> {
        let id = self.osds[at].id;
        let launched = self.bed.launch_osd(id, reactors, &self.programs);
        let words = match (&launched, reactors) {
            (Ok(()), Some(reactors)) => {
                format!(" with {}", carmine_types::counted(reactors.into(), "reactor"))
            }
            _ => String::new(),
        };
        match launched {
            Err(error) if error.is_usage() && reactors.is_some() => {
                self.bed.launch_osd(id, None, &self.programs)?;
            }
            launched => launched?,
        }
        self.osds[at].state = State::Runs;
        self.strike("start", format!("{id} is started{words}"), None);
        Ok(())
    }

    fn out(&mut self, at: usize) -> Result<()> {
        let (id, until) = (self.osds[at].id, self.after(CHANGED_MS));
        if self.osds[at].out_until.is_none() {
            self.strike("out", format!("{id} is out"), None);
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
        self.changed_until = Some(self.after(CHANGED_MS));
        self.set_pool(copies)
    }

    fn set_pool(&mut self, copies: Copies) -> Result<()> {
        let Copies { size, min_size } = copies;
        self.strike("pool", format!("the pool has size {size}, min_size {min_size}"), None);
        self.now = copies;
        for (var, value) in [("size", size), ("min_size", min_size)] {
            let val = value.to_string();
            self.bed.mon_command(
                &json!({ "prefix": "osd pool set", "pool": POOL_NAME, "var": var, "val": val }),
            )?;
        }
        Ok(())
    }

    /// Ends the faults whose time is over at `now`.
    fn end_due(&mut self, now: Instant) -> Result<()> {
        for at in 0..self.osds.len() {
            let Osd { id, state, until, out_until } = self.osds[at];
            match state {
                State::Dead if until <= now => {
                    let reactors = self.rng.bool().then(|| self.rng.u16(1..=3));
                    self.start(at, reactors)?;
                }
                State::Frozen if until <= now => {
                    self.strike("go on", format!("{id} goes on"), None);
                    self.bed.freeze_osd(id, false)?;
                    self.osds[at].state = State::Runs;
                }
                _ => {}
            }
            if out_until.is_some_and(|until| until <= now) {
                self.strike("in", format!("{id} is in"), None);
                self.bed.mon_command(&json!({ "prefix": "osd in", "ids": [id.0.to_string()] }))?;
                self.osds[at].out_until = None;
            }
        }
        // Not while fewer OSDs are up than will then be needed.
        let down = self.osds.iter().filter(|osd| osd.state != State::Runs).count();
        let fits = down <= usize::from(self.planned.size - self.planned.min_size);
        if self.changed_until.is_some_and(|until| until <= now && fits) {
            self.changed_until = None;
            self.set_pool(self.planned)?;
        }
        Ok(())
    }

    /// Ends all faults, and waits until all PGs are active and clean.
    fn heal(&mut self) -> Result<f64> {
        let began = Instant::now();
        let far = began + Duration::from_secs(1 << 30);
        self.end_due(far)?;
        loop {
            self.check_own_ends()?;
            let seen = status(BedKind::Testbed, self.bed.layout())?;
            if seen.state == "running" {
                return Ok(began.elapsed().as_secs_f64());
            }
            if began.elapsed() > self.heal_limit {
                bail!("not clean {:?} after the last fault: {}", self.heal_limit, seen.problems.join("; "));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// All PGs have all of their copies, by the newest map.
fn is_clean(seen: &Status) -> bool {
    let has_newest = |told: &Value| seen.epoch.is_some_and(|epoch| told["epoch"] == epoch);
    seen.details().all(has_newest) && seen.pgs.is_some_and(|pgs| Some(pgs.clean) == seen.pgs_total)
}
