//! One raw load: jobs on reactors of this process, moved through their phases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use carmine_load::{BenchStatus, JobResult, JobSetup, LoadSpec, Phase, Session};
use carmine_reactor::{Config, PollPolicy, Reactors, Shard};

use crate::cmd::bench::View;

const LOOK: Duration = Duration::from_millis(10);
/// Time for connecting, for the scratch file, and for the last answers.
const LIMIT: Duration = Duration::from_secs(120);

/// What a raw load gave.
pub(super) struct Measured {
    pub(super) result: JobResult,
    pub(super) seconds: f64,
}

/// Runs `spec.numjobs` jobs on `cpus`, one each; `job` is the job on its shard.
pub(super) fn run<F, Fut>(
    spec: &LoadSpec,
    cpus: &[usize],
    poll: PollPolicy,
    cancel: &AtomicBool,
    job: F,
) -> anyhow::Result<Measured>
where
    F: Fn(Shard, JobSetup) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let (mut session, setups) = Session::new(spec, spec.numjobs, None);
    let config = Config {
        name: "raw".into(),
        cpus: (0..setups.len()).map(|n| cpus.get(n % cpus.len().max(1)).copied()).collect(),
        poll,
        alien_threads: 0,
        ..Config::default()
    };
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
    let measured = phases(spec, &mut session, &mut view, cancel);
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
) -> anyhow::Result<(JobResult, f64)> {
    until(session, view, cancel, LIMIT, |s| s.progress.ready)?;
    session.control().set_phase(Phase::Prefill);
    view.phase("writing the scratch file");
    until(session, view, cancel, LIMIT, |s| s.progress.prefilled)?;
    session.control().set_phase(Phase::Ramp);
    view.timed("ramp", spec.ramp_ms);
    run_for(session, view, cancel, Duration::from_millis(spec.ramp_ms))?;
    let began = Instant::now();
    session.control().set_phase(Phase::Measure);
    view.timed("measuring", spec.runtime_ms);
    run_for(session, view, cancel, Duration::from_millis(spec.runtime_ms))?;
    session.control().set_phase(Phase::Stop);
    let seconds = began.elapsed().as_secs_f64();
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
