//! Axes: a range with ticks at round numbers, linear or logarithmic.

/// Steps between ticks, of each power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];

/// A range of values on an axis, and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// A linear scale that holds `low..=high`, widened to whole steps; about `ticks` ticks. Ranges that are empty or not
    /// finite become 0 to 1.
    pub(crate) fn linear(low: f64, high: f64, ticks: usize) -> Scale {
        let (low, high) = sane(low, high);
        let step = step((high - low) / ticks.max(2) as f64);
        let first = (low / step + 1e-9).floor();
        let last = (high / step - 1e-9).ceil().max(first + 1.0);
        let ticks = (first as i64..=last as i64).map(|n| n as f64 * step).collect();
        Scale { low: first * step, high: last * step, log: false, ticks }
    }

    /// A logarithmic scale that holds `low..=high`; both above 0, else it is linear.
    pub(crate) fn log(low: f64, high: f64, ticks: usize) -> Scale {
        if low.is_nan() || low <= 0.0 || !high.is_finite() || high <= low {
            return Scale::linear(low, high, ticks);
        }
        let (from, to) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
        let fine = (from..=to).flat_map(|e| [1.0, 2.0, 5.0].map(|s| s * 10f64.powi(e)));
        let fine: Vec<f64> = fine.collect();
        let first = fine.iter().rposition(|t| *t <= low * 1.0001).unwrap_or(0);
        let last = fine.iter().position(|t| *t >= high * 0.9999).unwrap_or(fine.len() - 1);
        let fine = &fine[first..=last];
        let decade = |tick: &&f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        let decades: Vec<f64> = fine.iter().filter(decade).copied().collect();
        let few = fine.len() <= ticks + 4 || decades.len() < 3;
        Scale {
            low: fine[0],
            high: fine[fine.len() - 1],
            log: true,
            ticks: if few { fine.to_vec() } else { decades },
        }
    }

    /// A linear scale from `low` to `high` with the round ticks that lie between.
    pub(crate) fn exact(low: f64, high: f64, ticks: usize) -> Scale {
        let (low, high) = sane(low, high);
        let inner = Scale::linear(low, high, ticks).ticks.into_iter().filter(|t| (low..=high).contains(t));
        Scale { low, high, log: false, ticks: inner.collect() }
    }

    /// Values that have a tick.
    pub(crate) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// The place of a value in a drawing whose low end is at `from` and whose high end is at `to`.
    pub(crate) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        from + (to - from) * self.part(value)
    }

    /// Where a value lies, 0 at the low end and 1 at the high end; values outside are put at the end.
    fn part(&self, value: f64) -> f64 {
        let at = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let part = (at(value) - at(self.low)) / (at(self.high) - at(self.low));
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn sane(low: f64, high: f64) -> (f64, f64) {
    match (low.is_finite() && high.is_finite(), low < high) {
        (false, _) => (0.0, 1.0),
        (true, true) => (low, high),
        (true, false) if low > 0.0 => (0.0, low),
        (true, false) if low < 0.0 => (low, 0.0),
        (true, false) => (0.0, 1.0),
    }
}

/// The smallest round step that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let found = STEPS.iter().map(|s| s * power).find(|s| *s >= least * 0.9999);
    found.unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_the_range() {
        assert_eq!(
            Scale::linear(0.0, 183_000.0, 5).ticks(),
            [0.0, 50_000.0, 100_000.0, 150_000.0, 200_000.0]
        );
        assert_eq!(Scale::linear(0.0, 1.0, 5).ticks(), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Scale::linear(-3.0, 4.0, 5).place(-4.0, 0.0, 8.0), 0.0);
        assert_eq!(Scale::log(0.15, 9.0, 6).ticks(), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        let wide = Scale::log(0.15, 30_000.0, 6);
        assert_eq!((wide.ticks().len(), wide.low, wide.high), (6, 0.1, 50_000.0));
    }

    #[test]
    fn absurd_ranges_still_make_a_scale() {
        for (low, high) in
            [(0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (9.0, 1.0), (-2.0, -2.0)]
        {
            for scale in [Scale::linear(low, high, 5), Scale::log(low, high, 5)] {
                assert!(scale.low < scale.high && scale.ticks().len() >= 2, "{low}..{high}: {scale:?}");
                assert!((0.0..=100.0).contains(&scale.place(f64::NAN, 0.0, 100.0)));
            }
        }
    }
}
