//! Waiting for daemons and PGs, through their admin sockets: no manager and no client is needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carmine_testbed::{Daemon, Daemons, Event, Layout, Result, TestbedError};
use carmine_types::OsdId;
use serde_json::{Value, json};

use crate::admin;
use crate::make::POOL_ID;
use crate::plan::PeerPlan;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A start that waits.
pub(crate) struct Waiting<'a, 'b> {
    pub(crate) layout: &'a Layout,
    pub(crate) daemons: &'a mut Daemons,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) events: &'a mut (dyn FnMut(Event) + 'b),
    pub(crate) end: Instant,
}

impl Waiting<'_, '_> {
    /// Waits until `missing` says that nothing is missing; a daemon that ends, the limit and Ctrl-C end it with an error.
    fn until(&mut self, daemon: Daemon, mut missing: impl FnMut(&Layout) -> Option<String>) -> Result<()> {
        loop {
            let Some(what) = missing(self.layout) else { return Ok(()) };
            self.daemons.check()?;
            if self.cancel.load(Ordering::Relaxed) {
                return Err(TestbedError::Failed("interrupted".into()));
            }
            if Instant::now() > self.end {
                return Err(self
                    .daemons
                    .stuck(daemon, &format!("is not ready in time: still waiting for {what}")));
            }
            (self.events)(Event::Waiting(what));
            std::thread::sleep(PAUSE);
        }
    }

    /// The monitor has formed its quorum of one.
    pub(crate) fn mon(&mut self) -> Result<()> {
        self.until(Daemon::Mon, |layout| (!mon_leads(layout)).then(|| "the monitor".into()))
    }

    /// Every OSD has booted into the map.
    pub(crate) fn osds(&mut self, osds: u32) -> Result<()> {
        for id in (0..osds).map(OsdId) {
            let daemon = Daemon::Osd(id);
            self.until(daemon, |layout| (!is_active(layout, id)).then(|| format!("{daemon} to be up")))?;
        }
        Ok(())
    }

    /// Every PG is active and clean.
    pub(crate) fn pgs(&mut self, plan: &PeerPlan) -> Result<()> {
        let mut left: Vec<u32> = (0..plan.pgs).collect();
        self.until(Daemon::Osd(OsdId(0)), |layout| {
            left.retain(|pg| !is_clean(layout, plan.osds(), *pg));
            (!left.is_empty()).then(|| format!("{} of {} PGs to be active+clean", left.len(), plan.pgs))
        })
    }
}

fn state(answer: Result<Value>) -> Option<String> {
    Some(answer.ok()?.get("state")?.as_str()?.to_owned())
}

/// True if the monitor leads.
pub(crate) fn mon_leads(layout: &Layout) -> bool {
    state(admin::ask(layout, Daemon::Mon, &json!({"prefix": "mon_status"}))).is_some_and(|s| s == "leader")
}

/// True if this OSD is up in its own map.
pub(crate) fn is_active(layout: &Layout, osd: OsdId) -> bool {
    state(admin::ask(layout, Daemon::Osd(osd), &json!({"prefix": "status"}))).is_some_and(|s| s == "active")
}

/// True if one of the OSDs, its primary, says that this PG is active and clean.
pub(crate) fn is_clean(layout: &Layout, osds: u32, pg: u32) -> bool {
    let question = json!({"prefix": "pg", "pgid": format!("{POOL_ID}.{pg:x}"), "cmd": "query"});
    (0..osds)
        .map(|id| state(admin::ask(layout, Daemon::Osd(OsdId(id)), &question)))
        .any(|state| state.is_some_and(|s| s == "active+clean"))
}
