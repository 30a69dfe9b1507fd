//! The search for the highest rate whose p99 stays under a target: bisection between the highest rate that met it and the lowest
//! that did not. A window that misses the target may have had a hiccup, so its rate is measured again, and the majority counts.

use std::time::Duration;

use carmine_types::counted;

use crate::archive::{Point, PointResult};
use crate::support::{REPEATS_MIN, clean, known, spoilt_by};

/// Rates are whole hundredths: one that is read from a file is equal to what was written.
const RATES_PER_IOPS: f64 = 100.0;

/// The windows of one search so far.
#[derive(Clone, Debug)]
pub(crate) struct Search<'a> {
    /// Of the closed loop: an upper bound of all rates.
    capacity_iops: f64,
    target: Duration,
    /// The lowest first.
    rates: Vec<Rate<'a>>,
}

/// One rate and its windows.
#[derive(Clone, Debug)]
struct Rate<'a> {
    iops: f64,
    windows: Vec<Window<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Window<'a> {
    point: &'a Point,
    result: &'a PointResult,
    p99_ns: Option<f64>,
    is_met: bool,
}

/// The rate that a search has found. Its two ends have their clean windows only.
#[derive(Clone, Debug)]
pub(crate) struct Found<'a> {
    /// The highest rate that met the target; `None` if all that were tried missed it.
    low: Option<Rate<'a>>,
    /// The lowest rate that missed it; `None` if all that were tried met it.
    high: Option<Rate<'a>>,
    target: Duration,
    capacity_iops: f64,
    /// Part of 1.
    drift: f64,
}

impl<'a> Search<'a> {
    /// The search that these points of a curve make up; `None` without its capacity, which step 0 measures.
    pub(crate) fn from_points(
        points: impl Iterator<Item = (&'a Point, &'a PointResult)>,
        target: Duration,
    ) -> Option<Search<'a>> {
        let mut capacity_iops = None;
        let mut rates: Vec<Rate<'a>> = Vec::new();
        for (point, result) in points {
            if point.config.number("search_step")? == 0 {
                capacity_iops = Some(result.iops()).filter(|iops| *iops > 0.0);
                continue;
            }
            let Some(iops) = point.config.float("rate_iops") else { continue };
            let p99_ns = result.latency().and_then(|latency| latency.at(99.0));
            let is_met = p99_ns.is_some_and(|p99| p99 <= target.as_nanos() as f64);
            let window = Window { point, result, p99_ns, is_met };
            match rates.iter_mut().find(|rate| (rate.iops - iops).abs() * RATES_PER_IOPS < 0.5) {
                Some(rate) => rate.windows.push(window),
                None => rates.push(Rate { iops, windows: vec![window] }),
            }
        }
        rates.sort_by(|a, b| a.iops.total_cmp(&b.iops));
        Some(Search { capacity_iops: capacity_iops?, target, rates })
    }

    /// The rate to try next, when `left` steps are left, this one included: one that is open; or, when the steps only just
    /// suffice for that, one of the two ends until it was measured often enough for an answer; or the middle between them.
    pub(crate) fn next_rate(&self, left: usize) -> f64 {
        if let Some(open) = self.rates.iter().find(|rate| rate.is_open()) {
            return open.iops;
        }
        let low = self.rates.iter().rfind(|rate| rate.is_met());
        let high = self.rates.iter().find(|rate| rate.is_missed());
        let lacks = |end: Option<&Rate<'_>>| end.map_or(0, Rate::lacks);
        // A new rate becomes one of the ends, and the other one stays.
        let of_new = REPEATS_MIN + lacks(low).max(lacks(high));
        let unsure = [low, high].into_iter().flatten().find(|rate| rate.lacks() > 0);
        match unsure {
            Some(end) if left < of_new => end.iops,
            _ => {
                let middle = f64::midpoint(
                    low.map_or(0.0, |rate| rate.iops),
                    high.map_or(self.capacity_iops, |rate| rate.iops),
                );
                (middle * RATES_PER_IOPS).round() / RATES_PER_IOPS
            }
        }
    }

    /// The rate that was found. `drift` is the machine's, `tolerance` the most of it that is no matter; both are parts of 1.
    ///
    /// # Errors
    /// Why no rate is supported: what spoils the windows of the ends, or the drift.
    pub(crate) fn found(&self, drift: Option<f64>, tolerance: f64) -> Result<Found<'a>, String> {
        let drift = known(drift)?;
        if drift > tolerance {
            return Err(format!(
                "the machine drifted by {:.1} %, and the search takes a machine that drifts by {:.0} % at most",
                drift * 100.0,
                tolerance * 100.0
            ));
        }
        let low = first_supported(self.rates.iter().rev().filter(|rate| rate.is_met()))?;
        let high = first_supported(self.rates.iter().filter(|rate| rate.is_missed()))?;
        if low.is_none() && high.is_none() {
            return Err("no rate was tried often enough".to_owned());
        }
        Ok(Found { low, high, target: self.target, capacity_iops: self.capacity_iops, drift })
    }

    /// Every rate with the p99 of its windows, the lowest rate first, and a sentence for each hiccup.
    pub(crate) fn steps(&self) -> Vec<String> {
        let each: Vec<String> = self.rates.iter().map(Rate::to_text).collect();
        let tried = format!("tried (p99 of each window): {}", each.join("; "));
        std::iter::once(tried).chain(self.rates.iter().filter_map(Rate::hiccup)).collect()
    }
}

