//! What a load's controller and its jobs share: the phase, and how far each job is. Atomics, because jobs may run on
//! reactors of their own; each job writes only its own line.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Phases of a load, in order. The controller moves on; jobs follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Phase {
    /// Connecting and getting ready.
    Setup,
    /// Writing the objects that will be read.
    Prefill,
    /// Load that is not counted.
    Ramp,
    /// The measured window: what completes in it is counted.
    Measure,
    /// No new operations.
    Stop,
}

/// Phases by number, for the atomic.
const PHASES: [Phase; 5] = [Phase::Setup, Phase::Prefill, Phase::Ramp, Phase::Measure, Phase::Stop];

/// How far a job is. Only the job stores; aligned so that jobs do not share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct JobProgress {
    pub(crate) ready: AtomicBool,
    pub(crate) prefilled: AtomicBool,
    /// Nothing more to do before Stop (a verification that has read everything).
    pub(crate) finished: AtomicBool,
    pub(crate) ops: AtomicU64,
    pub(crate) prefill_bytes_done: AtomicU64,
    pub(crate) prefill_bytes_total: AtomicU64,
}

/// Shared by the controller and all jobs of a load.
#[derive(Debug)]
pub struct Control {
    phase: AtomicU8,
    failed: AtomicBool,
    jobs: Vec<JobProgress>,
}

impl Control {
    pub(crate) fn new(jobs: u32) -> Control {
        Control {
            phase: AtomicU8::default(),
            failed: AtomicBool::default(),
            jobs: (0..jobs).map(|_| JobProgress::default()).collect(),
        }
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Acquire))).copied().unwrap_or(Phase::Stop)
    }

    /// Moves on; never back.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// A job can't go on: the others should stop as well.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn job(&self, job: u32) -> &JobProgress {
        &self.jobs[job as usize]
    }

    /// Sums over the jobs, for the controller and its progress bar.
    pub fn progress(&self) -> Progress {
        let all =
            |flag: fn(&JobProgress) -> &AtomicBool| self.jobs.iter().all(|j| flag(j).load(Ordering::Acquire));
        let sum =
            |n: fn(&JobProgress) -> &AtomicU64| self.jobs.iter().map(|j| n(j).load(Ordering::Relaxed)).sum();
        Progress {
            ready: all(|j| &j.ready),
            prefilled: all(|j| &j.prefilled),
            finished: all(|j| &j.finished),
            failed: self.has_failed(),
            ops: sum(|j| &j.ops),
            prefill_bytes_done: sum(|j| &j.prefill_bytes_done),
            prefill_bytes_total: sum(|j| &j.prefill_bytes_total),
        }
    }
}

/// How far all jobs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub ready: bool,
    pub prefilled: bool,
    pub finished: bool,
    pub failed: bool,
    /// Operations completed since the load began, ramp included.
    pub ops: u64,
    pub prefill_bytes_done: u64,
    pub prefill_bytes_total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_move_on() {
        let control = Control::new(2);
        control.set_phase(Phase::Measure);
        control.set_phase(Phase::Prefill);
        assert_eq!(control.phase(), Phase::Measure);
    }

    #[test]
    fn progress_is_ready_when_all_are() {
        let control = Control::new(2);
        control.job(0).ready.store(true, Ordering::Release);
        control.job(0).ops.store(3, Ordering::Relaxed);
        assert!(!control.progress().ready);
        control.job(1).ready.store(true, Ordering::Release);
        control.job(1).ops.store(4, Ordering::Relaxed);
        assert_eq!((control.progress().ready, control.progress().ops), (true, 7));
    }
}
