//! A load that the generators of several hosts make together: the jobs that each has, what each did, and whether their clocks agree
//! well enough for that.

use std::ops::Range;

use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::report::Report;
use crate::result::{JobResult, SAMPLE_NS};
use crate::window::GeneratorWindow;

/// Hosts of one load, at most.
pub const HOSTS_MAX: usize = 64;
/// A host whose window may lie this part of it beside the others' …
const SKEW_MAX: f64 = 0.01;
/// … or this long, which is a tenth of a sample of the time series, makes the sums of all hosts uncertain.
const SKEW_MAX_NS: u64 = SAMPLE_NS / 10;
/// No honest count or time of a window is larger. The sums of [`HOSTS_MAX`] hosts do not overflow.
const COUNT_MAX: u64 = 1 << 56;

/// The jobs of each host, in order. Jobs have objects of their own, so no object is written by two hosts; and a job does the same
/// operations wherever it runs. Hosts beyond the number of jobs have none.
pub fn shares(numjobs: u32, hosts: usize) -> Vec<Range<u32>> {
    let (jobs, hosts) = (u64::from(numjobs), hosts as u64);
    let bound = |host: u64| (jobs * host / hosts) as u32;
    (0..hosts).map(|host| bound(host)..bound(host + 1)).collect()
}

/// A question of the controller to a host and the answer; nanoseconds since 1970 by the clock of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    pub asked_ns: u64,
    pub received_ns: u64,
    pub answered_ns: u64,
    pub back_ns: u64,
}

/// A host's clock beside the controller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Nanoseconds that it is ahead of it.
    pub offset_ns: i64,
    /// The offset is known within this: half of the time that question and answer were under way.
    pub error_ns: u64,
}

impl Clock {
    /// From the quickest of some round trips, as NTP does; `None` without any.
    pub fn of(trips: &[RoundTrip]) -> Option<Clock> {
        let clocks = trips.iter().map(|trip| {
            let there = i128::from(trip.received_ns) - i128::from(trip.asked_ns);
            let back = i128::from(trip.answered_ns) - i128::from(trip.back_ns);
            // The host's own time is not under way.
            let under_way = (there - back).max(0);
            let narrow = |ns: i128| ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            Clock { offset_ns: narrow((there + back) / 2), error_ns: narrow(under_way / 2) as u64 }
        });
        clocks.min_by_key(|clock| clock.error_ns)
    }

    /// What this clock shows when the controller's shows `ns`.
    pub fn at(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.offset_ns)
    }

    /// How much more it has moved than the errors of both readings explain.
    fn moved_ns(&self, later: &Clock) -> u64 {
        let moved = self.offset_ns.abs_diff(later.offset_ns);
        moved.saturating_sub(self.error_ns.saturating_add(later.error_ns))
    }
}

/// One host of a load, as it stands in the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadHost {
    /// Its address, as it was given.
    pub host: String,
    /// CPUs of its generator.
    pub cpus: u32,
    pub jobs: u32,
    pub ops: u64,
    pub bytes: u64,
    /// Of the window that all have in common: those of all hosts add up.
    pub iops: f64,
    /// Part of the window that its hottest generator thread was busy or without a CPU; `None` without a window.
    pub client_busy: Option<f64>,
    /// CPU of its process in cores.
    pub client_cores_used: f64,
    pub generator: GeneratorWindow,
    /// Length of its window by its own clock that is never set.
    pub window_seconds: f64,
    /// The window began this long after the common time, by its own clock.
    pub late_ns: u64,
    /// Its clock just before the window, and after it.
    pub clock: Clock,
    pub clock_after: Clock,
}

impl LoadHost {
    /// How far its window may lie beside those of the others.
    pub fn skew_ns(&self) -> u64 {
        let error_ns = self.clock.error_ns.saturating_add(self.clock.moved_ns(&self.clock_after));
        error_ns.saturating_add(self.late_ns)
    }