/// The first of the rates that has windows enough; `None` of no rates. The error is that of the first.
fn first_supported<'r, 'a: 'r>(
    mut rates: impl Iterator<Item = &'r Rate<'a>>,
) -> Result<Option<Rate<'a>>, String> {
    let Some(first) = rates.next() else { return Ok(None) };
    first.supported().or_else(|why| rates.find_map(|rate| rate.supported().ok()).ok_or(why)).map(Some)
}

impl<'a> Rate<'a> {
    fn met(&self) -> usize {
        self.windows.iter().filter(|window| window.is_met).count()
    }

    fn missed(&self) -> usize {
        self.windows.len() - self.met()
    }

    fn is_met(&self) -> bool {
        self.met() > self.missed()
    }

    /// One window that misses the target is no limit.
    fn is_missed(&self) -> bool {
        self.missed() > self.met() && self.missed() > 1
    }

    fn is_open(&self) -> bool {
        !self.is_met() && !self.is_missed()
    }

    /// Windows that it lacks for an answer.
    fn lacks(&self) -> usize {
        REPEATS_MIN.saturating_sub(self.windows.len())
    }

    /// The rate with its clean windows, if they are enough.
    fn supported(&self) -> Result<Rate<'a>, String> {
        let spoilt = |window: &Window<'_>| spoilt_by(&window.point.config, Some(window.result));
        let windows = clean(&self.windows, spoilt).map_err(|why| format!("{:.0} IOPS: {why}", self.iops))?;
        Ok(Rate { iops: self.iops, windows })
    }

    fn to_text(&self) -> String {
        let p99: Vec<String> = self.windows.iter().map(|window| ms(window.p99_ns)).collect();
        let word = match (self.is_met(), self.is_missed()) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "open",
        };
        format!("{:.0} IOPS {word} ({})", self.iops, p99.join(", "))
    }

    /// The window that missed the target at a rate that meets it.
    fn hiccup(&self) -> Option<String> {
        let missed = self.windows.iter().find(|window| !window.is_met).filter(|_| self.is_met())?;
        Some(format!(
            "a hiccup, and no limit: at {:.0} IOPS one of {} had a p99 of {} ({})",
            self.iops,
            counted(self.windows.len(), "window"),
            ms(missed.p99_ns),
            missed.point.stem
        ))
    }
}

fn ms(ns: Option<f64>) -> String {
    ns.map_or_else(|| "no latency".to_owned(), |ns| format!("{:.2} ms", ns / 1e6))
}

