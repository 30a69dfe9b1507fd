//! A load as its controller sees it, near (in its own process) or far (inside an OSD, by the admin command `load`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use serde::{Deserialize, Serialize};

use crate::job::JobSetup;
use crate::ledger::{Ledger, VerifyState};
use crate::pattern::Geometry;
use crate::result::JobResult;
use crate::spec::LoadSpec;

/// A load is stopped if its controller has not asked about it for this long: nobody else would end it.
const LEASE_NS: u64 = 15_000_000_000;

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
#[derive(Debug, Default)]
pub struct Control {
    phase: AtomicU8,
    failed: AtomicBool,
    /// Number of the first job: a load that several hosts make has its jobs on all of them.
    first: u32,
    jobs: Vec<JobProgress>,
}

impl Control {
    pub(crate) fn new(jobs: Range<u32>) -> Control {
        let first = jobs.start;
        Control { first, jobs: jobs.map(|_| JobProgress::default()).collect(), ..Control::default() }
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Acquire))).copied().unwrap_or(Phase::Stop)
    }

    /// Moves on; never back.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, AcqRel);
    }

    /// A job can't go on: the others should stop as well.
    pub fn fail(&self) {
        self.failed.store(true, Release);
    }

    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    pub(crate) fn job(&self, job: u32) -> &JobProgress {
        &self.jobs[(job - self.first) as usize]
    }

    /// Sums over the jobs, for the controller and its progress bar.
    pub fn progress(&self) -> Progress {
        let all = |of: fn(&JobProgress) -> &AtomicBool| self.jobs.iter().all(|j| of(j).load(Acquire));
        let sum = |of: fn(&JobProgress) -> &AtomicU64| self.jobs.iter().map(|j| of(j).load(Relaxed)).sum();
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

/// A message of a job to its controller, which sees its [`Progress`], too.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// The verify state as it is now.
    Ledger(Geometry, Ledger),
    /// The job's end.
    Done(Box<JobResult>),
}

/// A request to a load in another process: the JSON of the admin command `bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum BenchAction {
    /// Starts a load; only one at a time.
    Start { spec: Box<LoadSpec>, pool: String },
    /// Moves it on.
    Phase { phase: Phase },
    /// Asks how it stands.
    Status,
}

/// How a load stands; the answer to every [`BenchAction`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchStatus {
    pub phase: Phase,
    pub jobs: u32,
    pub progress: Progress,
    /// All jobs have ended, and `results` is theirs.
    pub done: bool,
    pub results: Vec<JobResult>,
}

/// A running load.
#[derive(Debug)]
pub struct Session {
    /// Shared with the jobs.
    pub control: Arc<Control>,
    events: Receiver<JobEvent>,
    results: BTreeMap<u32, JobResult>,
    state: Option<VerifyState>,
}

impl Session {
    /// A load of `jobs` jobs and what each needs to start. With `state`, what is known of verified blocks goes to the
    /// jobs and comes back from them.
    pub fn new(spec: &LoadSpec, jobs: u32, state: Option<VerifyState>) -> (Session, Vec<JobSetup>) {
        Session::of_share(spec, 0..jobs, state)
    }

    /// The same for some of the jobs of a load; others run elsewhere.
    pub fn of_share(
        spec: &LoadSpec,
        jobs: Range<u32>,
        state: Option<VerifyState>,
    ) -> (Session, Vec<JobSetup>) {
        let control = Arc::new(Control::new(jobs.clone()));
        let (events, received) = channel();
        let (spec, known) = (Arc::new(spec.clone()), state.clone().map(Arc::new));
        let setup = JobSetup { spec, job: 0, control: Arc::clone(&control), events, state: known };
        let setups = jobs.map(|job| JobSetup { job, ..setup.clone() }).collect();
        (Session { control, events: received, results: BTreeMap::new(), state }, setups)
    }

    /// Takes in what the jobs said since the last call.
    pub fn poll(&mut self) -> BenchStatus {
        let end = loop {
            match (self.events.try_recv(), &mut self.state) {
                (Ok(JobEvent::Done(result)), _) => _ = self.results.insert(result.job, *result),
                (Ok(JobEvent::Ledger(geometry, ledger)), Some(state)) => state.absorb(&geometry, &ledger),
                (Ok(JobEvent::Ledger(..)), None) => {}
                (Err(end), _) => break end,
            }
        };
        let (first, jobs) = (self.control.first, self.control.jobs.len() as u32);
        for job in (first..first + jobs).filter(|_| end == TryRecvError::Disconnected) {
            self.results.entry(job).or_insert_with(|| {
                self.control.fail();
                JobResult::failed(job, format!("job {job} ended without a result"))
            });
        }
        let done = self.results.len() == jobs as usize;
        BenchStatus {
            phase: self.control.phase(),
            jobs,
            progress: self.control.progress(),
            done,
            results: self.results.values().filter(|_| done).cloned().collect(),
        }
    }

    /// The state of verified blocks, as of the last [`Self::poll`].
    pub fn state(&self) -> Option<&VerifyState> {
        self.state.as_ref()
    }
}

/// The far end of a load inside an OSD: answers the admin command `load`. There is at most one load in a process.
#[derive(Debug, Default)]
pub struct BenchHost {
    session: Option<Session>,
    asked_ns: u64,
}