    /// Says what is wrong with its clock for a window of this length; `planned_s` is `None` for a load that ends by itself.
    fn clocks(&self, window_s: f64, planned_s: Option<f64>) -> Option<String> {
        let (skew_ns, ms) = (self.skew_ns(), |ns: f64| format!("{:.1} ms", ns / 1e6));
        let moved_ns = self.clock.moved_ns(&self.clock_after);
        let is_apart = skew_ns > SKEW_MAX_NS || skew_ns as f64 > SKEW_MAX * window_s * 1e9;
        let length = planned_s.filter(|planned_s| (self.window_seconds / planned_s - 1.0).abs() > SKEW_MAX);
        let why = match length {
            _ if is_apart && moved_ns > 0 => {
                let moved = (self.clock_after.offset_ns as f64 - self.clock.offset_ns as f64).abs();
                format!("changed by {} during the load", ms(moved))
            }
            _ if is_apart => {
                let (error, late) = (ms(self.clock.error_ns as f64), ms(self.late_ns as f64));
                format!("is known within {error} only, and its window began {late} late")
            }
            Some(planned_s) => {
                let seconds = self.window_seconds;
                return Some(format!(
                    "CLOCKS: the window of load host {} lasted {seconds:.2} s of {planned_s:.2} s",
                    self.host
                ));
            }
            None => return None,
        };
        let skew = ms(skew_ns as f64);
        Some(format!("CLOCKS: the clock of load host {} {why}: its window may lie {skew} apart", self.host))
    }

    /// A line of the table.
    pub fn line(&self) -> String {
        let (clock, ms) = (&self.clock, |ns: f64| ns / 1e6);
        format!(
            "host      {}: {:.0} IOPS of {}; hottest thread busy {:.0} %, cores {:.2} of {}; clock {:+.3} ms (within {:.3} ms)",
            self.host,
            self.iops,
            counted(self.jobs as usize, "job"),
            self.client_busy.unwrap_or(0.0) * 100.0,
            self.client_cores_used,
            self.cpus,
            ms(clock.offset_ns as f64),
            ms(clock.error_ns as f64),
        )
    }
}

/// The host whose hottest generator thread had the least time left.
pub(crate) fn hottest(hosts: &[LoadHost]) -> Option<&LoadHost> {
    hosts.iter().max_by(|a, b| a.client_busy.unwrap_or(0.0).total_cmp(&b.client_busy.unwrap_or(0.0)))
}

/// Remarks on hosts for a window of this length; `planned_s` as in [`LoadHost::clocks`].
pub(crate) fn marks(hosts: &[LoadHost], window_s: f64, planned_s: Option<f64>) -> Vec<String> {
    let crowded = hosts.iter().filter(|host| host.jobs > host.cpus).map(|host| {
        let (jobs, cpus) = (host.jobs as usize, host.cpus as usize);
        let (jobs, cpus) = (counted(jobs, "job"), counted(cpus, "CPU"));
        format!("{jobs} share {cpus} of load host {}", host.host)
    });
    hosts.iter().filter_map(|host| host.clocks(window_s, planned_s)).chain(crowded).collect()
}

impl Report {
    /// The generator's work: of all hosts together if there are any.
    pub(crate) fn generator(&self) -> GeneratorWindow {
        let add = |all: GeneratorWindow, host: &LoadHost| GeneratorWindow {
            user_ns: all.user_ns + host.generator.user_ns,
            system_ns: all.system_ns + host.generator.system_ns,
            switches: all.switches + host.generator.switches,
            throttled_ns: all.throttled_ns.max(host.generator.throttled_ns),
        };
        match self.load_hosts.as_slice() {
            [] => self.machine.generator,
            hosts => hosts.iter().fold(GeneratorWindow::default(), add),
        }
    }
}

