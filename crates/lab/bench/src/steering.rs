//! A load that is moved through its phases: jobs on reactors of this process, inside an OSD, or of other hosts.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use carmine_client::{Access, Client};
use carmine_load::{
    BenchAction, BenchStatus, JobResult, JobSetup, LoadSpec, Phase, Session, VerifyState, run_cluster_job,
};
use carmine_reactor::{Config, Group, PollPolicy, Reactors, Shard, block_on};
use carmine_testbed::output::{Pulse, note};
use carmine_types::OsdId;
use indicatif::{ProgressBar, ProgressStyle};

use crate::load_hosts::Hosts;

/// Buffers of a generator thread.
const ARENA_BYTES: usize = 256 << 20;
/// How often the controller looks at its jobs.
const LOOK: Duration = Duration::from_millis(20);
/// The same for jobs inside an OSD, which has to answer.
const LOOK_FAR: Duration = Duration::from_millis(100);
/// The same while hosts compare their clocks.
const CLOCK_LOOK: Duration = Duration::from_millis(2);
/// Time for all jobs to connect.
const READY_LIMIT: Duration = Duration::from_secs(40);
/// Time that a prefill may go without writing anything.
const PREFILL_LIMIT: Duration = Duration::from_secs(60);
/// Time for the last answers and results, a little more than jobs wait themselves.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Threads of a generator for each of its CPUs at most: with more, they would mostly be switched between.
const THREADS_PER_CPU: usize = 16;

/// Threads of a load's generator on so many CPUs: one for each job, or several jobs share each.
pub fn generator_threads(spec: &LoadSpec, cpus: usize) -> usize {
    threads_of(spec.numjobs as usize, cpus)
}

fn threads_of(jobs: usize, cpus: usize) -> usize {
    jobs.min(THREADS_PER_CPU * cpus.max(1))
}

/// Starts these jobs of a load on reactors of this process, dealt to `cpus`; `job` is one job on its shard.
fn start_share(
    spec: &LoadSpec,
    share: Range<u32>,
    state: Option<VerifyState>,
    cpus: &[usize],
    config: Config,
    job: impl AsyncFn(Shard, JobSetup) + Clone + Send + Sync + 'static,
) -> Result<(Session, Reactors)> {
    let threads = threads_of(share.len(), cpus.len());
    let (session, setups) = Session::of_share(spec, share, state);
    let cpus = (0..threads).map(|n| cpus.get(n % cpus.len().max(1)).copied()).collect();
    let reactors = Reactors::start(Config { cpus, ..config }, move |shard: Shard| {
        for setup in setups.iter().skip(usize::from(shard.id().0)).step_by(threads).cloned() {
            let (own, job) = (shard.clone(), job.clone());
            shard.spawn(Group::Client, "job", async move { job(own, setup).await });
        }
        async {}
    })
    .context("cannot start the generator's threads")?;
    Ok((session, reactors))
}

/// Starts these jobs of a load of a cluster's pool.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn start_cluster_share(
    spec: &LoadSpec,
    share: Range<u32>,
    state: Option<VerifyState>,
    cpus: &[usize],
    access: &Access,
    pool: &str,
) -> Result<(Session, Reactors)> {
    let config = Config { arena_bytes_per_shard: ARENA_BYTES, ..reactors("load") };
    let (access, pool) = (access.clone(), pool.to_owned());
    let job = async move |shard, job| run_cluster_job(&shard, &access, &pool, job).await;
    start_share(spec, share, state, cpus, config, job)
}

/// The jobs of a load.
pub enum Jobs {
    /// On reactors of this process.
    Near { session: Box<Session>, reactors: Reactors },
    /// On the reactors of an OSD.
    Far { client: Rc<Client>, osd: OsdId },
    /// In the generators of other hosts.
    Hosts(Hosts),
}

