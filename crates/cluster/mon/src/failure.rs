//! Failure reports: OSDs report that another OSD does not answer, and this module decides when the reports suffice to
//! mark it down (Ceph's "Configuring Monitor/OSD Interaction").

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carmine_crush::classes;
use carmine_types::OsdId;
use carmine_wire::EntityAddrVec;
use carmine_wire::osdmap::OsdMap;

/// The type of buckets that are hosts.
const HOST: u16 = 1;

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
    /// fewer. Where there are several hosts, all OSDs of one count as one (Ceph's mon_osd_reporter_subtree_level): a host that is cut off
    /// finds everybody else silent.
    pub(crate) fn failed(
        &self,
        map: &OsdMap,
        now_ns: u64,
        grace: Duration,
        reporters_min: usize,
    ) -> Vec<(OsdId, EntityAddrVec)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let voices = Voices::new(map);
        let needed = reporters_min.min(voices.count(map.osds()).saturating_sub(1)).max(1);
        let is_over = |since_ns: u64| now_ns.saturating_sub(since_ns) >= grace.as_nanos() as u64;
        let failed = self.0.iter().filter(|(_, reports)| {
            let over = reports.iter().filter(|(_, since_ns)| is_over(**since_ns));
            voices.count(over.map(|(reporter, _)| *reporter)) >= needed
        });
        failed.filter_map(|(osd, _)| Some((*osd, map.client_addr(*osd)?.clone()))).collect()
    }
}

/// For whom the OSDs that are up speak: their hosts, or, if all are on one host, themselves.
struct Voices(BTreeMap<OsdId, i32>);

impl Voices {
    fn new(map: &OsdMap) -> Self {
        let shadows = classes::shadows(&map.crush);
        let hosts = map.crush.buckets.iter().flatten().filter(|bucket| bucket.kind_id == HOST);
        let hosts = hosts.filter(|bucket| !shadows.contains(&bucket.id));
        let hosts: BTreeMap<i32, i32> =
            hosts.flat_map(|host| host.items.iter().map(|item| (*item, host.id))).collect();
        let up = || map.osds().filter(|osd| map.is_up(*osd)).map(|osd| (osd, osd.0 as i32));
        let by_host = up().map(|(osd, item)| (osd, hosts.get(&item).copied().unwrap_or(item)));
        let by_host: BTreeMap<OsdId, i32> = by_host.collect();
        let is_one = by_host.values().all(|host| Some(host) == by_host.values().next());
        Self(if is_one { up().collect() } else { by_host })
    }

    fn count(&self, osds: impl Iterator<Item = OsdId>) -> usize {
        osds.filter_map(|osd| self.0.get(&osd)).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use carmine_crush::tree::Location;

    use super::*;
    use crate::change::tree::Placing;
    use crate::change::{Change, TreeEdit};
    use crate::testing::{addrs_of, apply, cluster, up};

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
    fn the_osds_of_a_host_have_one_voice() {
        let mut map = cluster(6);
        (0..6).for_each(|osd| up(&mut map, osd, 1));
        let mut failures = Failures::default();
        [3, 4, 5].into_iter().for_each(|reporter| failures.report(OsdId(0), OsdId(reporter), 0));
        assert_eq!(failed(&failures, &map, 100), [0], "all are on one host");
        let host = |name: &str, osds: std::ops::Range<u32>| -> Vec<Change> {
            let at = Location::from([("host".into(), name.into()), ("root".into(), "default".into())]);
            let place =
                |osd| TreeEdit::Place { osd: OsdId(osd), weight: 0x10000, at: at.clone(), how: Placing::Set };
            osds.map(|osd| Change::Tree(place(osd))).collect()
        };
        let changes = [host("a", 0..2), host("b", 2..3), host("c", 3..6)].concat();
        changes.into_iter().for_each(|change| assert!(apply(&mut map, change)));
        assert_eq!(failed(&failures, &map, 100), [0; 0], "a host that is cut off");
        failures.report(OsdId(0), OsdId(2), 0);
        assert_eq!(failed(&failures, &map, 100), [0]);
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