/// Fails if a result that came over a network has counts that no load can have.
///
/// # Errors
/// In words.
pub fn check_result(result: &JobResult, generator: &GeneratorWindow) -> Result<(), String> {
    let directions = [&result.read, &result.write];
    let counts =
        directions.iter().flat_map(|dir| [dir.ops, dir.bytes].into_iter().chain(dir.samples.clone()));
    let others = [
        result.errors,
        result.abandoned,
        result.verify.checked,
        result.verify.mismatches,
        result.behind_ns,
        result.longest_pause_ns,
        result.client.wall_ns,
        result.client.busy_ns,
        result.client.wait_ns,
        generator.user_ns,
        generator.system_ns,
        generator.switches,
        generator.throttled_ns.unwrap_or(0),
    ];
    match counts.chain(others).find(|count| *count > COUNT_MAX) {
        Some(count) => Err(format!("its result has the count {count}, which no load has")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Geometry;
    use crate::spec::LoadSpec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_job_has_one_host_and_shares_are_even(jobs in 1u32..1025, hosts in 1usize..65) {
            let shares = shares(jobs, hosts);
            let all: Vec<u32> = shares.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..jobs).collect::<Vec<_>>());
            let sizes = shares.iter().map(ExactSizeIterator::len);
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }

        #[test]
        fn any_times_are_a_clock(asked_ns: u64, received_ns: u64, answered_ns: u64, back_ns: u64, at: u64) {
            let trip = RoundTrip { asked_ns, received_ns, answered_ns, back_ns };
            let clock = Clock::of(&[trip, trip]).unwrap();
            let host = LoadHost { clock, late_ns: at, ..LoadHost::default() };
            prop_assert!(host.skew_ns() >= at && (clock.at(at) >= at) == (clock.offset_ns >= 0 || clock.at(at) == at));
        }
    }

    /// No two hosts write the same object, and together they have all of them.
    #[test]
    fn hosts_have_objects_of_their_own() {
        let spec = LoadSpec { numjobs: 5, size_bytes: 64 << 22, ..LoadSpec::default() };
        let of = |jobs: Range<u32>| jobs.flat_map(|job| Geometry::dealt(&spec, job).objects);
        let mut all: Vec<u32> = shares(5, 3).into_iter().flat_map(of).collect();
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn the_quickest_round_trip_says_the_most() {
        assert_eq!(Clock::of(&[]), None);
        // 5,000 ns ahead; 100 ns there, 300 back; it thought for 50.
        let quick = RoundTrip { asked_ns: 1_000, received_ns: 6_100, answered_ns: 6_150, back_ns: 1_450 };
        let slow = RoundTrip { back_ns: 91_450, ..quick };
        let clock = Clock::of(&[slow, quick]).unwrap();
        assert_eq!(clock, Clock { offset_ns: 4_900, error_ns: 200 });
        assert!(clock.offset_ns.abs_diff(5_000) <= clock.error_ns);
        assert_eq!((clock.at(10_000), Clock { offset_ns: -7, error_ns: 0 }.at(3)), (14_900, 0));
    }

    fn host(clock: Clock, clock_after: Clock, late_ns: u64) -> LoadHost {
        LoadHost {
            host: "b:7".into(),
            clock,
            clock_after,
            late_ns,
            window_seconds: 10.0,
            ..LoadHost::default()
        }
    }

    #[test]
    fn only_what_matters_to_the_window_is_marked() {
        let clock = |offset_ms: i64, error_ns| Clock { offset_ns: offset_ms * 1_000_000, error_ns };
        let marks = |host: &LoadHost, s| marks(std::slice::from_ref(host), s, Some(10.0));
        // A clock that is wrong by the same all the time is taken into account.
        let steady = host(clock(9_000, 90_000), clock(9_000, 90_000), 100_000);
        assert!(marks(&steady, 10.0).is_empty(), "{:?}", marks(&steady, 10.0));
        for (host, part) in [
            (host(clock(0, 1_000), clock(-60, 1_000), 0), "b:7 changed by 60.0 ms"),
            (host(clock(0, 60_000_000), clock(0, 1_000), 0), "known within 60.0 ms only"),
            (host(clock(0, 1_000), clock(0, 1_000), 70_000_000), "began 70.0 ms late"),
            (LoadHost { window_seconds: 9.5, ..steady.clone() }, "lasted 9.50 s of 10.00 s"),
        ] {
            let marks = marks(&host, 10.0);
            assert!(marks.len() == 1 && marks[0].starts_with("CLOCKS: "), "{marks:?}");
            assert!(marks[0].contains(part), "{part}: {marks:?}");
        }
        let small = host(clock(0, 1_000), clock(20, 1_000), 0);
        assert!(marks(&small, 10.0).is_empty() && marks(&small, 1.0).len() == 1);
    }

    #[test]
    fn counts_that_no_load_has_are_refused() {
        let mut result = JobResult::default();
        assert_eq!(check_result(&result, &GeneratorWindow::default()), Ok(()));
        result.write.samples = vec![1, u64::MAX];
        assert!(check_result(&result, &GeneratorWindow::default()).unwrap_err().contains("no load has"));
    }
}