impl Jobs {
    /// Starts the jobs of `spec` on [`generator_threads`] reactors, dealt to `cpus`; `job` is one job on its shard.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn near(
        spec: &LoadSpec,
        state: Option<VerifyState>,
        cpus: &[usize],
        config: Config,
        job: impl AsyncFn(Shard, JobSetup) + Clone + Send + Sync + 'static,
    ) -> Result<Jobs> {
        let (session, reactors) = start_share(spec, 0..spec.numjobs, state, cpus, config, job)?;
        Ok(Jobs::Near { session: Box::new(session), reactors })
    }

    /// Starts the jobs of a load of a cluster's pool.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn of_cluster(
        spec: &LoadSpec,
        state: Option<VerifyState>,
        cpus: &[usize],
        access: &Access,
        pool: &str,
    ) -> Result<Jobs> {
        let (session, reactors) = start_cluster_share(spec, 0..spec.numjobs, state, cpus, access, pool)?;
        Ok(Jobs::Near { session: Box::new(session), reactors })
    }

    /// Starts a job on each reactor of an OSD.
    ///
    /// # Errors
    /// The OSD refuses, or does not answer.
    pub async fn far(client: &Rc<Client>, osd: OsdId, spec: &LoadSpec, pool: &str) -> Result<Jobs> {
        let spec = Box::new(spec.clone());
        ask(client, osd, &BenchAction::Start { spec, pool: pool.to_owned() }).await?;
        Ok(Jobs::Far { client: Rc::clone(client), osd })
    }

    async fn status(&mut self) -> Result<BenchStatus> {
        match self {
            Jobs::Near { session, .. } => Ok(session.poll()),
            Jobs::Far { client, osd } => ask(client, *osd, &BenchAction::Status).await,
            Jobs::Hosts(hosts) => hosts.status(),
        }
    }

    /// Moves all jobs to a phase.
    ///
    /// # Errors
    /// The jobs' OSD does not answer.
    pub async fn set_phase(&mut self, phase: Phase) -> Result<()> {
        match self {
            Jobs::Near { session, .. } => session.control.set_phase(phase),
            Jobs::Far { client, osd } => {
                ask(client, *osd, &BenchAction::Phase { phase }).await?;
            }
            Jobs::Hosts(hosts) => hosts.set_phase(phase),
        }
        Ok(())
    }

    /// The blocks that are known; `None` if nobody records them.
    pub fn state(&self) -> Option<&VerifyState> {
        match self {
            Jobs::Near { session, .. } => session.state(),
            Jobs::Far { .. } | Jobs::Hosts(_) => None,
        }
    }

    /// Ends the generator's threads.
    ///
    /// # Errors
    /// One of them failed.
    pub fn join(self) -> io::Result<()> {
        let Jobs::Near { reactors, .. } = self else { return Ok(()) };
        reactors.stopper().stop();
        reactors.join()
    }
}

async fn ask(client: &Client, osd: OsdId, action: &BenchAction) -> Result<BenchStatus> {
    let mut request = serde_json::to_value(action).context("cannot write a bench request")?;
    request["prefix"] = "load".into();
    let answer = client.admin(osd, &request.to_string()).await;
    let answer = answer.with_context(|| format!("in-process load of {osd}"))?;
    serde_json::from_str(&answer).with_context(|| format!("{osd} answered `{answer}`"))
}

/// Reactors on which nothing blocks.
pub(crate) fn reactors(name: &str) -> Config {
    Config { name: name.to_owned(), alien_threads: 0, ..Config::default() }
}

/// A reactor for the calling thread, which only steers.
pub fn controller(cpu: Option<usize>) -> Config {
    Config { cpus: vec![cpu], poll: PollPolicy::Sleep, ..reactors("bench") }
}

/// Called at each look at the jobs; an error ends the load.
pub type OnLook<'a> = Box<dyn FnMut(&Jobs) -> Result<()> + 'a>;

/// Moves the jobs on, shows their progress, and looks for Ctrl-C.
pub struct Steering<'a> {
    pub shard: Shard,
    pub jobs: Jobs,
    pub view: View,
    cancel: &'a AtomicBool,
    on_look: OnLook<'a>,
    pause: Duration,
}