impl BenchHost {
    /// Carries out `request` (a [`BenchAction`] as JSON; other fields are ignored). `start` is called with the pool and
    /// what each of `jobs` jobs needs: job N is to run on shard N.
    ///
    /// # Errors
    /// A request that can't be understood or carried out, in words.
    pub fn handle(
        &mut self,
        request: &serde_json::Value,
        now_ns: u64,
        jobs: u32,
        start: impl FnOnce(&str, Vec<JobSetup>),
    ) -> Result<BenchStatus, String> {
        self.asked_ns = now_ns;
        match BenchAction::deserialize(request).map_err(|e| format!("bench request: {e}"))? {
            BenchAction::Start { mut spec, pool } => {
                if self.session.as_mut().is_some_and(|session| !session.poll().done) {
                    return Err("a load is running in this OSD already; wait for its end".into());
                }
                spec.numjobs = jobs;
                spec.check()?;
                let (session, setups) = Session::new(&spec, jobs, None);
                self.session = Some(session);
                start(&pool, setups);
            }
            BenchAction::Phase { phase } => self.running()?.control.set_phase(phase),
            BenchAction::Status => {}
        }
        Ok(self.running()?.poll())
    }

    fn running(&mut self) -> Result<&mut Session, String> {
        self.session.as_mut().ok_or_else(|| "no load was started in this OSD".into())
    }

    /// Stops a load that nobody asks for any more; true once there is nothing left to watch.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        let Some(session) = &mut self.session else { return true };
        if now_ns.saturating_sub(self.asked_ns) > LEASE_NS {
            session.control.set_phase(Phase::Stop);
            session.control.fail();
        }
        session.poll().done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_load_at_a_time_and_not_for_ever() {
        let mut host = BenchHost::default();
        let status = json!({"prefix": "load", "action": "status"});
        assert!(host.handle(&status, 0, 2, |_, _| ()).unwrap_err().contains("no load"));
        let start =
            json!({"prefix": "load", "action": "start", "pool": "bench", "spec": LoadSpec::default()});
        let mut setups = Vec::new();
        assert_eq!(host.handle(&start, 1, 2, |_, jobs| setups = jobs).unwrap().jobs, 2);
        assert!(host.handle(&start, 2, 2, |_, _| ()).unwrap_err().contains("already"));
        let phase = json!({"prefix": "load", "action": "phase", "phase": "ramp"});
        assert_eq!(host.handle(&phase, 3, 2, |_, _| ()).unwrap().phase, Phase::Ramp);
        assert!(!host.expire(LEASE_NS) && setups[0].control.phase() == Phase::Ramp);
        assert!(!host.expire(LEASE_NS + 4) && setups[0].control.phase() == Phase::Stop);
        setups.into_iter().for_each(|setup| setup.abort("gone"));
        assert!(host.expire(LEASE_NS + 5));
        assert!(host.handle(&start, 9, 1, |_, _| ()).is_ok());
        for bad in [json!({"action": "jump"}), json!([]), json!({"action": "start", "spec": {}})] {
            assert!(host.handle(&bad, 9, 1, |_, _| ()).is_err(), "{bad}");
        }
    }

    #[test]
    fn jobs_that_vanish_are_errors() {
        let (mut session, setups) = Session::new(&LoadSpec::default(), 2, None);
        assert!(!session.poll().done);
        let mut setups = setups.into_iter();
        setups.next().unwrap().abort("no route to host");
        assert!(session.control.has_failed());
        drop(setups);
        let status = session.poll();
        assert!(status.done);
        let errors: Vec<_> = status.results.iter().filter_map(|r| r.first_error.as_deref()).collect();
        assert_eq!(errors, ["no route to host", "job 1 ended without a result"]);
    }

    #[test]
    fn a_share_has_the_numbers_that_its_jobs_have_in_the_whole_load() {
        let (mut session, setups) = Session::of_share(&LoadSpec::default(), 3..5, None);
        assert_eq!(setups.iter().map(|setup| setup.job).collect::<Vec<_>>(), [3, 4]);
        session.control.job(4).ready.store(true, Release);
        assert!(!session.control.progress().ready);
        drop(setups);
        let status = session.poll();
        assert_eq!(status.results.iter().map(|result| result.job).collect::<Vec<_>>(), [3, 4]);
        assert!(status.done && status.jobs == 2);
    }

    #[test]
    fn actions_are_plain_json() {
        let action = BenchAction::Phase { phase: Phase::Measure };
        assert_eq!(serde_json::to_string(&action).unwrap(), r#"{"action":"phase","phase":"measure"}"#);
        let start = BenchAction::Start { spec: Box::default(), pool: "bench".into() };
        let json = serde_json::to_string(&start).unwrap();
        assert_eq!(serde_json::from_str::<BenchAction>(&json).unwrap(), start);
    }

    #[test]
    fn phases_only_move_on() {
        let control = Control::new(0..2);
        control.set_phase(Phase::Measure);
        control.set_phase(Phase::Prefill);
        assert_eq!(control.phase(), Phase::Measure);
    }

    #[test]
    fn progress_is_ready_when_all_are() {
        let control = Control::new(0..2);
        control.job(0).ready.store(true, Release);
        control.job(0).ops.store(3, Relaxed);
        assert!(!control.progress().ready);
        control.job(1).ready.store(true, Release);
        control.job(1).ops.store(4, Relaxed);
        assert_eq!((control.progress().ready, control.progress().ops), (true, 7));
    }
}
