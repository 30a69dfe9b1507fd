//! Faults of real monitors and of the manager: each is killed and started again a while later, or a monitor is cut off for a time.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use carmine_testbed::Daemon;
use carmine_types::MonKind;

use super::{Faults, ISOLATED_MS};
use crate::pauses::Meant;

/// Milliseconds that a monitor stays dead: where there are others, also for so long that they elect a leader without it.
const ALONE_DEAD_MS: Range<u64> = 1_000..5_000;
const MON_DEAD_MS: Range<u64> = 1_000..20_000;
/// The same of the manager.
const MGR_DEAD_MS: Range<u64> = 1_000..10_000;

/// How a monitor or the manager is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Dead,
    /// It runs, and reaches nobody.
    Isolated,
}

/// A monitor or the manager, as the faults have left it.
pub(super) struct Other {
    pub(super) daemon: Daemon,
    /// How it is lost, and until when.
    pub(super) lost: Option<(Loss, Instant)>,
}

impl Other {
    pub(super) fn new(daemon: Daemon) -> Other {
        Other { daemon, lost: None }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.lost.is_some_and(|(loss, _)| loss == Loss::Dead)
    }
}

impl Faults {
    /// True if the monitors that are not lost can answer.
    pub(super) fn have_quorum(&self) -> bool {
        let there = self.others.iter().filter(|it| it.lost.is_none()).map(|it| it.daemon);
        self.bed.plan().have_quorum(&there.collect::<Vec<_>>())
    }

    /// True if all monitors are there, and the manager.
    pub(super) fn all_serve(&self) -> bool {
        self.others.iter().all(|it| it.lost.is_none())
    }

    /// Kills a monitor.
    pub(super) fn kill_mon(&mut self) -> Result<()> {
        let Some((at, leads)) = self.draw_mon() else { return Ok(()) };
        let (kind, what) = if leads { ("mon, leader", ", the leader") } else { ("mon", "") };
        let dead_ms = if self.mons().count() == 1 { ALONE_DEAD_MS } else { MON_DEAD_MS };
        self.kill_other(at, kind, what, dead_ms)
    }

    /// True if a monitor can be cut off, and others serve meanwhile.
    pub(super) fn can_isolate_mon(&self) -> bool {
        self.bed.plan().mon == MonKind::Ceph && self.mons().count() > 1
    }

    /// Cuts a monitor off from all others.
    pub(super) fn isolate_mon(&mut self) -> Result<()> {
        let Some((at, leads)) = self.draw_mon() else { return Ok(()) };
        let (daemon, until) = (self.others[at].daemon, self.after(ISOLATED_MS));
        let seconds = until.duration_since(Instant::now()).as_secs_f64();
        let what = if leads { ", the leader," } else { "" };
        let meant = Meant { is_loss: true, ..Meant::default() };
        self.strike("partition, mon", format!("{daemon}{what} is cut off for {seconds:.1} s"), meant);
        self.others[at].lost = Some((Loss::Isolated, until));
        Ok(self.bed.set_link(daemon, false)?)
    }

    /// Places of the monitors in `others`.
    fn mons(&self) -> impl Iterator<Item = usize> {
        (0..self.others.len()).filter(|at| self.others[*at].daemon.as_mon().is_some())
    }

    /// Draws a monitor that is to be lost, and says whether it leads: at first it is the leader. None while there is no leader.
    fn draw_mon(&mut self) -> Option<(usize, bool)> {
        let leader = self.bed.leader()?;
        let of_leader = self.mons().find(|at| self.others[*at].daemon == leader)?;
        let mons: Vec<usize> = self.mons().collect();
        let is_any = self.has_lost_leader && self.rng.bool();
        let at = if is_any { self.rng.choice(&mons).copied()? } else { of_leader };
        self.has_lost_leader |= at == of_leader;
        Some((at, at == of_leader))
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
        self.others[at].lost = Some((Loss::Dead, self.after(dead_ms)));
        Ok(self.bed.kill_daemon(daemon)?)
    }

    /// Brings back the monitors and the manager whose time is over at `now`.
    pub(super) fn bring_back(&mut self, now: Instant) -> Result<()> {
        for at in 0..self.others.len() {
            let Other { daemon, lost } = self.others[at];
            let Some((loss, _)) = lost.filter(|(_, until)| *until <= now) else { continue };
            match loss {
                Loss::Dead => {
                    self.strike("start", format!("{daemon} is started"), Meant::default());
                    self.bed.launch_ceph(daemon)?;
                }
                Loss::Isolated => {
                    self.strike("reach", format!("{daemon} reaches the others"), Meant::default());
                    self.bed.set_link(daemon, true)?;
                }
            }
            self.others[at].lost = None;
        }
        Ok(())
    }
}
