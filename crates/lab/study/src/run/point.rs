//! One point: layout, start, baseline, load, state.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use carmine_testbed::read_json;

use super::curve;
use super::records::{ATTEMPTS_MAX, History, keep_logs};
use super::{End, Event, Sweep};
use crate::archive::{ArchiveError, Config, Point, PointEnd, PointResult, PointState};
use crate::commands::{
    BoundedCommand, LoadFiles, Prepare, What, baseline_step, is_durable, is_peer, load_step,
    precondition_options, prepare_steps, seconds, size_bytes, start_options, testbed_step,
};

/// Why a point was not measured.
enum Missed {
    Failed(String),
    Skipped(String),
    Cancelled,
}

impl From<ArchiveError> for Missed {
    fn from(error: ArchiveError) -> Missed {
        Missed::Failed(error.to_string())
    }
}

impl Sweep<'_> {
    /// Runs a point and writes down how it ended; false if the user stopped it.
    pub(super) fn point(&mut self, at: usize) -> Result<bool, ArchiveError> {
        let point = self.job.points[at].point.clone();
        let attempts = self.layouts.begin(&point.stem)?;
        let started = self.executor.unix_s();
        // The history of the layout before the point.
        let history = self.layouts.history(&point.layout).filter(|_| is_durable(&point.config));
        let condition = history.and_then(|history| serde_json::to_value(history).ok()).unwrap_or_default();
        let log = self.job.run.point_file(&point, "log");
        self.script.line(&format!("\n# {} {}", point.index, point.stem));
        let outcome = match attempts {
            0..=ATTEMPTS_MAX => self.measure(at, &log),
            _ => Err(Missed::Failed(format!("the sweep itself was ended during it {ATTEMPTS_MAX} times"))),
        };
        let (state, error) = match outcome {
            Ok(()) => (PointEnd::Done, None),
            Err(Missed::Failed(why)) => (PointEnd::Failed, Some(why)),
            Err(Missed::Skipped(why)) => (PointEnd::Skipped, Some(why)),
            Err(Missed::Cancelled) => {
                self.layouts.take_back(&point.stem)?;
                return Ok(false);
            }
        };
        if state == PointEnd::Failed {
            // OSDs that took part in a failure are not used again; their logs are removed with their folder.
            keep_logs(&self.layouts.folder(&point.layout), &log);
            self.stop();
        } else {
            let _ = std::fs::remove_file(&log);
        }
        let ended = Event::Ended { stem: point.stem.clone(), state, error: error.clone() };
        let seconds = self.executor.unix_s() - started;
        let started_unix_s = started as u64;
        let state = PointState { state, error, started_unix_s, seconds, attempts, condition };
        self.job.run.save_state(&point, &state)?;
        (self.events)(ended);
        Ok(true)
    }

    fn measure(&mut self, at: usize, log: &Path) -> Result<(), Missed> {
        self.follow_curve(at)?;
        let point = self.job.points[at].point.clone();
        self.ensure_started(&point, log)?;
        let files = LoadFiles {
            json: self.job.run.point_file(&point, "json"),
            samples: self.job.run.point_file(&point, "samples.json"),
            baseline: self.baseline(&point, log),
        };
        let folder = self.layouts.folder(&point.layout);
        let seed = self.job.plan.seed.wrapping_add(u64::from(point.repeat));
        let step =
            load_step(&folder, &point.config, &self.job.options.load_hosts, self.job.plan.ramp, seed, &files);
        let loaded = self.must(&step, log);
        self.script.by_hand(&folder, &point, self.job.plan.ramp, seed);
        self.add_to_history(&point, |history| {
            history.loads += 1;
            history.loaded_seconds += seconds(&point.config);
        })?;
        loaded?;
        check_result(&files.json)
    }

    /// Runs a command that has to end well.
    fn must(&mut self, step: &BoundedCommand, log: &Path) -> Result<(), Missed> {
        match self.step(step, log) {
            End::Ok => Ok(()),
            End::Failed(why) => Err(Missed::Failed(format!("{}: {why}", step.what))),
            End::Cancelled => Err(Missed::Cancelled),
        }
    }

    /// Points of some curves follow from those before them.
    fn follow_curve(&mut self, at: usize) -> Result<(), Missed> {
        let point = self.job.points[at].point.clone();
        if point.curve.is_none() {
            return Ok(());
        }
        self.read_results(at)?;
        let is_before = |(other, _): &&(Point, PointResult)| curve::is_shared(other, &point);
        let before: Vec<&(Point, PointResult)> = self.measured.iter().filter(is_before).collect();
        // A search goes on after a hiccup: it measures the same rate again.
        let is_search = point.config.number("search_step").is_some();
        if self.job.plan.early_exit
            && !is_search
            && let Some(why) = curve::exit(&before, self.job.plan.latency_cap)
        {
            return Err(Missed::Skipped(why));
        }
        let left = self.job.points[at..].iter().filter(|next| curve::is_shared(&next.point, &point)).count();
        let rate = curve::rate(&point, &before, left, self.job.plan.search_p99).map_err(Missed::Failed)?;
        if let Some(rate) = rate {
            self.job.points[at].point.config.set("rate_iops", rate);
            self.write_points()?;
        }
        Ok(())
    }

    fn ensure_started(&mut self, point: &Point, log: &Path) -> Result<(), Missed> {
        if self.is_started_for(point) {
            return Ok(());
        }
        let rested = self.running.is_none();
        self.stop();
        if !rested && !self.job.plan.pause.is_zero() && !self.executor.rest(self.job.plan.pause) {
            return Err(Missed::Cancelled);
        }
        let (_, options) =
            start_options(&point.config, self.job.plan, self.job.machine).map_err(Missed::Failed)?;
        self.ensure_layout(point, log)?;
        let step = testbed_step(What::Start, &self.layouts.folder(&point.layout), &point.config, &options);
        // Set before it starts: a start that fails half way is stopped as well.
        self.running = Some(point.clone());
        self.must(&step, log)?;
        self.add_to_history(point, |history| history.starts += 1)
    }

    /// Makes the layout unless it was made in this run.
    fn ensure_layout(&mut self, point: &Point, log: &Path) -> Result<(), Missed> {
        let name = &point.layout;
        if let Some(why) = self.layouts.broken.get(name) {
            return Err(Missed::Failed(format!("its layout {name} could not be made: {why}")));
        }
        self.clear_devices(point, log)?;
        if self.layouts.history(name).is_some() {
            return Ok(());
        }
        let made = self.make_layout(point, log);
        if let Err(Missed::Failed(why)) = &made {
            self.layouts.broken.insert(name.clone(), why.clone());
        }
        made?;
        Ok(self.layouts.record(name, &History::default())?)
    }

    fn make_layout(&mut self, point: &Point, log: &Path) -> Result<(), Missed> {
        let folder = self.layouts.folder(&point.layout);
        if folder.exists() {
            // Left half made by a sweep that was stopped.
            self.must(&testbed_step(What::Destroy, &folder, &point.config, &[]), log)?;
        }
        for step in self.layout_steps(point, &folder)? {
            if let Err(missed) = self.must(&step, log) {
                self.bed(What::Stop, &point.layout, &point.config, log);
                return Err(missed);
            }
            if self.on_devices(&point.config) {
                // From here on the devices hold data of this run.
                self.layouts.take_devices()?;
            }
        }
        Ok(())
    }

    /// A layout is made with one reactor per OSD and without the point's experimental settings, which must not break the layout.
    fn layout_steps(&self, point: &Point, folder: &Path) -> Result<Vec<BoundedCommand>, Missed> {
        let mut plain = point.config.clone();
        for axis in ["osd_wrap", "osd_env", "confine", "cpus", "smt", "alien_threads", "poll"] {
            plain.0.remove(axis);
        }
        plain.set("reactors", 1);
        let (_, mut options) =
            start_options(&plain, self.job.plan, self.job.machine).map_err(Missed::Failed)?;
        if self.on_devices(&plain) {
            if self.job.options.force_wipe || self.layouts.has_devices() {
                options.push("--force-wipe".to_owned());
            }
            if self.job.options.precondition && !is_peer(&plain) {
                options.extend(precondition_options(&plain));
            }
        }
        let sharing = self.job.points.iter().filter(|planned| planned.point.layout == point.layout);
        let sharing: Vec<&Config> = sharing.map(|planned| &planned.point.config).collect();
        // Points whose objects have other names, each kind once.
        let names = |config: &Config| ["client", "volumes"].map(|axis| config.show(axis));
        let mut known = BTreeSet::from([names(&plain)]);
        let others = sharing.iter().filter(|config| known.insert(names(config)));
        let others: Vec<Config> = others.map(|config| (*config).clone()).collect();
        let size_bytes = sharing.iter().map(|config| size_bytes(config)).max().unwrap_or(0);
        let prepare = Prepare { size_bytes, seed: self.job.plan.seed, start: &options, others: &others };
        Ok(prepare_steps(folder, &plain, &prepare))
    }

    /// True if the layout lies on named devices.
    fn on_devices(&self, config: &Config) -> bool {
        !self.job.machine.devices.is_empty() && is_durable(config)
    }

    /// Named devices hold one layout: others that lie there, perhaps made by a sweep that was stopped, are removed.
    fn clear_devices(&mut self, point: &Point, log: &Path) -> Result<(), Missed> {
        if !self.on_devices(&point.config) {
            return Ok(());
        }
        for (name, config) in self.existing() {
            if name == point.layout || !is_durable(&config) {
                continue;
            }
            self.must(&testbed_step(What::Destroy, &self.layouts.folder(&name), &config, &[]), log)?;
            self.layouts.forget(&name);
        }
        Ok(())
    }

    fn add_to_history(&mut self, point: &Point, change: impl FnOnce(&mut History)) -> Result<(), Missed> {
        let mut history = self.layouts.history(&point.layout).unwrap_or_default();
        change(&mut history);
        Ok(self.layouts.record(&point.layout, &history)?)
    }

    /// The point's baseline; without one the point is still worth measuring.
    fn baseline(&mut self, point: &Point, log: &Path) -> Option<PathBuf> {
        let file = self.job.run.baseline_file(point);
        if is_peer(&point.config) {
            return None;
        }
        let now = self.executor.unix_s();
        if let Some(fresh) = self.baselines.fresh(point, now).cloned() {
            return std::fs::copy(fresh, &file).ok().map(|_| file);
        }
        let depths_of = self.baselines.of_kind(point, now).map(PathBuf::as_path);
        let step = baseline_step(&self.layouts.folder(&point.layout), &point.config, &file, depths_of);
        match self.step(&step, log) {
            End::Ok if file.exists() => {
                self.baselines.add(point, now, file.clone());
                Some(file)
            }
            End::Failed(why) => {
                (self.events)(Event::Note(format!("{}: no baseline: {why}", point.stem)));
                None
            }
            End::Ok | End::Cancelled => None,
        }
    }
}

/// A load that ends well must have left a result.
fn check_result(json: &Path) -> Result<(), Missed> {
    let why = match read_json::<PointResult>(json) {
        Ok(Some(result)) if result.iops() > 0.0 => return Ok(()),
        Ok(Some(_)) => "the load completed no operation".to_owned(),
        Ok(None) => "the load left no result".to_owned(),
        Err(error) => format!("the load's result can't be read: {error}"),
    };
    Err(Missed::Failed(why))
}
