//! A load that other hosts make: `carmine load` serves, and the controller here tells each host its jobs, begins the window on all
//! of them at once, and gathers what they counted. One thread holds the connection to each host; the controller never waits for one.

mod serve;
mod wire;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use carmine_load::hosts::{Clock, LoadHost, RoundTrip, check_result, shares};
use carmine_load::{BenchStatus, LoadSpec, Phase, Progress};

use crate::GitHash;
use crate::sample::unix_now;
use wire::{ANSWER_MAX, Answer, HostResult, HostStatus, Request, receive, send};

pub use serve::{LoadArgs, run};

/// Time for an answer, or for a connection.
const WORD_LIMIT: Duration = Duration::from_secs(5);
/// How often a host is asked how its jobs stand.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Round trips of which the quickest says what time it is.
const ROUND_TRIPS: usize = 8;
/// From the agreement on the window to its begin, beside the time of round trips: the hosts must have heard of it.
const LEAD: Duration = Duration::from_millis(60);
/// The controller reads its counters so long before the window: then it ends them just before the window ends, too.
const READ_BEFORE: Duration = Duration::from_millis(20);

/// This build as a controller and its hosts compare it: results of different programs are not added up.
fn build(git_hash: GitHash) -> String {
    let commit = if git_hash.0.is_empty() { "unknown" } else { git_hash.0 };
    format!("{} of commit {commit}", env!("CARGO_PKG_VERSION"))
}

/// True if the host is this machine, as far as its address says.
pub(crate) fn is_here(host: &str) -> bool {
    let ip = host.parse().map(|addr: SocketAddr| addr.ip());
    ip.map_or_else(|_| host.starts_with("localhost:"), |ip| ip.is_loopback())
}

/// An order to the thread of a host.
enum Order {
    Clock,
    Send(Request),
}

/// News from the thread of a host.
enum News {
    Greeted {
        cpus: u32,
    },
    Status(Progress),
    Clock(Clock),
    /// Its jobs have ended.
    Ended(Box<HostResult>, Clock),
    Failed(String),
}

/// A host as the controller sees it.
struct Link {
    orders: Sender<Order>,
    host: LoadHost,
    progress: Progress,
    /// Its clock, since it was last asked for.
    clock: Option<Clock>,
    result: Option<Box<HostResult>>,
}

/// The hosts that make a load. Dropped, it closes their connections, which ends what still runs there.
pub struct Hosts {
    links: Vec<Link>,
    news: Receiver<(usize, News)>,
    phase: Phase,
    /// Why the load cannot go on.
    failed: Option<String>,
}

