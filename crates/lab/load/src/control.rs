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
    ready: AtomicBool,
    prefilled: AtomicBool,
    finished: AtomicBool,
    ops: AtomicU64,
    prefill_bytes_done: AtomicU64,
    prefill_bytes_total: AtomicU64,
}

impl JobProgress {
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn set_prefilled(&self) {
        self.prefilled.store(true, Ordering::Release);
    }

    /// Nothing more to do before Stop (a verification that has read everything).
    pub(crate) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(crate) fn set_ops(&self, ops: u64) {
        self.ops.store(ops, Ordering::Relaxed);
    }

    pub(crate) fn set_prefill(&self, done: u64, total: u64) {
        self.prefill_bytes_done.store(done, Ordering::Relaxed);
        self.prefill_bytes_total.store(total, Ordering::Relaxed);
    }
}

/// Shared by the controller and all jobs of a load.
#[derive(Debug)]
pub struct Control {
    phase: AtomicU8,
    failed: AtomicBool,
    jobs: Vec<JobProgress>,
}

impl Control {
    pub fn new(jobs: u32) -> Control {
        Control {
            phase: AtomicU8::new(Phase::Setup as u8),
            failed: AtomicBool::new(false),
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

    pub(crate) fn job(&self, job: u32) -> Option<&JobProgress> {
        self.jobs.get(job as usize)
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
        control.job(0).unwrap().set_ready();
        control.job(0).unwrap().set_ops(3);
        assert!(!control.progress().ready);
        control.job(1).unwrap().set_ready();
        control.job(1).unwrap().set_ops(4);
        assert_eq!((control.progress().ready, control.progress().ops), (true, 7));
        assert!(control.job(2).is_none());
    }
}
