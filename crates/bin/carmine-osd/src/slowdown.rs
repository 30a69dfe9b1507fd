//! An OSD that is slower by a known part: a test of the instrument, which must find it. Nothing else may set the variable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::bail;
use carmine_daemon::signals;
use carmine_reactor::{Group, Shard};
use rustix::time::{ClockId, clock_gettime};

/// Variable of the OSD's environment (`carmine up --osd-env`): percent by which every reactor is slower.
pub(super) const VARIABLE: &str = "CARMINE_TEST_SLOWDOWN_PERCENT";
/// How often the reactor is held up: short against a window, long against an operation.
const EVERY: Duration = Duration::from_millis(1);

/// The part of 1 that [`VARIABLE`] asks for, `None` if it is not set.
///
/// # Errors
/// A value that is not a number from 0 to 90.
pub(super) fn asked() -> anyhow::Result<Option<f64>> {
    std::env::var_os(VARIABLE).map(|text| parse(&text.to_string_lossy())).transpose()
}

fn parse(text: &str) -> anyhow::Result<f64> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent / 100.0),
        _ => bail!("{VARIABLE}={text}: give a percentage from 0 to 90"),
    }
}

/// Holds the reactor up for so long that it does `part` less per busy second: for each nanosecond of CPU time with work it
/// spins for `part ÷ (1 − part)` more. All in CPU time of this thread, so that others on its CPU change nothing. Each SIGUSR1
/// ends the slowdown or begins it again: two processes differ by more than a few percent, but one process at two times does not.
///
/// # Errors
/// The signal can't be caught.
pub(super) fn start(shard: &Shard, part: f64) -> anyhow::Result<()> {
    let switched = signals::usr1_flag()?;
    tracing::warn!("{VARIABLE}: this OSD is made slower by {:.1} %, its figures are a test", part * 100.0);
    let own = shard.clone();
    // Among the clients: in another group the reactor would make it wait for as long as it spins.
    shard.spawn(Group::Client, "slowdown", async move {
        let mut before = worked(&own);
        let mut is_on = true;
        loop {
            own.sleep(EVERY).await;
            is_on ^= switched.swap(false, Ordering::Relaxed);
            if is_on {
                let work = worked(&own).saturating_sub(before);
                spin(work.mul_f64(part / (1.0 - part)));
            }
            before = worked(&own);
        }
    });
    Ok(())
}

/// CPU time of this reactor's thread, less what it spent looking for work.
fn worked(shard: &Shard) -> Duration {
    cpu_time().saturating_sub(Duration::from_nanos(shard.stats().spin_ns))
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn spin(time: Duration) {
    let start = cpu_time();
    while cpu_time().saturating_sub(start) < time {
        std::hint::spin_loop();
    }
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
