//! `carmine up`: makes a testbed, or starts a stopped one again.

use std::process::ExitCode;

use carmine_load::drive::StoreFacts;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::drive::facts;
use carmine_testbed::output::{note, print};
use carmine_testbed::precondition::{self, Outcome, PreconditionOptions};
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{
    Daemon, Layout, Plan, StartOptions, Testbed, Wish, check_wipe, fresh_uuid, refuse_used_folder,
};
use carmine_topology::Topology;
use carmine_types::{OsdId, StoreKind, counted};
use clap::Args;

use super::done;
use super::testbed::SpecArgs;
use crate::progress;

/// Largest random write: a buffer's size.
const BS_MAX: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    spec: SpecArgs,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    /// Write the drives of --devs into their steady state before the stores are made: twice their capacity sequentially,
    /// then rounds of random writes until five rounds differ by at most 20 % and drift by at most 10 % (SNIA's definition).
    /// Takes hours; on files and virtual disks it is n/a
    #[arg(long, help_heading = "Storage")]
    precondition: bool,
    #[command(flatten)]
    options: PreconditionOptions,
    /// Seconds until every PG must be active
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(crate) fn run(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let wish = args.spec.wish()?;
    let (testbed, mon) = progress::shown(args.timeout, |start| bring_up(layout, args, &wish, start))?;
    let plan = testbed.plan();
    let stores = (0..plan.osds()).filter_map(|id| facts::of(testbed.layout(), plan, OsdId(id)));
    StoreFacts::lines(&stores.collect::<Vec<_>>()).iter().try_for_each(|line| print(&format!("{line}\n")))?;
    let conf = testbed.layout().ceph_conf();
    done(&format!(
        "up: {} x {}, {}, pool {} size {} with {} PGs; monitor at {mon}\n\
         stock clients: rados -c {} -p {} ls\n",
        counted(plan.osds() as usize, "OSD"),
        counted(plan.cpu.reactors, "reactor"),
        plan.store,
        plan.pool.name,
        plan.pool.size,
        plan.pool.pg_num,
        conf.display(),
        plan.pool.name,
    ))
}

fn bring_up(
    layout: Layout,
    args: &UpArgs,
    wish: &Wish,
    start: &mut StartOptions<'_>,
) -> anyhow::Result<(Testbed, std::net::SocketAddr)> {
    let (wipe, topology) = (args.force_wipe, &Topology::detect()?);
    let mut testbed = match Testbed::open(layout.clone())? {
        Some(mut testbed) => {
            check_wipe(wipe, true, &testbed.plan().devices)?;
            let (running, missing) = testbed.parts()?;
            if testbed.plan().complete && !running.is_empty() && !missing.is_empty() {
                // Those that run keep their settings. Without options the CPUs may be others too, by what this process is allowed
                // to use: that is not asked for.
                let plan = testbed.plan();
                if plan.revise(wish, topology)? != plan.revise(&Wish::default(), topology)? {
                    let dir = testbed.layout().dir().display();
                    let (running, missing) = (names(&running), names(&missing));
                    anyhow::bail!(Usage(format!(
                        "these settings differ from the recorded ones, with which {running} still run: leave the options out to \
                         start {missing} beside them, or stop all with `carmine down --dir {dir}` first"
                    )));
                }
                args.refuse_for_existing_stores()?;
                note(&format!("starting {}; {} run already", names(&missing), names(&running)));
                let mon = testbed.start_some(&missing, start)?;
                return Ok((testbed, mon));
            }
            testbed.require_stopped()?;
            args.refuse_for_existing_stores()?;
            let plan = testbed.plan().revise(wish, topology)?;
            announce(&plan)?;
            if plan.store != StoreKind::Blue {
                note(&format!("note: the store {} keeps nothing: the testbed starts empty", plan.store));
            }
            testbed.set_plan(plan)?;
            testbed
        }
        None => {
            let mut plan = Plan::new(wish, topology, &fresh_uuid()?)?;
            check_wipe(wipe, false, &plan.devices)?;
            announce(&plan)?;
            let written = args.precondition(&layout, &mut plan, start)?;
            Testbed::create(layout, plan, wipe || written, start)?
        }
    };
    let mon = testbed.start(start)?;
    Ok((testbed, mon))
}

fn names(daemons: &[Daemon]) -> String {
    daemons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Prints the grid, and what the user should know before it starts.
fn announce(plan: &Plan) -> anyhow::Result<()> {
    print(&plan.render())?;
    if !plan.addr.ip().is_loopback() {
        note(&format!(
            "warning: --addr {}: there is no authentication and no encryption; anyone who reaches this address can read \
             and destroy all data",
            plan.addr.ip()
        ));
    }
    Ok(())
}

impl UpArgs {
    /// Fails if preconditioning is asked for where stores are made already.
    fn refuse_for_existing_stores(&self) -> anyhow::Result<()> {
        if self.precondition {
            let why = "the stores of this testbed exist, and it would overwrite them; `carmine destroy` removes them";
            anyhow::bail!(Usage(format!("--precondition: {why}")));
        }
        Ok(())
    }

    /// Preconditions the drives of `plan`, if asked to, and notes the outcome there; true if something was written.
    fn precondition(
        &self,
        layout: &Layout,
        plan: &mut Plan,
        start: &mut StartOptions<'_>,
    ) -> anyhow::Result<bool> {
        if !self.precondition {
            return Ok(false);
        }
        let bs_bytes = self.options.bs_bytes;
        if bs_bytes > BS_MAX || !bs_bytes.is_multiple_of(4096) || bs_bytes == 0 {
            anyhow::bail!(Usage(format!("--precondition-bs {bs_bytes}: take a multiple of 4096 up to 1m")));
        }
        refuse_used_folder(layout.dir(), "testbed")?;
        let done =
            precondition::run(&plan.devices, self.force_wipe, &self.options, start.cancel, start.events)?;
        done.iter().for_each(|drive| note(&format!("precondition {drive}")));
        let written = done.iter().any(|drive| drive.outcome != Outcome::Na);
        // Zeros everywhere would undo it.
        plan.spec.sparse |= written;
        plan.preconditioned = done;
        Ok(written)
    }
}
