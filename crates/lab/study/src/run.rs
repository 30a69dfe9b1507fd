//! Running the points: layouts are made once, OSDs restart between points, a point that fails is recorded and the next
//! one runs. The archive shows which points are done, so that a stopped sweep continues where it was.

mod curve;
mod drives;
mod point;
mod records;
mod spare;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_stats::out_of_reach;
pub use carmine_testbed::Ended as End;

use crate::archive::{
    ArchiveError, Config, Point, PointEnd, PointKind, PointResult, PointState, Run, dat_table,
};
use crate::commands::{BoundedCommand, What, shell_line, testbed_step};
use crate::drift::Drift;
use crate::expand::{Machine, Planned, start_key};
use crate::plan::Plan;
use records::{Baselines, Layouts, Script};

/// Shorter windows show that a plan works; their figures mean nothing.
pub const WINDOW_MIN: Duration = Duration::from_secs(carmine_load::report::WINDOW_MIN_S as u64);

/// Progress of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A point begins.
    Point { index: usize, stem: String, left: Duration },
    /// One of its commands begins.
    Step(What),
    /// It has ended.
    Ended { stem: String, state: PointEnd, error: Option<String> },
    /// Something that the user should know.
    Note(String),
}

/// Runs commands, each bounded in time.
pub trait Executor {
    /// Runs a command to its end; its output is added to the file `log`. Steps that stop and remove are run even after the user
    /// asked to stop.
    fn run(&mut self, step: &BoundedCommand, log: &Path) -> End;
    /// Seconds since 1970.
    fn unix_s(&self) -> f64;
    /// Rests; false if the user asked to stop meanwhile.
    fn rest(&mut self, time: Duration) -> bool;
}

/// How a sweep is run, beside its plan.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Folder of the layouts.
    #[arg(skip)]
    pub layouts: PathBuf,
    /// Keep the OSDs' data when all points have run
    #[arg(long, help_heading = "Storage")]
    pub keep_layouts: bool,
    /// Overwrite devices that are not blank
    #[arg(long, requires = "devs", help_heading = "Storage")]
    pub force_wipe: bool,
    /// Bring the devices into their steady state before the stores of each layout are made (takes hours; not for virtual disks)
    #[arg(long, requires = "devs", help_heading = "Storage")]
    pub precondition: bool,
    /// Hosts on which `carmine load` waits, as HOST:PORT: a point with load_hosts = 2 takes the first two
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', num_args = 1, help_heading = "Plan")]
    pub load_hosts: Vec<String>,
    /// Go on when the first point, run again, shows that the machine has drifted by more than the plan's tolerance
    #[arg(long, help_heading = "Plan")]
    pub ignore_drift: bool,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// Every point was run, be it done or failed.
    Complete,
    /// The user stopped it; it can be resumed.
    Stopped,
    /// The machine has changed by this part of 1, so the rest would decide nothing; it can be resumed.
    Drifted(f64),
}

/// The points to run, and where to run them.
pub struct Job<'a> {
    pub plan: &'a Plan,
    pub machine: &'a Machine,
    pub options: Options,
    /// Its folder, and `run.json` as it is at the beginning.
    pub run: Run,
    pub points: Vec<Planned>,
}

/// A run in progress.
pub struct Sweep<'a> {
    job: Job<'a>,
    executor: &'a mut dyn Executor,
    events: &'a mut dyn FnMut(Event),
    layouts: Layouts,
    baselines: Baselines,
    script: Script,
    /// The point whose OSDs run now.
    running: Option<Point>,
    /// The points that were measured, of the first `read` ones: each result is read once.
    measured: Vec<(Point, PointResult)>,
    read: usize,
}

