//! Failure reports: OSDs report that another OSD does not answer, and this module decides when the reports suffice to
//! mark it down (Ceph's "Configuring Monitor/OSD Interaction").

use std::collections::BTreeMap;
use std::time::Duration;

use carmine_types::OsdId;
use carmine_wire::EntityAddrVec;
use carmine_wire::osdmap::OsdMap;

/// The reports in force: by the OSD that is meant, and by reporter the time from which on it did not answer.
#[derive(Default, Debug)]
pub(crate) struct Failures(BTreeMap<OsdId, BTreeMap<OsdId, u64>>);

impl Failures {
    /// A reporter says that an OSD has not answered since then, by the reactor's clock.
    pub(crate) fn report(&mut self, osd: OsdId, reporter: OsdId, since_ns: u64) {
        self.0.entry(osd).or_default().insert(reporter, since_ns);
    }

    /// It answers again.
    pub(crate) fn take_back(&mut self, osd: OsdId, reporter: OsdId) {
        if let Some(reports) = self.0.get_mut(&osd) {
            reports.remove(&reporter);
        }
    }

    /// A reporter is not heard any longer: it makes its reports anew when it comes back.
    pub(crate) fn forget_reporter(&mut self, reporter: OsdId) {
        self.0.values_mut().for_each(|reports| _ = reports.remove(&reporter));
    }

    /// In a new map: reports of those and about those that are down are settled.
    pub(crate) fn on_map(&mut self, map: &OsdMap) {
        self.0.retain(|osd, reports| {
            reports.retain(|reporter, _| map.is_up(*reporter));
            map.is_up(*osd) && !reports.is_empty()
        });
    }

    /// The OSDs that enough others have found silent for the grace: `reporters_min`, or all others that are up if these are
    /// fewer.
    pub(crate) fn failed(
        &self,
        map: &OsdMap,
        now_ns: u64,
        grace: Duration,
        reporters_min: usize,
    ) -> Vec<(OsdId, EntityAddrVec)> {
        let up = map.osds().filter(|osd| map.is_up(*osd)).count();
        let needed = reporters_min.min(up.saturating_sub(1)).max(1);
        let is_over = |since_ns: &&u64| now_ns.saturating_sub(**since_ns) >= grace.as_nanos() as u64;
        let failed = self.0.iter().filter(|(_, reports)| reports.values().filter(is_over).count() >= needed);
        failed.filter_map(|(osd, _)| Some((*osd, map.client_addr(*osd)?.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addrs_of, cluster, up};

    const SECOND: u64 = 1_000_000_000;
    const GRACE: Duration = Duration::from_secs(20);

    fn failed(failures: &Failures, map: &OsdMap, at_s: u64) -> Vec<u32> {
        failures.failed(map, at_s * SECOND, GRACE, 2).into_iter().map(|(osd, _)| osd.0).collect()
    }

    #[test]
    fn two_reporters_and_the_grace() {
        let mut map = cluster(3);
        (0..3).for_each(|osd| up(&mut map, osd, 1));
        let mut failures = Failures::default();
        failures.report(OsdId(2), OsdId(0), 10 * SECOND);
        assert_eq!(failed(&failures, &map, 100), [0; 0], "one reporter");
        failures.report(OsdId(2), OsdId(0), 10 * SECOND);
        assert_eq!(failed(&failures, &map, 100), [0; 0], "the same again");
        failures.report(OsdId(2), OsdId(1), 15 * SECOND);
        assert_eq!(failed(&failures, &map, 34), [0; 0], "within the grace");
        assert_eq!(failed(&failures, &map, 35), [2]);
        assert_eq!(failures.failed(&map, 35 * SECOND, GRACE, 2)[0].1, addrs_of(2, 1));
        failures.take_back(OsdId(2), OsdId(1));
        assert_eq!(failed(&failures, &map, 35), [0; 0]);
        failures.report(OsdId(2), OsdId(1), 15 * SECOND);
        failures.forget_reporter(OsdId(0));
        assert_eq!(failed(&failures, &map, 35), [0; 0]);
    }

    #[test]
    fn one_reporter_where_there_is_no_other() {
        let mut map = cluster(3);
        (0..2).for_each(|osd| up(&mut map, osd, 1));
        let mut failures = Failures::default();
        failures.report(OsdId(1), OsdId(0), 0);
        assert_eq!(failed(&failures, &map, 20), [1]);
        // A reporter that is down itself is not heard.
        failures.on_map(&cluster(3));
        assert_eq!(failed(&failures, &map, 20), [0; 0]);
    }
}
