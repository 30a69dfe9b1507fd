//! An OSD that is slower by a known part: a test of the instrument, which must find it. Nothing else may set the variable.

use std::time::{Duration, Instant};

use anyhow::bail;
use carmine_reactor::{Group, Shard};

/// Variable of the OSD's environment (`carmine up --osd-env`): percent by which every reactor is slower.
pub(super) const VARIABLE: &str = "CARMINE_TEST_SLOWDOWN_PERCENT";
/// How often the reactor is held up: short against a window, long against an operation.
const EVERY: Duration = Duration::from_millis(1);

/// The part of 1 that [`VARIABLE`] asks for, `None` if it is not set.
///
/// # Errors
/// A value that is no number from 0 to 90.
pub(super) fn asked() -> anyhow::Result<Option<f64>> {
    std::env::var_os(VARIABLE).map(|text| parse(&text.to_string_lossy())).transpose()
}

fn parse(text: &str) -> anyhow::Result<f64> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent / 100.0),
        _ => bail!("{VARIABLE}={text}: give a percentage from 0 to 90"),
    }
}

/// Holds the reactor up for so long that it does `part` less per busy second: for each busy nanosecond it spins for
/// `part ÷ (1 − part)` more.
pub(super) fn start(shard: &Shard, part: f64) {
    tracing::warn!("{VARIABLE}: this OSD is made slower by {:.1} %, its figures are a test", part * 100.0);
    let own = shard.clone();
    shard.spawn(Group::Admin, "slowdown", async move {
        let (mut busy_ns, mut spun_ns) = (own.stats().busy_ns, 0.0);
        loop {
            own.sleep(EVERY).await;
            let now_ns = own.stats().busy_ns;
            // What was spun the last time is busy, too, but no work.
            let work_ns = now_ns.saturating_sub(busy_ns) as f64 - spun_ns;
            busy_ns = now_ns;
            spun_ns = spin(work_ns.max(0.0) * part / (1.0 - part));
        }
    });
}

/// Spins for `ns` nanoseconds; how many they were.
fn spin(ns: f64) -> f64 {
    let (start, limit) = (Instant::now(), Duration::from_nanos(ns as u64));
    while start.elapsed() < limit {
        std::hint::spin_loop();
    }
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(parse("5").unwrap(), 0.05);
        assert_eq!(parse("0").unwrap(), 0.0);
        for bad in ["", "five", "-1", "91", "NaN"] {
            assert!(parse(bad).unwrap_err().to_string().contains(VARIABLE), "{bad}");
        }
    }
}
