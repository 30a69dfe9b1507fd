//! One point: layout, start, baseline, load, state.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_testbed::read_json;

use super::{ATTEMPTS_MAX, End, Event, History, Sweep, keep_logs};
use crate::archive::{ArchiveError, Config, Point, PointEnd, PointKind, PointResult, PointState, Run};
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
            _ => Err(Missed::Failed(format!("the sweep itself ended in it {ATTEMPTS_MAX} times"))),
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
            // OSDs that took part in a failure are not used again; what they said goes with their folder.
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
        let step = load_step(&folder, &point.config, self.job.plan.ramp, seed, &files);
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
        let run = Run::open(self.job.run.dir())?;
        let before = before(&run, &point);
        if self.job.plan.early_exit
            && let Some(why) = exit(&before, self.job.plan.latency_cap)
        {
            return Err(Missed::Skipped(why));
        }
        if let Some(rate) = rate(&point, &before, self.job.plan.search_p99).map_err(Missed::Failed)? {
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
        // Set before it starts: one that fails half way is stopped as well.
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

    /// Made with one reactor an OSD and without what the point tries: what that breaks must not break the layout.
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

    /// Named devices hold one layout: others that lie there, perhaps made by a sweep that was stopped, go.
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
        let step = baseline_step(&self.layouts.folder(&point.layout), &point.config, &file);
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

/// A load that ends well has left a result.
fn check_result(json: &Path) -> Result<(), Missed> {
    let why = match read_json::<PointResult>(json) {
        Ok(Some(result)) if result.iops() > 0.0 => return Ok(()),
        Ok(Some(_)) => "the load completed no operation".to_owned(),
        Ok(None) => "the load left no result".to_owned(),
        Err(error) => format!("the load's result can't be read: {error}"),
    };
    Err(Missed::Failed(why))
}

// Points that follow from those before them on the same curve: rates in percent of the capacity, the search for a rate
// under a p99, and the end of a curve that makes no sense any more.

/// stdev/mean of latency at which a curve is stopped.
const SPREAD_MAX: f64 = 0.5;

/// The points before `point` on its curve, in order, that were measured.
pub(super) fn before<'a>(run: &'a Run, point: &Point) -> Vec<(&'a Point, PointResult)> {
    let same = |other: &&Point| {
        other.index < point.index
            && (&other.curve, other.repeat, &other.arm) == (&point.curve, point.repeat, &point.arm)
            && other.kind == point.kind
    };
    let done = run.points.iter().filter(same).filter(|other| run.is_done(other));
    done.filter_map(|other| Some((other, run.result(other).ok()??))).collect()
}

/// The rate of a point that has one by rule: `Ok(None)` for a closed loop, `Err` if what it follows from is missing.
pub(super) fn rate(
    point: &Point,
    before: &[(&Point, PointResult)],
    p99_max: Option<Duration>,
) -> Result<Option<f64>, String> {
    for axis in ["rate_percent", "search_step"] {
        let Some(number) = point.config.number(axis).filter(|number| *number > 0) else { continue };
        let capacity = before.iter().find(|(p, _)| p.config.number(axis) == Some(0)).map(|(_, r)| r.iops());
        let capacity = capacity
            .filter(|iops| *iops > 0.0)
            .ok_or("the capacity of its curve was not measured".to_owned())?;
        if axis == "rate_percent" {
            return Ok(Some(capacity * number as f64 / 100.0));
        }
        let step = |(p, r): &(&Point, PointResult)| {
            Some((p.config.float("rate_iops")?, r.latency().and_then(|l| l.at(99.0))))
        };
        let steps: Vec<(f64, Option<f64>)> = before.iter().filter_map(step).collect();
        return Ok(Some(next_rate(capacity, &steps, p99_max.unwrap_or_default())));
    }
    Ok(None)
}

/// Bisection: the middle between the highest rate that held the p99 and the lowest that did not.
fn next_rate(capacity: f64, steps: &[(f64, Option<f64>)], p99_max: Duration) -> f64 {
    let (mut low, mut high) = (0.0, capacity);
    for (rate, p99_ns) in steps {
        if p99_ns.is_some_and(|p99| p99 <= p99_max.as_nanos() as f64) {
            low = f64::max(low, *rate);
        } else {
            high = f64::min(high, *rate);
        }
    }
    (low + high) / 2.0
}

