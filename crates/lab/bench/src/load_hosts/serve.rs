//! `carmine load --listen`: makes its share of a load for a controller on another host.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use carmine_client::Access;
use carmine_load::{Control, JobResult, LoadSpec, Phase, Session};
use carmine_reactor::Reactors;
use carmine_testbed::output::print;
use carmine_testbed::{note, refuse};
use carmine_topology::CpuList;
use clap::Args;

use super::wire::{Answer, HostResult, HostStatus, REQUEST_MAX, Request, receive, send};
use super::{WORD_LIMIT, build};
use crate::GitHash;
use crate::sample::{Sampler, unix_now};
use crate::steering::start_cluster_share;

/// A load whose controller has said nothing for this long is stopped.
const LEASE: Duration = Duration::from_secs(10);
/// A controller is refused if another one's load still runs after this; less than it waits for an answer.
const BUSY_LIMIT: Duration = Duration::from_secs(3);
/// How often signals, new controllers and the end of a window are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// A window that is to begin later than this is a mistake of somebody's clock.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Connections at the same time, those that are refused included.
const CONNECTIONS_MAX: usize = 16;
/// Monitors of a cluster at most, and bytes of a pool's name.
const MONS_MAX: usize = 64;
const POOL_MAX: usize = 4096;

/// Options of a load host.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Address on which controllers are awaited, such as 10.0.0.2:7400; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Listen on an address that others can reach, though nothing is encrypted and nobody is authenticated: whoever gets there can
    /// load any cluster that this host reaches
    #[arg(long)]
    insecure: bool,
    /// CPUs of the generator's threads, such as 0-7; without it they run on all CPUs, and are not pinned
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuList>,
    /// End after one load
    #[arg(long)]
    once: bool,
    /// For tests, as network namespaces share one clock: it is ahead by this much
    #[arg(long, hide = true, value_name = "MS", default_value_t = 0, allow_negative_numbers = true)]
    clock_offset_ms: i64,
    /// For tests: it is changed by this much when a window begins
    #[arg(long, hide = true, value_name = "MS", default_value_t = 0, allow_negative_numbers = true)]
    clock_step_ms: i64,
    /// For tests: it claims to be this build
    #[arg(long, hide = true, value_name = "TEXT")]
    build: Option<String>,
    /// Folder of a testbed (not used)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

/// This host's clock, and the changes that a test makes to it.
#[derive(Debug)]
struct HostClock {
    offset_ms: i64,
    step_ms: i64,
    is_changed: AtomicBool,
}

impl HostClock {
    fn now_ns(&self) -> u64 {
        let step_ms = if self.is_changed.load(Ordering::Relaxed) { self.step_ms } else { 0 };
        let ms = self.offset_ms.saturating_add(step_ms);
        (unix_now().as_nanos() as u64).saturating_add_signed(ms.saturating_mul(1_000_000))
    }
}

/// Facts that all connections share.
struct Host<'a> {
    build: String,
    cpus: Vec<usize>,
    clock: Arc<HostClock>,
    cancel: &'a AtomicBool,
    connections: AtomicUsize,
    /// Somebody's load is here.
    is_busy: AtomicBool,
    has_served: AtomicBool,
}

/// Serves controllers until it is ended.
///
/// # Errors
/// It may not, or cannot, listen there.
pub fn run(args: &LoadArgs, cancel: &AtomicBool, git_hash: GitHash) -> Result<ExitCode> {
    let addr = args.listen;
    let is_exposed = !addr.ip().is_loopback();
    refuse!(
        is_exposed && !args.insecure,
        "--listen {addr}: nothing is encrypted and nobody is authenticated: whoever gets there can load any cluster that this host \
         reaches. If you trust all who can, give --insecure; else listen on 127.0.0.1"
    );
    let listener = TcpListener::bind(addr).with_context(|| format!("--listen {addr}"))?;
    listener.set_nonblocking(true).context("cannot listen")?;
    if is_exposed {
        note(
            "--insecure: nothing is encrypted and nobody is authenticated, so whoever gets here can load clusters from this host",
        );
    }
    let (offset_ms, step_ms) = (args.clock_offset_ms, args.clock_step_ms);
    let host = Host {
        build: args.build.clone().unwrap_or_else(|| build(git_hash)),
        cpus: args.cpus.as_ref().map(CpuList::to_vec).unwrap_or_default(),
        clock: Arc::new(HostClock { offset_ms, step_ms, is_changed: AtomicBool::new(false) }),
        cancel,
        connections: AtomicUsize::new(0),
        is_busy: AtomicBool::new(false),
        has_served: AtomicBool::new(false),
    };
    print(&format!("carmine load {} listens on {}\n", host.build, listener.local_addr()?))?;
    host.serve(&listener, args.once);
    Ok(ExitCode::SUCCESS)
}

