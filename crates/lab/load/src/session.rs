//! A load as its controller sees it, near (in its own process) or far (inside an OSD, by `dump`-like admin requests).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use serde::{Deserialize, Serialize};

use crate::control::{Control, Phase, Progress};
use crate::job::JobSetup;
use crate::ledger::{Ledger, VerifyState};
use crate::pattern::Geometry;
use crate::result::JobResult;
use crate::spec::LoadSpec;

/// What jobs tell their controller, beside [`Progress`].
#[derive(Debug)]
pub enum JobEvent {
    /// The verify state as it is now.
    Ledger { geometry: Geometry, ledger: Ledger },
    /// The job's end.
    Done(Box<JobResult>),
}

/// A request to a load in another process: the JSON of the admin command `bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum BenchAction {
    /// Starts a load; only one at a time.
    Start {
        spec: Box<LoadSpec>,
        pool: String,
    },
    /// Moves it on.
    Phase {
        phase: Phase,
    },
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
    control: Arc<Control>,
    events: Receiver<JobEvent>,
    jobs: u32,
    results: BTreeMap<u32, JobResult>,
    state: Option<VerifyState>,
    abandoned: bool,
}

impl Session {
    /// A load of `jobs` jobs and what each needs to start. With `state`, what is known of verified blocks goes to the
    /// jobs and comes back from them.
    pub fn new(spec: &LoadSpec, jobs: u32, state: Option<VerifyState>) -> (Session, Vec<JobSetup>) {
        let control = Arc::new(Control::new(jobs));
        let (sender, events) = channel();
        let spec = Arc::new(spec.clone());
        let shared_state = state.clone().map(Arc::new);
        let setups = (0..jobs).map(|job| JobSetup {
            spec: Arc::clone(&spec),
            job,
            control: Arc::clone(&control),
            events: sender.clone(),
            state: shared_state.clone(),
        });
        let setups = setups.collect();
        (Session { control, events, jobs, results: BTreeMap::new(), state, abandoned: false }, setups)
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Takes in what the jobs said since the last call.
    pub fn poll(&mut self) -> BenchStatus {
        loop {
            match self.events.try_recv() {
                Ok(JobEvent::Ledger { geometry, ledger }) => {
                    if let Some(state) = &mut self.state {
                        state.absorb(&geometry, &ledger);
                    }
                }
                Ok(JobEvent::Done(result)) => {
                    self.results.insert(result.job, *result);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.abandoned = true;
                    break;
                }
            }
        }
        self.status()
    }

    fn status(&mut self) -> BenchStatus {
        let missing: Vec<u32> = (0..self.jobs).filter(|job| !self.results.contains_key(job)).collect();
        if self.abandoned && !missing.is_empty() {
            self.control.fail();
            for job in missing.iter().copied() {
                let error = Some(format!("job {job} ended without a result"));
                self.results
                    .insert(job, JobResult { job, errors: 1, first_error: error, ..JobResult::default() });
            }
        }
        let done = self.results.len() == self.jobs as usize;
        let results = if done { self.results.values().cloned().collect() } else { Vec::new() };
        BenchStatus {
            phase: self.control.phase(),
            jobs: self.jobs,
            progress: self.control.progress(),
            done,
            results,
        }
    }

    /// What is known of verified blocks, as of the last [`Self::poll`].
    pub fn state(&self) -> Option<&VerifyState> {
        self.state.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_vanish_are_errors() {
        let (mut session, setups) = Session::new(&LoadSpec::default(), 2, None);
        assert!(!session.poll().done);
        let mut setups = setups.into_iter();
        setups.next().unwrap().abort("no route to host");
        assert!(session.control().has_failed());
        drop(setups);
        let status = session.poll();
        assert!(status.done);
        let errors: Vec<_> = status.results.iter().filter_map(|r| r.first_error.as_deref()).collect();
        assert_eq!(errors, ["no route to host", "job 1 ended without a result"]);
    }

    #[test]
    fn actions_are_plain_json() {
        let action = BenchAction::Phase { phase: Phase::Measure };
        assert_eq!(serde_json::to_string(&action).unwrap(), r#"{"action":"phase","phase":"measure"}"#);
        let start = BenchAction::Start { spec: Box::default(), pool: "bench".into() };
        let json = serde_json::to_string(&start).unwrap();
        assert_eq!(serde_json::from_str::<BenchAction>(&json).unwrap(), start);
    }
}
