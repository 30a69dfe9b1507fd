//! Alien threads: a bounded pool for code that blocks (RocksDB), with its own CPU set and its own account.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};

use crate::config::Config;
use crate::sys;

/// A piece of blocking work, which reports its own completion.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Jobs queued for a thread; further ones wait in their shards.
const QUEUE: usize = 1024;

/// The pool of a process. Threads start with the first job.
pub(crate) struct AlienPool {
    name: String,
    threads: usize,
    cpus: Vec<usize>,
    /// CPUs of the thread that created the pool, which unpinned threads get, too.
    home: Option<sys::Affinity>,
    /// Whether reactors run on the same CPUs, and take precedence.
    shares_cpu: bool,
    jobs: OnceLock<Option<Sender<Job>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl AlienPool {
    pub(crate) fn new(config: &Config) -> AlienPool {
        AlienPool {
            name: config.name.clone(),
            threads: config.alien_threads,
            cpus: config.alien_cpus.clone(),
            home: sys::affinity().ok(),
            shares_cpu: config.alien_shares_cpu,
            jobs: OnceLock::new(),
            handles: Mutex::new(Vec::new()),
        }
    }

    fn start(&self) -> Option<Sender<Job>> {
        if self.threads == 0 {
            return None;
        }
        let (tx, rx) = bounded(QUEUE);
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..self.threads {
            let cpu = (!self.cpus.is_empty()).then(|| self.cpus[i % self.cpus.len()]);
            match self.thread(i, cpu, rx.clone()) {
                Ok(h) => handles.push(h),
                Err(e) => tracing::error!("cannot start alien thread {i} of {}: {e}", self.name),
            }
        }
        (!handles.is_empty()).then_some(tx)
    }

    fn thread(&self, i: usize, cpu: Option<usize>, jobs: Receiver<Job>) -> io::Result<JoinHandle<()>> {
        let (home, shares_cpu) = (self.home, self.shares_cpu);
        std::thread::Builder::new().name(format!("{}-alien-{i}", self.name)).spawn(move || {
            match cpu {
                Some(id) => {
                    if !sys::pin(id) {
                        tracing::warn!("cannot pin an alien thread to CPU {id}");
                    }
                }
                // Spawned from a pinned reactor, it would inherit the reactor's one CPU.
                None => home.iter().for_each(sys::Affinity::restore),
            }
            if shares_cpu {
                sys::give_way();
            }
            while let Ok(job) = jobs.recv() {
                job();
            }
        })
    }

    /// Hands a job over; returns it if the queue is full. Without threads the job runs at once on the caller.
    fn give(&self, job: Job) -> Option<Job> {
        match self.jobs.get_or_init(|| self.start()) {
            Some(tx) => match tx.try_send(job) {
                Ok(()) => None,
                Err(TrySendError::Full(job)) => Some(job),
                Err(TrySendError::Disconnected(job)) => {
                    job();
                    None
                }
            },
            None => {
                job();
                None
            }
        }
    }
}

impl Drop for AlienPool {
    fn drop(&mut self) {
        self.jobs.take();
        let handles = std::mem::take(self.handles.get_mut().unwrap_or_else(PoisonError::into_inner));
        for h in handles {
            // A job that panics is caught where it runs.
            let _ = h.join();
        }
    }
}

/// One shard's view of the pool: its jobs in the pool, and those that the pool had no room for.
#[derive(Default)]
pub(crate) struct AlienQueue {
    backlog: VecDeque<Job>,
    outstanding: usize,
    given: u64,
}

impl AlienQueue {
    pub(crate) fn push(&mut self, pool: &AlienPool, job: Job) {
        self.outstanding += 1;
        self.given += 1;
        self.backlog.push_back(job);
        self.pump(pool);
    }

    /// Hands over as many jobs as the pool accepts.
    pub(crate) fn pump(&mut self, pool: &AlienPool) {
        while let Some(job) = self.backlog.pop_front() {
            if let Some(job) = pool.give(job) {
                self.backlog.push_front(job);
                break;
            }
        }
    }

    /// One job has reported.
    pub(crate) fn returned(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Jobs not yet reported.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Jobs since the start.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nice value of a pool's threads.
    fn nice(alien_shares_cpu: bool) -> i32 {
        let pool = AlienPool::new(&Config { alien_shares_cpu, ..Config::default() });
        let (tell, told) = std::sync::mpsc::channel();
        let job =
            Box::new(move || tell.send(std::fs::read_to_string("/proc/thread-self/stat")).expect("told"));
        assert!(pool.give(job).is_none(), "there is room");
        let stat = told.recv().expect("the job ran").expect("stat");
        // proc(5): the 19th field; the second one is a name in brackets, which may have spaces.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        fields.split_whitespace().nth(16).and_then(|nice| nice.parse().ok()).expect("a nice value")
    }

    #[test]
    fn aliens_give_way_only_to_reactors_on_their_cpus() {
        assert_eq!(nice(true), 10);
        assert_ne!(nice(false), 10, "or the tests themselves run at this priority");
    }
}