impl<'a> Steering<'a> {
    /// Steers `jobs`; nothing is shown before their first phase.
    pub fn new(
        shard: &Shard,
        jobs: Jobs,
        spec: &LoadSpec,
        cancel: &'a AtomicBool,
        on_look: OnLook<'a>,
    ) -> Steering<'a> {
        let pause = if matches!(jobs, Jobs::Far { .. }) { LOOK_FAR } else { LOOK };
        Steering { shard: shard.clone(), jobs, view: View::new(spec), cancel, on_look, pause }
    }

    /// Waits until all jobs are connected.
    ///
    /// # Errors
    /// They do not connect in time, or a look at them fails.
    pub async fn connect(&mut self) -> Result<()> {
        self.view.phase("connecting");
        self.until("the jobs to connect", READY_LIMIT, |status| status.progress.ready).await
    }

    /// Lets the jobs write their data.
    ///
    /// # Errors
    /// Nothing is written for a minute, or a look at the jobs fails.
    pub async fn prefill(&mut self) -> Result<()> {
        self.jobs.set_phase(Phase::Prefill).await?;
        self.view.phase("prefilling");
        self.until("the prefill to go on", PREFILL_LIMIT, |status| status.progress.prefilled).await
    }

    /// Lets the load run before it is measured.
    ///
    /// # Errors
    /// A look at the jobs fails.
    pub async fn ramp(&mut self, millis: u64) -> Result<()> {
        if millis == 0 {
            return Ok(());
        }
        self.jobs.set_phase(Phase::Ramp).await?;
        self.view.timed("ramp", millis);
        self.run_for(Duration::from_millis(millis)).await
    }

    /// Agrees with other hosts on the moment at which the window begins, and waits until just before it.
    ///
    /// # Errors
    /// A host does not answer, or the load was interrupted.
    pub async fn agree(&mut self, spec: &LoadSpec) -> Result<()> {
        if !matches!(self.jobs, Jobs::Hosts(_)) {
            return Ok(());
        }
        let asked = Instant::now();
        if let Jobs::Hosts(hosts) = &mut self.jobs {
            hosts.ask_clocks();
        }
        loop {
            self.look().await?;
            if let Jobs::Hosts(hosts) = &mut self.jobs
                && let Some(wait) = hosts.agree(spec)
            {
                self.shard.sleep(wait).await;
                return Ok(());
            }
            ensure!(asked.elapsed() < END_LIMIT, "the load hosts do not tell their time");
            self.shard.sleep(CLOCK_LOOK).await;
        }
    }

    /// Lets the load run through its window.
    ///
    /// # Errors
    /// A look at the jobs fails.
    pub async fn measure(&mut self, spec: &LoadSpec) -> Result<()> {
        self.jobs.set_phase(Phase::Measure).await?;
        self.view.timed("measuring", spec.runtime_ms);
        let time = Duration::from_millis(spec.runtime_ms);
        self.run_for(if spec.ends_by_itself() { Duration::MAX } else { time }).await
    }

    /// Waits for `done`, for at most `limit` without any progress; the load's own failure ends the wait, too.
    async fn until(&mut self, what: &str, limit: Duration, done: fn(&BenchStatus) -> bool) -> Result<()> {
        let (mut moved, mut bytes) = (Instant::now(), 0);
        loop {
            let status = self.look().await?;
            if done(&status) {
                return Ok(());
            }
            if status.progress.prefill_bytes_done != bytes {
                (moved, bytes) = (Instant::now(), status.progress.prefill_bytes_done);
            }
            let (is_stuck, limit_s) = (moved.elapsed() > limit, limit.as_secs());
            ensure!(!is_stuck, "gave up after waiting {limit_s} s for {what} (see `carmine status`)");
            self.shard.sleep(self.pause).await;
        }
    }

    /// Lets the load run for `time`, or until all jobs have nothing more to do.
    async fn run_for(&mut self, time: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let left = time.saturating_sub(started.elapsed());
            // The window's end is not rounded up to the next look.
            self.shard.sleep(left.min(self.pause)).await;
            if left <= self.pause || self.look().await?.progress.finished {
                return Ok(());
            }
        }
    }

    /// Waits a moment, then looks at the jobs.
    ///
    /// # Errors
    /// Those of [`Steering::look`].
    pub async fn go_on(&mut self) -> Result<()> {
        self.shard.sleep(self.pause).await;
        self.look().await.map(drop)
    }

    /// Looks at the jobs, the OSDs and Ctrl-C, and shows the progress.
    ///
    /// # Errors
    /// A job failed, `on_look` found a fault, or the load was interrupted.
    pub async fn look(&mut self) -> Result<BenchStatus> {
        ensure!(!self.cancel.load(Ordering::Relaxed), "interrupted");
        let status = self.jobs.status().await?;
        self.view.show(&status);
        (self.on_look)(&self.jobs)?;
        ensure!(!status.progress.failed, "a job failed");
        Ok(status)
    }

    /// Ends the load and gathers the results. Jobs of a load that has failed do not wait long for answers that won't come.
    ///
    /// # Errors
    /// The jobs do not end in time.
    pub async fn results(&mut self, has_failed: bool) -> Result<BenchStatus> {
        self.view.phase("waiting for the last answers");
        if let (true, Jobs::Near { session, .. }) = (has_failed, &self.jobs) {
            session.control.fail();
        }
        self.jobs.set_phase(Phase::Stop).await?;
        let started = Instant::now();
        loop {
            let status = self.jobs.status().await?;
            if status.done {
                return Ok(status);
            }
            ensure!(started.elapsed() <= END_LIMIT, "jobs did not end within {} s", END_LIMIT.as_secs());
            self.shard.sleep(LOOK).await;
        }
    }
}

