//! Whether OSDs may stop or go for good: what becomes of the PGs that they serve.

use std::collections::BTreeSet;

use carmine_crush::Mapping;
use carmine_types::{Errno, OsdId, PgId, errno};
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, is_formatted, osds_of, pretty, read, said};
use crate::change::{Refusal, refuse};
use crate::report::pg;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read(
        "osd ok-to-stop ids:CephString+ max:CephInt?",
        "say whether all PGs still serve clients without these OSDs (other OSDs are not looked for, whatever max says)",
        ok_to_stop,
    ),
    read(
        "osd safe-to-destroy ids:CephString+",
        "say whether no data is lost, or has fewer copies, without these OSDs",
        safe_to_destroy,
    ),
];

/// The OSDs of a command; as in Ceph, one that does not exist may go.
fn asked(command: &Value, view: &View<'_>) -> Result<BTreeSet<OsdId>, Refusal> {
    Ok(osds_of(command, view.map)?.into_iter().collect())
}

fn numbers(osds: &BTreeSet<OsdId>) -> Vec<u32> {
    osds.iter().map(|osd| osd.0).collect()
}

/// `0,1,2`, as Ceph's sentences have it.
fn words(osds: &BTreeSet<OsdId>) -> String {
    osds.iter().map(|osd| osd.0.to_string()).collect::<Vec<_>>().join(",")
}

/// The PGs that some OSDs serve, by the effect of stopping these OSDs.
#[derive(Default)]
struct Stop {
    /// They go on.
    ok: Vec<PgId>,
    /// Of those that go on: they have as many copies as they should, and then fewer.
    degraded: Vec<PgId>,
    /// Of those that go on: they have too few copies already.
    more_degraded: Vec<PgId>,
    inactive: Vec<PgId>,
    become_inactive: Vec<PgId>,
    unknown: Vec<PgId>,
}

impl Stop {
    fn predict(view: &View<'_>, osds: &BTreeSet<OsdId>) -> Stop {
        let mut stop = Stop::default();
        for (pgid, mapping) in view.placement.pgs() {
            let Some(pool) = view.map.pool(pgid.pool) else { continue };
            let serving = mapping.acting_osds().count();
            let left = mapping.acting_osds().filter(|osd| !osds.contains(osd)).count();
            if left == serving {
                continue;
            }
            let state = pg::state(view, pgid, mapping);
            if state == "unknown" {
                stop.unknown.push(pgid);
            } else if !state.starts_with("active") {
                stop.inactive.push(pgid);
            } else if left < usize::from(pool.min_size) {
                stop.become_inactive.push(pgid);
            } else {
                let is_whole = serving >= usize::from(pool.size);
                stop.ok.push(pgid);
                (if is_whole { &mut stop.degraded } else { &mut stop.more_degraded }).push(pgid);
            }
        }
        stop
    }

    fn not_ok(&self) -> usize {
        self.inactive.len() + self.become_inactive.len()
    }

    fn json(&self, osds: &BTreeSet<OsdId>, is_ok: bool) -> Value {
        let mut out = json!({
            "ok_to_stop": is_ok, "osds": numbers(osds), "num_ok_pgs": self.ok.len(), "num_not_ok_pgs": self.not_ok(),
        });
        let lists = [
            ("bad_already_inactive", &self.inactive),
            ("bad_become_inactive", &self.become_inactive),
            ("ok_become_degraded", &self.degraded),
            ("ok_become_more_degraded", &self.more_degraded),
        ];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            out[name] = list.iter().map(PgId::to_string).collect();
        }
        out
    }
}

fn ok_to_stop(command: &Value, view: &View<'_>) -> Outcome {
    let osds = asked(command, view)?;
    let stop = Stop::predict(view, &osds);
    if !stop.unknown.is_empty() {
        let text = format!("{} pgs have unknown state; cannot draw any conclusions", stop.unknown.len());
        return Err(refuse(errno::EAGAIN, text));
    }
    let is_ok = stop.not_ok() == 0;
    // In one line whatever the format asked for, as in Ceph.
    let data = format!("{}\n", stop.json(&osds, is_ok)).into_bytes();
    if is_ok {
        return done(data);
    }
    let count = stop.not_ok();
    let text = format!("unsafe to stop osd(s) at this time ({count} PGs are or would become offline)");
    Ok(Answer::Not { code: Errno(errno::EBUSY), status: text, data })
}

/// An OSD is safe to go if it serves no PG, and no PG has fewer copies than it should have: such a PG may want what it has.
fn safe_to_destroy(command: &Value, view: &View<'_>) -> Outcome {
    let osds = asked(command, view)?;
    let serves =
        |osd: OsdId| view.placement.pgs().any(|(_, mapping)| mapping.acting_osds().any(|o| o == osd));
    let (active, idle): (BTreeSet<OsdId>, BTreeSet<OsdId>) = osds.into_iter().partition(|osd| serves(*osd));
    let is_whole = pg::states(view).iter().all(|(_, state)| state.starts_with("active+clean"));
    let (stored, safe) = if is_whole { (BTreeSet::new(), idle) } else { (idle, BTreeSet::new()) };
    let lists = json!({
        "safe_to_destroy": numbers(&safe), "active": numbers(&active), "missing_stats": [],
        "stored_pgs": numbers(&stored),
    });
    // With a format asked for the lists are the answer, also of those that must stay.
    if is_formatted(command) {
        return done(pretty(command, &lists));
    }
    if !active.is_empty() {
        let mapped = |mapping: &Mapping| mapping.acting_osds().any(|osd| active.contains(&osd));
        let count = view.placement.pgs().filter(|(_, mapping)| mapped(mapping)).count();
        let text = format!("OSD(s) {} have {count} pgs currently mapped to them. ", words(&active));
        return Err(refuse(errno::EBUSY, text));
    }
    if !stored.is_empty() {
        let text =
            format!("OSD(s) {} may have data that PGs want: not all PGs are active+clean", words(&stored));
        return Err(refuse(errno::EBUSY, text));
    }
    said(format!("OSD(s) {} are safe to destroy without reducing data durability.", words(&safe)))
}
