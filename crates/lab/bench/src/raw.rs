//! One load without an OSD: jobs on reactors of this process, moved through their phases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use carmine_load::{BenchStatus, JobResult, JobSetup, LoadSpec, Phase, Session};
use carmine_reactor::{Config, Reactors, Shard};

use crate::view::View;

const LOOK: Duration = Duration::from_millis(10);
/// Time for connecting, for the scratch file, and for the last answers.
const LIMIT: Duration = Duration::from_secs(120);

/// What a raw load gave.
pub struct Measured {
    pub result: JobResult,
    pub seconds: f64,
}

/// An end of the measured window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// It begins now.
    Begin,
    /// It is over; the load still runs.
    End,
}

/// Called at both ends of the window, on the controller's thread.
pub type OnEdge<'a> = &'a mut dyn FnMut(Edge) -> anyhow::Result<()>;

/// `config` with a reactor for each of the jobs, dealt to `cpus`.
pub fn on_cpus(spec: &LoadSpec, cpus: &[usize], config: Config) -> Config {
    let jobs = spec.numjobs as usize;
    Config { cpus: (0..jobs).map(|n| cpus.get(n % cpus.len().max(1)).copied()).collect(), ..config }
}

/// Runs `spec.numjobs` jobs, one on each reactor; `job` is the job on its shard.
pub fn run<F, Fut>(
    spec: &LoadSpec,
    config: Config,
    cancel: &AtomicBool,
    edge: OnEdge<'_>,
    job: F,
) -> anyhow::Result<Measured>
where
    F: Fn(Shard, JobSetup) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let (mut session, setups) = Session::new(spec, spec.numjobs, None);
    let reactors = Reactors::start(config, move |shard: Shard| {
        let setup = setups.get(usize::from(shard.id().0)).cloned();
        let job = job.clone();
        async move {
            if let Some(setup) = setup {
                job(shard, setup).await;
            }
        }
    })?;
    let mut view = View::new(spec);
    let measured = phases(spec, &mut session, &mut view, cancel, edge);
    if measured.is_err() {
        session.control().fail();
    }
    view.finish();
    reactors.stopper().stop();
    let joined = reactors.join();
    let (result, seconds) = measured?;
    joined?;
    if let Some(error) = &result.first_error {
        bail!("the raw load failed: {error}");
    }
    Ok(Measured { result, seconds })
}

fn phases(
    spec: &LoadSpec,
    session: &mut Session,
    view: &mut View,
    cancel: &AtomicBool,
    edge: OnEdge<'_>,
) -> anyhow::Result<(JobResult, f64)> {
    until(session, view, cancel, LIMIT, |s| s.progress.ready)?;
    session.control().set_phase(Phase::Prefill);
    view.phase("writing the data");
    until(session, view, cancel, LIMIT, |s| s.progress.prefilled)?;
    session.control().set_phase(Phase::Ramp);
    view.timed("ramp", spec.ramp_ms);
    run_for(session, view, cancel, Duration::from_millis(spec.ramp_ms))?;
    edge(Edge::Begin)?;
    let began = Instant::now();
    session.control().set_phase(Phase::Measure);
    view.timed("measuring", spec.runtime_ms);
    run_for(session, view, cancel, Duration::from_millis(spec.runtime_ms))?;
    let seconds = began.elapsed().as_secs_f64();
    edge(Edge::End)?;
    session.control().set_phase(Phase::Stop);
    let status = until(session, view, cancel, LIMIT, |s| s.done)?;
    Ok((JobResult::merged(&status.results), seconds))
}

fn until(
    session: &mut Session,
    view: &mut View,
    cancel: &AtomicBool,
    limit: Duration,
    done: fn(&BenchStatus) -> bool,
) -> anyhow::Result<BenchStatus> {
    let began = Instant::now();
    loop {
        let status = look(session, view, cancel)?;
        // A job that failed ends at once, and its result says why.
        if done(&status) || status.done {
            return Ok(status);
        }
        if began.elapsed() > limit {
            bail!("the raw load did not move on for {} s", limit.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

fn run_for(
    session: &mut Session,
    view: &mut View,
    cancel: &AtomicBool,
    time: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        look(session, view, cancel)?;
        std::thread::sleep(LOOK.min(deadline.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

fn look(session: &mut Session, view: &mut View, cancel: &AtomicBool) -> anyhow::Result<BenchStatus> {
    if cancel.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let status = session.poll();
    view.show(&status);
    Ok(status)
}
