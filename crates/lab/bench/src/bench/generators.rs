//! A load that is moved through its phases: jobs in this process, or inside an OSD.

use std::io;
use std::rc::Rc;

use anyhow::Context;
use carmine_client::Client;
use carmine_load::{BenchAction, BenchStatus, JobSetup, LoadSpec, Phase, Session, run_cluster_job};
use carmine_reactor::{Config, PollPolicy, Reactors, Shard};
use carmine_types::OsdId;
use serde_json::Value;

use super::setup::Setup;

/// Buffers of a generator thread.
const ARENA_BYTES: usize = 256 << 20;

pub(crate) enum Generators {
    Near { session: Box<Session>, reactors: Reactors },
    Far { client: Rc<Client>, osd: OsdId },
}

impl Generators {
    /// Starts the jobs of `setup`: one reactor each on the client CPUs, or one on each reactor of an OSD.
    pub(crate) async fn start(setup: &Setup, client: &Rc<Client>) -> anyhow::Result<Generators> {
        match setup.in_process {
            Some(osd) => {
                let drive = Generators::Far { client: Rc::clone(client), osd };
                drive
                    .ask(&BenchAction::Start { spec: Box::new(setup.spec.clone()), pool: setup.pool.clone() })
                    .await?;
                Ok(drive)
            }
            None => Self::near(setup),
        }
    }

    fn near(setup: &Setup) -> anyhow::Result<Generators> {
        let (session, jobs) = Session::new(&setup.spec, setup.spec.numjobs, setup.state.clone());
        let cpus = setup.bed.client_cpus();
        let config = Config {
            name: "load".into(),
            cpus: (0..jobs.len()).map(|job| cpus.get(job % cpus.len().max(1)).copied()).collect(),
            poll: PollPolicy::default(),
            alien_threads: 0,
            arena_bytes_per_shard: ARENA_BYTES,
            ..Config::default()
        };
        let (mon, pool) = (setup.bed.mon, setup.pool.clone());
        let reactors = Reactors::start(config, move |shard: Shard| {
            let setup: Option<JobSetup> = jobs.get(usize::from(shard.id().0)).cloned();
            let pool = pool.clone();
            async move {
                if let Some(setup) = setup {
                    run_cluster_job(&shard, mon, &pool, setup).await;
                }
            }
        })
        .context("cannot start the generator's threads")?;
        Ok(Generators::Near { session: Box::new(session), reactors })
    }

    pub(crate) async fn status(&mut self) -> anyhow::Result<BenchStatus> {
        match self {
            Generators::Near { session, .. } => Ok(session.poll()),
            Generators::Far { .. } => self.ask(&BenchAction::Status).await,
        }
    }

    pub(crate) async fn set_phase(&mut self, phase: Phase) -> anyhow::Result<()> {
        match self {
            Generators::Near { session, .. } => {
                session.control().set_phase(phase);
                Ok(())
            }
            Generators::Far { .. } => self.ask(&BenchAction::Phase { phase }).await.map(drop),
        }
    }

    /// Tells the jobs not to wait long for answers that won't come.
    pub(crate) fn give_up(&self) {
        if let Generators::Near { session, .. } = self {
            session.control().fail();
        }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        match self {
            Generators::Near { session, .. } => Some(session),
            Generators::Far { .. } => None,
        }
    }

    async fn ask(&self, action: &BenchAction) -> anyhow::Result<BenchStatus> {
        let Generators::Far { client, osd } = self else { anyhow::bail!("the load runs in this process") };
        let mut request = serde_json::to_value(action).context("cannot write a bench request")?;
        if let Value::Object(map) = &mut request {
            map.insert("prefix".into(), "load".into());
        }
        let answer = client
            .admin(*osd, &request.to_string())
            .await
            .with_context(|| format!("in-process load of {osd}"))?;
        serde_json::from_str(&answer).with_context(|| format!("{osd} answered `{answer}`"))
    }

    /// Ends the generator's threads.
    pub(crate) fn join(self) -> io::Result<()> {
        match self {
            Generators::Near { reactors, .. } => {
                reactors.stopper().stop();
                reactors.join()
            }
            Generators::Far { .. } => Ok(()),
        }
    }
}

/// The load as it was really made: in-process, each reactor is a job.
pub(crate) fn effective_spec(spec: &LoadSpec, status: &BenchStatus) -> LoadSpec {
    LoadSpec { numjobs: status.jobs, ..spec.clone() }
}