impl Hosts {
    /// Sends each host its share of a load; [`Hosts::status`] says what became of it.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn start(
        hosts: &[String],
        spec: &LoadSpec,
        mons: &[SocketAddr],
        pool: &str,
        git_hash: GitHash,
    ) -> Result<Hosts> {
        let (told, news) = channel();
        let each = hosts.iter().zip(shares(spec.numjobs, hosts.len())).enumerate();
        let link = |(at, (host, jobs)): (usize, (&String, Range<u32>))| -> Result<Link> {
            let (orders, received) = channel();
            let (spec, mons, pool) = (Box::new(spec.clone()), mons.to_vec(), pool.to_owned());
            let row = LoadHost { host: host.clone(), jobs: jobs.len() as u32, ..LoadHost::default() };
            let start = Request::Start { spec, jobs, mons, pool };
            let (told, host, build) = (told.clone(), host.clone(), build(git_hash));
            let thread = std::thread::Builder::new().name("load host".into());
            thread.spawn(move || {
                // If the controller is gone, nobody wants to know.
                let tell = |news| drop(told.send((at, news)));
                if let Err(error) = talk(&host, &build, start, &received, &tell) {
                    tell(News::Failed(format!("load host {host}: {error:#}")));
                }
            })?;
            Ok(Link { orders, host: row, progress: Progress::default(), clock: None, result: None })
        };
        let links = each.map(link).collect::<Result<_>>()?;
        Ok(Hosts { links, news, phase: Phase::Setup, failed: None })
    }

    /// How all jobs stand, as of the last news. The results are those of the hosts.
    ///
    /// # Errors
    /// A host is gone, refuses, or does not answer: the others are stopped.
    pub(crate) fn status(&mut self) -> Result<BenchStatus> {
        for (at, news) in self.news.try_iter() {
            let Some(link) = self.links.get_mut(at) else { continue };
            match news {
                News::Greeted { cpus } => link.host.cpus = cpus,
                News::Status(progress) => link.progress = progress,
                News::Clock(clock) => link.clock = Some(clock),
                News::Ended(result, clock) => {
                    (link.host.clock_after, link.result) = (clock, Some(result));
                }
                News::Failed(error) => {
                    self.links
                        .iter()
                        .for_each(|link| link.order(Order::Send(Request::Phase { phase: Phase::Stop })));
                    self.failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = &self.failed {
            bail!("{error}");
        }
        let all = |is: fn(&Progress) -> bool| self.links.iter().all(|link| is(&link.progress));
        let sum = |of: fn(&Progress) -> u64| {
            self.links.iter().map(|link| of(&link.progress)).fold(0, u64::saturating_add)
        };
        let progress = Progress {
            ready: all(|p| p.ready),
            prefilled: all(|p| p.prefilled),
            finished: all(|p| p.finished),
            failed: self.links.iter().any(|link| link.progress.failed),
            ops: sum(|p| p.ops),
            prefill_bytes_done: sum(|p| p.prefill_bytes_done),
            prefill_bytes_total: sum(|p| p.prefill_bytes_total),
        };
        let done = self.links.iter().all(|link| link.result.is_some());
        let results =
            self.links.iter().filter(|_| done).filter_map(|link| Some(link.result.as_ref()?.result.clone()));
        let jobs = self.links.iter().map(|link| link.host.jobs).sum();
        Ok(BenchStatus { phase: self.phase, jobs, progress, done, results: results.collect() })
    }

    /// Moves all jobs on. Their window begins by [`Hosts::agree`].
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        let links = self.links.iter().filter(|_| phase != Phase::Measure);
        links.for_each(|link| link.order(Order::Send(Request::Phase { phase })));
    }

    /// Asks for the time everywhere.
    pub(crate) fn ask_clocks(&mut self) {
        for link in &mut self.links {
            link.clock = None;
            link.order(Order::Clock);
        }
    }

    /// Once all clocks are known: tells the hosts when the window begins, and returns for how long the controller should wait
    /// before it reads its counters.
    pub(crate) fn agree(&mut self, spec: &LoadSpec) -> Option<Duration> {
        let clocks: Vec<Clock> = self.links.iter().map(|link| link.clock).collect::<Option<_>>()?;
        let slowest_ns = clocks.iter().map(|clock| clock.error_ns).max().unwrap_or(0);
        // An error is half of a round trip.
        let lead = LEAD + Duration::from_nanos(slowest_ns.saturating_mul(4)).min(WORD_LIMIT);
        let at_ns = (unix_now() + lead).as_nanos() as u64;
        let runtime_ms = (!spec.ends_by_itself()).then_some(spec.runtime_ms);
        for (link, clock) in self.links.iter_mut().zip(clocks) {
            link.host.clock = clock;
            link.order(Order::Send(Request::Measure { at_ns: clock.at(at_ns), runtime_ms }));
        }
        Some(lead - READ_BEFORE)
    }

    /// What each host did, and the CPU time (ns) of those that are this machine: it is part of what the machine's CPUs did.
    pub(crate) fn outcome(&self) -> (Vec<LoadHost>, u64) {
        let hosts = self.links.iter().map(Link::outcome).collect();
        let here = self.links.iter().filter(|link| is_here(&link.host.host));
        let here_ns = here.filter_map(|link| Some(link.result.as_ref()?.machine.generator_ns)).sum();
        (hosts, here_ns)
    }
}

impl Link {
    /// A thread that is gone has said why.
    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    fn outcome(&self) -> LoadHost {
        let Some(told) = &self.result else { return self.host.clone() };
        let (result, machine, client) = (&told.result, &told.machine, &told.result.client);
        let part = |ns: u64, of_ns: u64| if of_ns > 0 { ns as f64 / of_ns as f64 } else { 0.0 };
        LoadHost {
            ops: result.ops(),
            bytes: result.read.bytes + result.write.bytes,
            client_busy: (client.wall_ns > 0).then(|| part(client.busy_ns + client.wait_ns, client.wall_ns)),
            client_cores_used: part(machine.generator_ns, told.window_ns),
            generator: machine.generator,
            window_seconds: told.window_ns as f64 / 1e9,
            late_ns: told.late_ns,
            ..self.host.clone()
        }
    }
}

/// A greeted host.
struct Talk {
    stream: TcpStream,
}

/// Talks to a host until its jobs have ended or the controller wants no more.
fn talk(
    host: &str,
    build: &str,
    start: Request,
    orders: &Receiver<Order>,
    tell: &dyn Fn(News),
) -> Result<()> {
    let (mut talk, cpus) = Talk::greet(host, build)?;
    tell(News::Greeted { cpus });
    talk.status(&start)?;
    loop {
        let status = match orders.recv_timeout(ASK_EVERY) {
            Ok(Order::Clock) => {
                tell(News::Clock(talk.clock()?));
                continue;
            }
            Ok(Order::Send(request)) => talk.status(&request)?,
            Err(RecvTimeoutError::Timeout) => talk.status(&Request::Status)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        tell(News::Status(status.progress));
        if let Some(mut told) = status.result {
            check_result(&told.result, &told.machine.generator).map_err(|why| anyhow!(why))?;
            let error = told.result.first_error.take();
            told.result.first_error = error.map(|error| format!("load host {host}: {error}"));
            tell(News::Ended(Box::new(told), talk.clock()?));
            return Ok(());
        }
    }
}

impl Talk {
    /// Connects, and finds out whether the host is of this build and free; second: its CPUs.
    fn greet(host: &str, build: &str) -> Result<(Talk, u32)> {
        let start = || {
            format!(
                "no `carmine load` answers: start `carmine load --listen {host}` there, and let no firewall be between"
            )
        };
        let addr = host.to_socket_addrs().context("its address is not known")?.next();
        let stream = TcpStream::connect_timeout(&addr.context("its name has no address")?, WORD_LIMIT);
        let stream = stream.with_context(start)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WORD_LIMIT))?;
        stream.set_write_timeout(Some(WORD_LIMIT))?;
        let mut talk = Talk { stream };
        match talk.ask(&Request::Hello { build: build.to_owned() }).with_context(start)? {
            Answer::Hello { cpus } => Ok((talk, cpus)),
            _ => bail!("it does not say hello"),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer> {
        let said = send(&mut self.stream, request).and_then(|()| receive(&mut self.stream, ANSWER_MAX));
        match said {
            Ok(Answer::Refused { why }) => bail!("it refuses: {why}"),
            Ok(answer) => Ok(answer),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!(
                    "no answer for {} s: it hangs, or the network is cut; the load is stopped",
                    WORD_LIMIT.as_secs()
                )
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => bail!("{error}"),
            Err(error) => bail!(
                "its `carmine load` has ended or the connection broke ({error}); see what it printed, and start it again. The load is \
                 stopped"
            ),
        }
    }

    fn status(&mut self, request: &Request) -> Result<HostStatus> {
        match self.ask(request)? {
            Answer::Status(status) => Ok(*status),
            _ => bail!("an answer to another question"),
        }
    }

    fn clock(&mut self) -> Result<Clock> {
        let now_ns = || unix_now().as_nanos() as u64;
        let mut trips = Vec::new();
        for _ in 0..ROUND_TRIPS {
            let asked_ns = now_ns();
            let Answer::Clock { received_ns, answered_ns } = self.ask(&Request::Clock)? else {
                bail!("an answer to another question");
            };
            trips.push(RoundTrip { asked_ns, received_ns, answered_ns, back_ns: now_ns() });
        }
        Clock::of(&trips).context("no time")
    }
}
