//! The meaning of curves that level off: of several arms of one study, published ones too, of which no window is known.

use super::Limiter;

/// A part of its CPUs that is used, from which OSDs or clients are at their limit.
const SATURATED: f64 = 0.90;
/// OSDs that use less than this part of their CPUs where the curve is level have most of them idle.
const IDLE: f64 = 0.50;
/// Levels within this part of each other are the same.
const SAME: f64 = 0.10;
/// Points at the end of a curve that make a level.
const LEVEL_POINTS: usize = 3;

/// Stands below the decision table.
pub(super) const PAGE: &str = "\n## Curves that level off\n\
    IOPS against depth level off at the limit of something. Where the OSDs use less than 50 % of their CPUs at the level, they are \
    not what levels. If that holds for two or more arms, such as a store in memory and one on a disk, and their levels are within \
    10 %, the cause lies outside of the OSDs and is common to the arms. The suspect is the client if it uses a larger part of its \
    CPUs than the OSDs of theirs (a thread of it can be saturated while others are idle), else NET.\n";

/// One arm at the level of its curve. CPUs are counted as `top` does, divided by 100 %: 860 % are 8.6.
#[derive(Clone, Debug)]
pub struct LevelCurve {
    pub arm: String,
    /// Of the level.
    pub iops: f64,
    pub osd_cpus_used: f64,
    /// That the OSDs were given.
    pub osd_cpus: f64,
    pub client_cpus_used: f64,
    pub client_cpus: f64,
}

/// The suspicion that levelled curves raise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// CLIENT or NET: never the OSDs, which had CPUs left.
    pub suspect: Limiter,
    /// Sentences for people.
    pub reason: String,
    pub next: &'static str,
}

/// The level at which a curve of IOPS, in order of rising load, ends: the mean of its last points within 10 % of the most.
/// `None` if those are less than three: it still rises, or has fallen.
pub fn level(iops: &[f64]) -> Option<f64> {
    let most = iops.iter().copied().fold(0.0, f64::max);
    let flat: Vec<f64> = iops.iter().rev().copied().take_while(|n| *n >= (1.0 - SAME) * most).collect();
    (flat.len() >= LEVEL_POINTS).then(|| flat.iter().sum::<f64>() / flat.len() as f64)
}

/// Looks for a limit outside of the OSDs in curves that level off, one of each arm. `None` if the OSDs of an arm may be the
/// limit, or the arms level at rates of their own.
pub fn curves(levels: &[LevelCurve]) -> Option<Suspicion> {
    let part = |used: f64, of: f64| if of > 0.0 { used / of } else { f64::NAN };
    let osds = |c: &LevelCurve| part(c.osd_cpus_used, c.osd_cpus);
    let clients = |c: &LevelCurve| part(c.client_cpus_used, c.client_cpus);
    let most = levels.iter().map(|c| c.iops).fold(0.0, f64::max);
    let together = levels.len() >= 2 && levels.iter().all(|c| c.iops >= (1.0 - SAME) * most);
    // A client at its limit needs no second arm as a witness.
    let full = levels.iter().all(|c| clients(c) >= SATURATED);
    if levels.is_empty() || !(together || full) || !levels.iter().all(|c| osds(c) < IDLE) {
        return None;
    }
    let suspect = if levels.iter().all(|c| clients(c) > osds(c)) { Limiter::Client } else { Limiter::Net };
    let each = levels.iter().map(|c| {
        format!(
            "{} levels off at {:.0} IOPS, while its OSDs use {:.1} of {:.0} CPUs and its clients {:.1} of {:.0}",
            c.arm, c.iops, c.osd_cpus_used, c.osd_cpus, c.client_cpus_used, c.client_cpus
        )
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let common = if together { ", and what it was is common to these arms" } else { "" };
    let (who, next) = match suspect {
        Limiter::Client => (
            "the client, which uses the larger part of its CPUs",
            "repeat one point with twice the client CPUs, jobs and processes: if IOPS rise, the curves measured the client",
        ),
        _ => ("the network", "compare with `carmine baseline`, which measures the messenger without an OSD"),
    };
    let reason = format!("{each}. The OSDs were not the limit{common}. The suspect is {who}.");
    Some(Suspicion { suspect, reason, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random reads of study 2: IOPS of the level, CPU of the OSDs (of 4,000 %) and of the clients (of 800 %).
    fn published(arm: &str, iops: f64) -> LevelCurve {
        LevelCurve {
            arm: arm.into(),
            iops,
            osd_cpus_used: 8.6,
            osd_cpus: 40.0,
            client_cpus_used: 4.9,
            client_cpus: 8.0,
        }
    }

    #[test]
    fn the_published_curves_measured_the_client() {
        let found = curves(&[published("memory", 190_000.0), published("disk", 180_000.0)]).unwrap();
        assert_eq!(found.suspect, Limiter::Client);
        for part in [
            "memory levels off at 190000 IOPS",
            "disk levels off at 180000 IOPS",
            "8.6 of 40 CPUs",
            "4.9 of 8",
            "The OSDs were not the limit",
            "the client",
        ] {
            assert!(found.reason.contains(part), "no {part:?} in: {}", found.reason);
        }
        assert!(found.next.contains("client CPUs"));
    }

    #[test]
    fn busy_osds_and_levels_of_their_own_are_no_suspicion() {
        let busy = LevelCurve { osd_cpus_used: 36.0, ..published("disk", 180_000.0) };
        assert_eq!(curves(&[published("memory", 190_000.0), busy]), None);
        assert_eq!(curves(&[published("memory", 190_000.0), published("disk", 120_000.0)]), None);
        assert_eq!(curves(&[published("memory", 190_000.0)]), None, "one arm is no common cause");
        let unknown = LevelCurve { osd_cpus: 0.0, ..published("disk", 180_000.0) };
        assert_eq!(curves(&[published("memory", 190_000.0), unknown]), None, "nothing is known of its CPUs");
        assert_eq!(curves(&[]), None);
    }

    #[test]
    fn a_full_client_is_the_suspect_of_one_arm_and_an_idle_one_never() {
        let full = LevelCurve { client_cpus_used: 7.6, ..published("memory", 190_000.0) };
        assert_eq!(curves(&[full]).map(|s| s.suspect), Some(Limiter::Client));
        let idle = |arm| LevelCurve { client_cpus_used: 0.8, ..published(arm, 190_000.0) };
        assert_eq!(curves(&[idle("memory"), idle("disk")]).map(|s| s.suspect), Some(Limiter::Net));
    }

    #[test]
    fn levels_of_curves() {
        let near = |found: Option<f64>, want: f64| (found.unwrap() / want - 1.0).abs() < 0.01;
        assert!(near(level(&[20e3, 90e3, 170e3, 182e3, 188e3, 186e3]), 181.5e3));
        assert_eq!(level(&[20e3, 40e3, 80e3, 160e3]), None, "it still rises");
        assert_eq!(level(&[20e3, 180e3, 190e3, 100e3]), None, "it falls");
        assert_eq!(level(&[]), None);
    }
}
