//! One load without an OSD: jobs on reactors of this process.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, bail};
use carmine_load::{JobResult, JobSetup, LoadSpec};
use carmine_reactor::{Config, Shard, block_on};

use crate::steering::{Jobs, Steering, controller};

/// The result of a raw load.
pub struct Measured {
    pub result: JobResult,
    pub seconds: f64,
}

/// Called at both ends of the window, on the controller's thread; the load still runs.
pub type OnEdge<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// Runs `spec.numjobs` jobs, one on each reactor, dealt to `cpus`; `job` is the job on its shard.
///
/// # Errors
/// A job has failed, or the load was interrupted.
pub fn run<F, Fut>(
    spec: &LoadSpec,
    cpus: &[usize],
    config: Config,
    cancel: &AtomicBool,
    edge: OnEdge<'_>,
    job: F,
) -> anyhow::Result<Measured>
where
    F: Fn(Shard, JobSetup) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let jobs = Jobs::near(spec, None, cpus, config, job)?;
    block_on(controller(None), async |shard: Shard| {
        let mut steering = Steering::new(&shard, jobs, spec, cancel, Box::new(|_| Ok(())));
        let measured = phases(&mut steering, spec, edge).await;
        let status = steering.results(measured.is_err()).await;
        steering.view.finish();
        let joined = steering.jobs.join();
        let result = status.as_ref().map(|status| JobResult::merged(&status.results)).unwrap_or_default();
        if let Some(error) = &result.first_error {
            bail!("the raw load failed: {error}");
        }
        let seconds = measured?;
        status?;
        joined?;
        Ok(Measured { result, seconds })
    })
    .context("cannot start the controller")?
}

/// Returns the length of the window, with the load still running.
async fn phases(steering: &mut Steering<'_>, spec: &LoadSpec, edge: OnEdge<'_>) -> anyhow::Result<f64> {
    steering.connect().await?;
    steering.prefill().await?;
    steering.ramp(spec.ramp_ms).await?;
    edge()?;
    let began = Instant::now();
    steering.measure(spec).await?;
    let seconds = began.elapsed().as_secs_f64();
    edge()?;
    Ok(seconds)
}