impl<'a> Sweep<'a> {
    /// Begins a run in the folder of `run`, or goes on with the one that is there: points that have a state are not run
    /// again.
    pub fn new(
        job: Job<'a>,
        executor: &'a mut dyn Executor,
        events: &'a mut dyn FnMut(Event),
    ) -> Result<Sweep<'a>, ArchiveError> {
        let mut sweep = Sweep {
            layouts: Layouts::open(&job.options.layouts)?,
            baselines: Baselines::default(),
            script: Script::open(job.run.dir()),
            running: None,
            measured: Vec::new(),
            read: 0,
            job,
            executor,
            events,
        };
        sweep.take_over_rates();
        sweep.job.run.save_text("plan.toml", &sweep.job.plan.text)?;
        sweep.write_points()?;
        sweep.job.run.save()?;
        Ok(sweep)
    }

    /// Runs what is left.
    pub fn run(mut self) -> Result<Ending, ArchiveError> {
        self.stop_stale();
        let mut at = 0;
        while at < self.job.points.len() || self.add_repeats()? {
            if self.state(at).is_none()
                && let Some(ending) = self.go(at)?
            {
                return Ok(ending);
            }
            at += 1;
        }
        self.stop();
        self.finish()?;
        Ok(Ending::Complete)
    }

    /// Runs one point; an ending if the sweep ends with it before its time.
    fn go(&mut self, at: usize) -> Result<Option<Ending>, ArchiveError> {
        let stem = self.job.points[at].point.stem.clone();
        let begin = Event::Point { index: at, stem, left: self.left(at) };
        (self.events)(begin);
        let ending = match self.point(at)? {
            false => Some(Ending::Stopped),
            true => self.drifted(at)?.map(Ending::Drifted),
        };
        if ending.is_some() {
            self.stop();
        }
        self.script.write(&self.job.run)?;
        Ok(ending)
    }

    /// Reads the results of the first `count` points, of which each has been run, but for those that were read before.
    fn read_results(&mut self, count: usize) -> Result<(), ArchiveError> {
        while self.read < count {
            let point = &self.job.points[self.read].point;
            let result = if self.job.run.is_done(point) { self.job.run.result(point)? } else { None };
            self.measured.extend(result.map(|result| (point.clone(), result)));
            self.read += 1;
        }
        Ok(())
    }

    /// Called after the first point was run again: returns the machine's drift if the rest of the run would decide nothing.
    fn drifted(&mut self, at: usize) -> Result<Option<f64>, ArchiveError> {
        if self.job.points[at].point.kind != PointKind::Again {
            return Ok(None);
        }
        self.read_results(at + 1)?;
        let drift = Drift::from_points(self.measured.iter().map(|(point, result)| (point, result)));
        let changes = drift.map_or_else(Vec::new, |drift| drift.changes);
        self.job.run.file.drift = changes.last().copied();
        self.job.run.save()?;
        if let Some(drift) = self.job.run.file.drift {
            let text = format!("the first point, run again: {:+.1} % IOPS", drift * 100.0);
            (self.events)(Event::Note(text));
        }
        // The figures of short windows mean nothing, and stopping at the last point saves nothing.
        let matters = self.job.plan.runtime >= WINDOW_MIN && at + 1 < self.job.points.len();
        let watched = matters && !self.job.options.ignore_drift;
        Ok(out_of_reach(&changes, self.job.plan.tolerance).filter(|_| watched))
    }

    /// Rates that an earlier sweep of this run has computed.
    fn take_over_rates(&mut self) {
        let Ok(old) = Run::open(self.job.run.dir()) else { return };
        let rates: BTreeMap<String, serde_json::Value> = old
            .points
            .into_iter()
            .filter_map(|point| Some((point.stem, point.config.get("rate_iops")?.clone())))
            .collect();
        for planned in &mut self.job.points {
            if let Some(rate) = rates.get(&planned.point.stem) {
                planned.point.config.set("rate_iops", rate.clone());
            }
        }
    }

    fn write_points(&self) -> Result<(), ArchiveError> {
        self.job.run.save_points(self.job.points.iter().map(|planned| planned.point.clone()).collect())
    }

    fn state(&self, at: usize) -> Option<PointState> {
        self.job.run.state(&self.job.points[at].point).ok()?
    }

    fn left(&self, at: usize) -> Duration {
        (at..self.job.points.len())
            .filter(|at| self.state(*at).is_none())
            .map(|at| self.job.points[at].estimate)
            .sum()
    }

    /// OSDs that a killed sweep of this run has left, found by their folders.
    fn stop_stale(&mut self) {
        for (name, config) in self.existing() {
            self.bed(What::Stop, &name, &config, &self.layouts.log());
        }
    }

    /// Layouts of this run whose folders are there, each with the configuration of one of its points.
    fn existing(&self) -> Vec<(String, Config)> {
        let config = |name: String| {
            let planned = self.job.points.iter().find(|planned| planned.point.layout == name)?;
            Some((name, planned.point.config.clone()))
        };
        self.layouts.existing().into_iter().filter_map(config).collect()
    }

    /// Runs one command.
    fn step(&mut self, step: &BoundedCommand, log: &Path) -> End {
        (self.events)(Event::Step(step.what));
        self.script.line(&shell_line(&step.argv));
        self.executor.run(step, log)
    }

    /// Stops the OSDs of a layout, or removes it.
    fn bed(&mut self, what: What, layout: &str, config: &Config, log: &Path) -> End {
        self.step(&testbed_step(what, &self.layouts.folder(layout), config, &[]), log)
    }

    /// Stops the OSDs that run. One that can't be stopped is reported and left to the next start, which then fails.
    fn stop(&mut self) {
        let Some(point) = self.running.take() else { return };
        if let End::Failed(why) = self.bed(What::Stop, &point.layout, &point.config, &self.layouts.log()) {
            (self.events)(Event::Note(format!("{}: {why}", point.layout)));
        }
    }

    /// True if the running OSDs are those that the point needs: they stay only along a curve, unless they are to be cold.
    fn is_started_for(&self, point: &Point) -> bool {
        self.running.as_ref().is_some_and(|now| {
            point.curve.is_some()
                && point.config.text("cache") != Some("cold")
                && curve::is_shared(now, point)
                && start_key(&now.config) == start_key(&point.config)
        })
    }

    fn finish(&mut self) -> Result<(), ArchiveError> {
        self.job.run.file.complete = true;
        self.job.run.file.finished_unix_s = Some(self.executor.unix_s() as u64);
        if !self.job.options.keep_layouts {
            self.remove_layouts();
        }
        self.read_results(self.job.points.len())?;
        for stem in drives::refute(&self.job.run, &mut self.measured)? {
            (self.events)(Event::Note(format!(
                "{stem}: not DEVICE, since another point did more on its drives"
            )));
        }
        let table = dat_table(self.measured.iter().map(|(point, result)| (point, result)));
        self.job.run.save_text("points.dat", &table)?;
        self.script.write(&self.job.run)?;
        self.job.run.save()
    }

    fn remove_layouts(&mut self) {
        let log = self.layouts.log();
        for (name, config) in self.existing() {
            if let End::Failed(why) = self.bed(What::Destroy, &name, &config, &log) {
                (self.events)(Event::Note(format!("{name} stays: {why}")));
            } else {
                self.layouts.forget(&name);
            }
        }
        self.layouts.remove();
    }
}