/// The progress bar of a load, or a line now and then where there is no terminal.
pub struct View {
    bar: ProgressBar,
    pulse: Pulse,
    load: String,
    /// Start and length of the running phase, if it has a length.
    timed: Option<(Instant, u64)>,
}

impl View {
    fn new(spec: &LoadSpec) -> View {
        View { bar: ProgressBar::new_spinner(), pulse: Pulse::default(), load: spec.summary(), timed: None }
    }

    /// A phase of unknown length begins.
    pub fn phase(&mut self, name: &str) {
        self.bar.set_message(format!("{}: {name}", self.load));
        self.timed = None;
        self.draw(0, 0);
    }

    /// A phase that takes `millis` begins.
    pub fn timed(&mut self, name: &str, millis: u64) {
        self.phase(name);
        self.timed = Some((Instant::now(), millis));
    }

    /// Shows how far the jobs are.
    fn show(&mut self, status: &BenchStatus) {
        let prefilled = (status.progress.prefill_bytes_done, status.progress.prefill_bytes_total);
        let timed = self.timed.map(|(started, millis)| (started.elapsed().as_millis() as u64, millis));
        let (done, all) = timed.unwrap_or(prefilled);
        self.draw(done, all);
    }

    /// A bar, or a spinner once all of it is done.
    fn draw(&mut self, done: u64, all: u64) {
        let part = if done < all { format!(", {} %", done * 100 / all) } else { String::new() };
        self.pulse.beat(|| format!("{}{part}", self.bar.message()));
        let template = if done < all { "{msg} [{bar:30}] {percent} %" } else { "{spinner} {msg}" };
        self.bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.tick();
    }

    /// Prints a line above the bar, or on standard error if there is no bar.
    pub fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    /// Wipes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The result of a raw load.
pub struct Measured {
    pub result: JobResult,
    pub seconds: f64,
}

/// Called at both ends of the window, on the controller's thread; the load still runs.
pub type OnEdge<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Runs `spec.numjobs` jobs, dealt to `cpus` as [`Jobs::near`] does; `job` is one job on its shard.
///
/// # Errors
/// A job has failed, or the load was interrupted.
pub fn run_raw(
    spec: &LoadSpec,
    cpus: &[usize],
    config: Config,
    cancel: &AtomicBool,
    edge: OnEdge<'_>,
    job: impl AsyncFn(Shard, JobSetup) + Clone + Send + Sync + 'static,
) -> Result<Measured> {
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
async fn phases(steering: &mut Steering<'_>, spec: &LoadSpec, edge: OnEdge<'_>) -> Result<f64> {
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