impl std::fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (target, drift) = (ms(Some(self.target.as_nanos() as f64)), self.drift * 100.0);
        let part =
            |rate: &Rate<'_>, part: usize| format!("{part} of {}", counted(rate.windows.len(), "window"));
        match (&self.low, &self.high) {
            (Some(low), Some(high)) => write!(
                f,
                "{0:.0} IOPS keep the p99 within {target} (interval {0:.0} to {1:.0}: {0:.0} met it in {2}, {1:.0} missed it in {3}; \
                 the machine drifted by {drift:.1} %)",
                low.iops,
                high.iops,
                part(low, low.met()),
                part(high, high.missed())
            ),
            (Some(low), None) => write!(
                f,
                "at least {:.0} IOPS keep the p99 within {target} (met in {}; no rate that was tried missed it; the closed loop gave \
                 {:.0})",
                low.iops,
                part(low, low.met()),
                self.capacity_iops
            ),
            (None, Some(high)) => write!(
                f,
                "fewer than {:.0} IOPS keep the p99 within {target} (missed in {}; no rate that was tried met it)",
                high.iops,
                part(high, high.missed())
            ),
            (None, None) => f.write_str("no rate was tried"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TARGET: Duration = Duration::from_millis(5);

    /// A search on a machine that is only described.
    struct Bench {
        windows: Vec<(Point, PointResult)>,
        steps: usize,
    }

    impl Bench {
        /// Searches in this many steps; `p99_ms` gets the rate and the number of the step, from 1.
        fn new(steps: usize, p99_ms: impl Fn(f64, usize) -> f64) -> Bench {
            let mut bench = Bench { windows: vec![window(0, 1000.0, 1.0)], steps };
            for step in 1..=steps {
                let rate_iops = bench.search().next_rate(steps + 1 - step);
                bench.windows.push(window(step, rate_iops, p99_ms(rate_iops, step)));
            }
            bench
        }

        fn search(&self) -> Search<'_> {
            Search::from_points(self.windows.iter().map(|(point, result)| (point, result)), TARGET).unwrap()
        }

        fn rates(&self) -> Vec<f64> {
            self.windows[1..].iter().map(|(point, _)| point.config.float("rate_iops").unwrap()).collect()
        }

        fn bounds(&self) -> (f64, f64) {
            let found = self
                .search()
                .found(Some(0.0), 0.05)
                .unwrap_or_else(|why| panic!("{why}: {:?}", self.rates()));
            (found.low.unwrap().iops, found.high.unwrap().iops)
        }
    }

    fn window(step: usize, iops: f64, p99_ms: f64) -> (Point, PointResult) {
        let mut point = Point { index: step, stem: format!("step{step}"), ..Point::default() };
        point.config.set("search_step", step);
        point.config.set("seconds", 60);
        if step > 0 {
            point.config.set("rate_iops", iops);
        }
        let latency = json!({"percentile": {"99.000000": p99_ms * 1e6}});
        let result =
            json!({"jobs": [{"read": {"iops": iops, "clat_ns": latency}, "write": {}}], "carmine": {}});
        (point, serde_json::from_value(result).unwrap())
    }

    /// An M/M/1-like server of 1000 op/s: p99 = 1000 / (1000 - rate) ms, which is 5 ms at 800 op/s.
    fn server(rate_iops: f64, _: usize) -> f64 {
        1000.0 / (1000.0 - rate_iops)
    }

    #[test]
    fn the_search_finds_the_rate_of_a_known_system_and_states_its_interval() {
        for steps in 12..20 {
            let bench = Bench::new(steps, server);
            let (low, high) = bench.bounds();
            assert!(low < 800.0 && 800.0 < high && high - low < 70.0, "{low} to {high}: {:?}", bench.rates());
        }
        let found = Bench::new(12, server).search().found(Some(0.002), 0.05).unwrap().to_string();
        let wanted = "IOPS keep the p99 within 5.00 ms (interval ";
        assert!(found.contains(wanted) && found.contains("met it in 3 of 3 windows"), "{found}");
        assert!(found.contains("missed it in 3 of 3 windows; the machine drifted by 0.2 %"), "{found}");
    }

    /// One window of 42 ms at the first rate used to make that rate the upper bound of all others.
    #[test]
    fn a_hiccup_at_any_step_is_told_from_a_limit() {
        let steps = 14;
        for late in 1..=steps {
            let p99_ms = |rate, step| if step == late { 42.0 } else { server(rate, step) };
            let bench = Bench::new(steps, p99_ms);
            let (low, high) = bench.bounds();
            assert!(low < 800.0 && 800.0 < high, "at step {late}: {low} to {high}: {:?}", bench.rates());
        }
        let bench = Bench::new(steps, |rate, step| if step == 1 { 42.0 } else { server(rate, step) });
        assert_eq!(bench.rates()[..3], [500.0; 3], "the step that misses is repeated");
        let told = bench.search().steps().join("\n");
        assert!(told.contains("500 IOPS met (42.00 ms, 2.00 ms, 2.00 ms)"), "{told}");
        let hiccup = "a hiccup, and no limit: at 500 IOPS one of 3 windows had a p99 of 42.00 ms (step1)";
        assert!(told.contains(hiccup), "{told}");
        assert_eq!(bench.windows.len(), bench.steps + 1, "it stays in the archive");
    }

    #[test]
    fn a_rate_is_measured_three_times_at_most() {
        let noisy = |rate: f64, step: usize| if (rate as usize + step).is_multiple_of(3) { 9.0 } else { 1.0 };
        let bench = Bench::new(20, noisy);
        assert!(bench.search().rates.iter().all(|rate| rate.windows.len() <= 3), "{:?}", bench.rates());
    }

    #[test]
    fn too_few_windows_or_a_drift_are_no_answer() {
        let none = |bench: &Bench, drift| bench.search().found(drift, 0.05).unwrap_err();
        assert!(none(&Bench::new(2, server), Some(0.0)).contains("it takes 3"));
        let bench = Bench::new(12, server);
        assert!(none(&bench, Some(-0.091)).contains("drifted by 9.1 %"));
        assert!(none(&bench, None).contains("drift is not known"));
        let mut noisy = Bench::new(12, server);
        noisy.windows.iter_mut().for_each(|(_, result)| result.carmine.marks = vec!["NOISY: why".into()]);
        assert!(none(&noisy, Some(0.0)).contains("0 of 3 repeats clean (NOISY 3)"));
    }

    #[test]
    fn targets_that_every_rate_meets_or_misses_have_one_end() {
        let told = |p99_ms: f64| {
            let bench = Bench::new(9, move |_, _| p99_ms);
            bench.search().found(Some(0.0), 0.05).unwrap().to_string()
        };
        assert!(told(1.0).starts_with("at least "), "{}", told(1.0));
        assert!(told(9.0).starts_with("fewer than "), "{}", told(9.0));
    }
}