/// Why the curve ends before `point`, if it does.
pub(super) fn exit(before: &[(&Point, PointResult)], latency_cap: Option<Duration>) -> Option<String> {
    before.iter().find_map(|(point, result)| {
        let latency = result.latency()?;
        let spread = if latency.mean > 0.0 { latency.stddev / latency.mean } else { 0.0 };
        if spread >= SPREAD_MAX {
            return Some(format!("early exit: stdev/mean of latency was {spread:.2} at {}", point.stem));
        }
        let cap = latency_cap.filter(|cap| latency.mean > cap.as_nanos() as f64)?;
        Some(format!("early exit: the mean latency passed {} ms at {}", cap.as_millis(), point.stem))
    })
}

/// The first point each time it was run again: its IOPS ÷ those of the first time − 1.
pub(super) fn drift(run: &Run) -> Vec<f64> {
    let iops = |point: &Point| run.result(point).ok()?.filter(|_| run.is_done(point)).map(|r| r.iops());
    let Some(first) = run.points.first().and_then(iops).filter(|iops| *iops > 0.0) else { return Vec::new() };
    let again = run.points.iter().filter(|point| point.kind == PointKind::Again);
    again.filter_map(iops).filter(|iops| *iops > 0.0).map(|iops| iops / first - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Direction, Job, LatencyNs};

    fn result(iops: f64, mean: f64, stddev: f64, p99: f64) -> PointResult {
        let percentile = [("99.000000".to_owned(), p99)].into();
        let clat_ns = LatencyNs { mean, stddev, percentile, ..LatencyNs::default() };
        let read = Direction { iops, clat_ns, ..Direction::default() };
        PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() }
    }

    fn point(axis: &str, value: u64) -> Point {
        let mut point = Point::default();
        point.config.set(axis, value);
        point
    }

    #[test]
    fn rates_are_percentages_of_the_capacity() {
        let (probe, tenth) = (point("rate_percent", 0), point("rate_percent", 10));
        let before = [(&probe, result(5000.0, 1.0, 0.1, 2.0))];
        assert_eq!(rate(&probe, &[], None), Ok(None));
        assert_eq!(rate(&tenth, &before, None), Ok(Some(500.0)));
        assert!(rate(&tenth, &[], None).unwrap_err().contains("capacity"));
    }

    #[test]
    fn the_search_halves_what_is_left() {
        let target = Duration::from_millis(1);
        assert_eq!(next_rate(1000.0, &[], target), 500.0);
        assert_eq!(next_rate(1000.0, &[(500.0, Some(0.5e6))], target), 750.0);
        assert_eq!(next_rate(1000.0, &[(500.0, Some(0.5e6)), (750.0, Some(9e6))], target), 625.0);
        assert_eq!(next_rate(1000.0, &[(500.0, None)], target), 250.0, "a rate without answers is too high");
    }

    #[test]
    fn the_search_finds_the_rate_of_a_known_system() {
        // An M/M/1-like server of 1000 op/s: p99 = 4.6 / (1000 - rate) seconds.
        let target = Duration::from_millis(23);
        let mut steps: Vec<(f64, Option<f64>)> = Vec::new();
        for _ in 0..8 {
            let rate = next_rate(1000.0, &steps, target);
            steps.push((rate, Some(4.6e9 / (1000.0 - rate))));
        }
        let best =
            steps.iter().filter(|(_, p99)| p99.unwrap() <= 23e6).map(|(rate, _)| *rate).fold(0.0, f64::max);
        assert!((best - 800.0).abs() < 8.0, "{best}");
    }

    #[test]
    fn a_curve_ends_at_a_wide_spread_or_a_cap() {
        let first = point("iodepth", 1);
        assert_eq!(exit(&[(&first, result(1.0, 100.0, 49.0, 0.0))], None), None);
        assert!(exit(&[(&first, result(1.0, 100.0, 50.0, 0.0))], None).unwrap().contains("0.50"));
        let cap = Some(Duration::from_millis(2));
        assert_eq!(exit(&[(&first, result(1.0, 2e6, 0.0, 0.0))], cap), None);
        assert!(exit(&[(&first, result(1.0, 2.1e6, 0.0, 0.0))], cap).unwrap().contains("2 ms"));
    }
}