impl Host<'_> {
    fn serve(&self, listener: &TcpListener, once: bool) {
        std::thread::scope(|scope| {
            while !(self.cancel.load(Ordering::Relaxed) || once && self.has_served.load(Ordering::Acquire)) {
                match listener.accept() {
                    Ok((stream, peer)) if self.connections.load(Ordering::Relaxed) < CONNECTIONS_MAX => {
                        self.connections.fetch_add(1, Ordering::Relaxed);
                        scope.spawn(move || {
                            if let Err(error) = self.connection(stream, peer) {
                                note(&format!("{peer}: {error:#}"));
                            }
                            self.connections.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                    // Too many connections: this one is closed.
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                    Err(error) => {
                        note(&format!("a controller could not connect: {error}"));
                        std::thread::sleep(LOOK);
                    }
                }
            }
        });
    }

    /// Greets a controller, and serves it if it is of this build and there is no other.
    fn connection(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WORD_LIMIT))?;
        stream.set_write_timeout(Some(WORD_LIMIT))?;
        let Request::Hello { build } = receive(&mut stream, REQUEST_MAX).context("no controller")? else {
            bail!("a controller that does not say hello");
        };
        let own = &self.build;
        if build != *own {
            let why =
                format!("the controller is {build}, the load host is {own}: run the same build on both");
            send(&mut stream, &Answer::Refused { why: why.clone() })?;
            bail!("refused: {why}");
        }
        // A load that has just ended may still be cleared away.
        let asked = Instant::now();
        while self.is_busy.swap(true, Ordering::AcqRel) {
            if asked.elapsed() < BUSY_LIMIT {
                std::thread::sleep(LOOK);
                continue;
            }
            let why = "it makes another controller's load; wait for its end".to_owned();
            send(&mut stream, &Answer::Refused { why })?;
            return Ok(());
        }
        let served = self.load(&mut stream, peer);
        self.has_served.store(true, Ordering::Release);
        self.is_busy.store(false, Ordering::Release);
        served
    }

    fn load(&self, stream: &mut TcpStream, peer: SocketAddr) -> Result<()> {
        stream.set_read_timeout(Some(LEASE))?;
        let cpus = match self.cpus.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cpus => cpus,
        };
        send(stream, &Answer::Hello { cpus: cpus as u32 })?;
        self.clock.is_changed.store(false, Ordering::Relaxed);
        let mut load = None;
        let served = self.requests(stream, peer, &mut load);
        if let Some(load) = load {
            load.end()?;
            note(&format!("the load of {peer} has ended"));
        }
        served
    }

    /// Answers requests until the controller goes.
    fn requests(&self, stream: &mut TcpStream, peer: SocketAddr, load: &mut Option<Load>) -> Result<()> {
        while !self.cancel.load(Ordering::Relaxed) {
            let request = match receive(stream, REQUEST_MAX) {
                Ok(request) => request,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    bail!("the controller has said nothing for {} s: its load is stopped", LEASE.as_secs())
                }
                Err(error) => {
                    return Err(anyhow!(error).context("the controller is gone: its load is stopped"));
                }
            };
            let received_ns = self.clock.now_ns();
            let answer = match self.answer(request, peer, load) {
                Ok(Some(status)) => Answer::Status(Box::new(status)),
                Ok(None) => Answer::Clock { received_ns, answered_ns: self.clock.now_ns() },
                Err(error) => Answer::Refused { why: format!("{error:#}") },
            };
            send(stream, &answer)?;
        }
        Ok(())
    }

    /// Carries out a request; `None` to one for the time.
    fn answer(
        &self,
        request: Request,
        peer: SocketAddr,
        load: &mut Option<Load>,
    ) -> Result<Option<HostStatus>> {
        match request {
            Request::Clock => return Ok(None),
            Request::Hello { .. } => bail!("it was greeted already"),
            Request::Start { spec, jobs, mons, pool } => {
                ensure!(load.is_none(), "it was given a load already");
                spec.check().map_err(|why| anyhow!(why))?;
                ensure!(spec.jobfile.is_none(), "it does not run the jobs of a job file");
                let are_some = !jobs.is_empty() && jobs.end <= spec.numjobs;
                ensure!(are_some, "it has no jobs {jobs:?} of {}", spec.numjobs);
                ensure!(
                    mons.len() <= MONS_MAX && pool.len() <= POOL_MAX,
                    "too many monitors, or too long a name"
                );
                note(&format!("{peer}: jobs {} to {} of {}", jobs.start, jobs.end - 1, spec.summary()));
                *load = Some(Load::start(&spec, jobs, &self.cpus, &mons.into(), &pool)?);
            }
            Request::Phase { phase } => {
                // The window has a moment at which it begins.
                ensure!(phase != Phase::Measure, "a window without its time");
                load.as_ref().context("it has no load")?.session.control.set_phase(phase);
            }
            Request::Measure { at_ns, runtime_ms } => {
                load.as_mut().context("it has no load")?.measure(&self.clock, at_ns, runtime_ms)?;
            }
            Request::Status => {}
        }
        load.as_mut().context("it has no load")?.status().map(Some)
    }
}

