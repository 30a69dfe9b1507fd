//! Faults of real monitors and of the manager: each is killed, and started again a while later.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use carmine_testbed::Daemon;

use super::Faults;
use crate::pauses::Meant;

/// Milliseconds that a monitor stays dead: where there are others, also for so long that they elect a leader without it.
const ALONE_DEAD_MS: Range<u64> = 1_000..5_000;
const MON_DEAD_MS: Range<u64> = 1_000..20_000;
/// The same of the manager.
const MGR_DEAD_MS: Range<u64> = 1_000..10_000;

/// A monitor or the manager, as the faults have left it.
pub(super) struct Other {
    pub(super) daemon: Daemon,
    /// It is dead, and is started then.
    pub(super) dead_until: Option<Instant>,
}

impl Other {
    pub(super) fn new(daemon: Daemon) -> Other {
        Other { daemon, dead_until: None }
    }
}

impl Faults {
    /// True if the monitors that live can answer.
    pub(super) fn have_quorum(&self) -> bool {
        let alive = self.others.iter().filter(|it| it.dead_until.is_none()).map(|it| it.daemon);
        self.bed.plan().have_quorum(&alive.collect::<Vec<_>>())
    }

    /// True if all monitors live, and the manager.
    pub(super) fn all_serve(&self) -> bool {
        self.others.iter().all(|it| it.dead_until.is_none())
    }

    /// Kills a monitor while all live: at first the leader, later it or another one. While none leads, all live on.
    pub(super) fn kill_mon(&mut self) -> Result<()> {
        let Some(leader) = self.bed.leader() else { return Ok(()) };
        let mons: Vec<usize> =
            (0..self.others.len()).filter(|at| self.others[*at].daemon.as_mon().is_some()).collect();
        let of_leader = mons.iter().copied().find(|at| self.others[*at].daemon == leader);
        let is_any = self.has_killed_leader && self.rng.bool();
        let at = if is_any { self.rng.choice(&mons).copied() } else { of_leader };
        let Some(at) = at else { return Ok(()) };
        let (kind, what) = if Some(at) == of_leader { ("mon, leader", ", the leader") } else { ("mon", "") };
        self.has_killed_leader |= Some(at) == of_leader;
        let dead_ms = if mons.len() == 1 { ALONE_DEAD_MS } else { MON_DEAD_MS };
        self.kill_other(at, kind, what, dead_ms)
    }

    pub(super) fn kill_mgr(&mut self) -> Result<()> {
        let mgr = self.others.iter().position(|it| it.daemon == Daemon::Mgr);
        mgr.map_or(Ok(()), |at| self.kill_other(at, "mgr", "", MGR_DEAD_MS))
    }

    fn kill_other(&mut self, at: usize, kind: &'static str, what: &str, dead_ms: Range<u64>) -> Result<()> {
        let daemon = self.others[at].daemon;
        // Without a leader it is found out later that an OSD is dead.
        let meant = Meant { is_loss: daemon != Daemon::Mgr, ..Meant::default() };
        self.strike(kind, format!("kill -9 of {daemon}{what}"), meant);
        self.others[at].dead_until = Some(self.after(dead_ms));
        Ok(self.bed.kill_daemon(daemon)?)
    }

    /// Starts the monitors and the manager whose time is over at `now`.
    pub(super) fn start_others(&mut self, now: Instant) -> Result<()> {
        for at in 0..self.others.len() {
            let Other { daemon, dead_until } = self.others[at];
            if dead_until.is_some_and(|until| until <= now) {
                self.strike("start", format!("{daemon} is started"), Meant::default());
                self.bed.launch_ceph(daemon)?;
                self.others[at].dead_until = None;
            }
        }
        Ok(())
    }
}