/// A share of a load.
struct Load {
    session: Session,
    reactors: Reactors,
    /// Begins and ends the window.
    timer: Option<JoinHandle<Result<HostResult>>>,
    has_told: bool,
}

impl Load {
    fn start(
        spec: &LoadSpec,
        jobs: std::ops::Range<u32>,
        cpus: &[usize],
        access: &Access,
        pool: &str,
    ) -> Result<Load> {
        let (session, reactors) = start_cluster_share(spec, jobs, None, cpus, access, pool)?;
        Ok(Load { session, reactors, timer: None, has_told: false })
    }

    fn measure(&mut self, clock: &Arc<HostClock>, at_ns: u64, runtime_ms: Option<u64>) -> Result<()> {
        ensure!(self.timer.is_none(), "it has a window already");
        let wait = Duration::from_nanos(at_ns.saturating_sub(clock.now_ns()));
        ensure!(
            wait < WAIT_MAX,
            "its window is to begin in {wait:?}: its clock was changed; repeat the load"
        );
        let (control, clock) = (Arc::clone(&self.session.control), Arc::clone(clock));
        let length = runtime_ms.map(Duration::from_millis);
        let timer = std::thread::Builder::new().name("window".into());
        self.timer = Some(timer.spawn(move || window(&control, &clock, (wait, at_ns), length))?);
        Ok(())
    }

    /// How the jobs stand; their counts are in it once.
    fn status(&mut self) -> Result<HostStatus> {
        let status = self.session.poll();
        let mut told = HostStatus { progress: status.progress, result: None };
        let is_open = self.timer.as_ref().is_some_and(|timer| !timer.is_finished());
        if status.done && !is_open && !self.has_told {
            self.has_told = true;
            let window = match self.timer.take().map(JoinHandle::join) {
                Some(window) => window.map_err(|_| anyhow!("the thread of its window failed"))??,
                None => HostResult::default(),
            };
            told.result = Some(HostResult { result: JobResult::merged(&status.results), ..window });
        }
        Ok(told)
    }

    /// Stops what still runs.
    fn end(self) -> Result<()> {
        if !self.has_told {
            self.session.control.fail();
        }
        self.session.control.set_phase(Phase::Stop);
        let ended = self.timer.map(JoinHandle::join);
        self.reactors.stopper().stop();
        self.reactors.join().context("a thread of the generator failed")?;
        ended.map_or(Ok(()), |ended| ended.map(drop).map_err(|_| anyhow!("the thread of the window failed")))
    }
}

/// Waits, opens the window, and closes it when its time is over or the controller says so. Returns all but the jobs' counts.
fn window(
    control: &Control,
    clock: &HostClock,
    (wait, at_ns): (Duration, u64),
    length: Option<Duration>,
) -> Result<HostResult> {
    let sampler = Sampler::new(Vec::new(), Vec::new(), Vec::new());
    std::thread::sleep(wait);
    let late_ns = clock.now_ns().saturating_sub(at_ns);
    control.set_phase(Phase::Measure);
    let (began, start) = (Instant::now(), sampler.sample()?);
    clock.is_changed.store(true, Ordering::Relaxed);
    let left = || length.map_or(LOOK, |length| length.saturating_sub(began.elapsed()));
    while control.phase() == Phase::Measure && !control.has_failed() && !left().is_zero() {
        std::thread::sleep(left().min(LOOK));
    }
    control.set_phase(Phase::Stop);
    let window_ns = began.elapsed().as_nanos() as u64;
    let machine = sampler.window(&start, &sampler.sample()?, 0.0).machine;
    Ok(HostResult { machine, window_ns, late_ns, ..HostResult::default() })
}
