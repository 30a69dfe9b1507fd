//! `carmine up`: makes a testbed, or starts a stopped one again.

mod precondition;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use carmine_load::drive::StoreFacts;
use carmine_testbed::{Daemon, DaemonPrograms, Layout, Plan, StartOptions, Testbed, Wish};
use carmine_topology::Topology;
use carmine_types::{OsdId, StoreKind, counted};

pub(crate) use precondition::PreconditionArgs;

use crate::args::UpArgs;
use crate::progress::Progress;
use carmine_daemon::signals;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::drive::facts;
use carmine_testbed::output::{note, print};

pub(crate) fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let wish = args.wish;
    let topology = Topology::detect()?;
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let mut start = StartOptions {
        programs: DaemonPrograms::beside_own()?,
        cancel: &cancel,
        events: &mut |event| progress.show(event),
        limit: Duration::from_secs(args.timeout),
    };
    let result = bring_up(layout, &wish, &topology, &args.precondition, &mut start);
    progress.finish();
    let (testbed, mon) = result?;
    let plan = testbed.plan();
    let stores = (0..plan.osds()).filter_map(|id| facts::of(testbed.layout(), plan, OsdId(id)));
    StoreFacts::lines(&stores.collect::<Vec<_>>()).iter().try_for_each(|line| print(&format!("{line}\n")))?;
    let conf = testbed.layout().ceph_conf();
    print(&format!(
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
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn bring_up(
    layout: Layout,
    wish: &Wish,
    topology: &Topology,
    precondition: &PreconditionArgs,
    start: &mut StartOptions<'_>,
) -> anyhow::Result<(Testbed, std::net::SocketAddr)> {
    let mut testbed = match Testbed::open(layout.clone())? {
        Some(mut testbed) => {
            if let Some((running, missing)) = testbed.parts()? {
                refuse_other_settings(&testbed, wish, topology, &running, &missing)?;
                precondition.refuse_for_existing_stores()?;
                note(&format!("starting {}; {} run already", names(&missing), names(&running)));
                let mon = testbed.start_missing(&missing, start)?;
                return Ok((testbed, mon));
            }
            testbed.require_stopped()?;
            precondition.refuse_for_existing_stores()?;
            let plan = testbed.plan().revise(wish, topology)?;
            announce(&plan)?;
            if plan.store != StoreKind::Blue {
                note(&format!("note: the store {} keeps nothing: the testbed starts empty", plan.store));
            }
            testbed.set_plan(plan)?;
            testbed
        }
        None => {
            let fsid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
                .context("cannot make a cluster id")?;
            let mut plan = Plan::new(wish, topology, fsid.trim())?;
            announce(&plan)?;
            let written = precondition.run(&layout, &mut plan, wish.force_wipe, start)?;
            Testbed::create(layout, plan, wish.force_wipe || written, start)?
        }
    };
    let mon = testbed.start(start)?;
    Ok((testbed, mon))
}

fn names(daemons: &[Daemon]) -> String {
    daemons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Fails if options ask for anything but the recorded settings: those daemons that run keep theirs.
fn refuse_other_settings(
    testbed: &Testbed,
    wish: &Wish,
    topology: &Topology,
    running: &[Daemon],
    missing: &[Daemon],
) -> anyhow::Result<()> {
    let plan = testbed.plan();
    // Without options the CPUs may be others too, by what this process is allowed to use: that is not asked for.
    if plan.revise(wish, topology)? == plan.revise(&Wish::default(), topology)? {
        return Ok(());
    }
    let (dir, running, missing) = (testbed.layout().dir().display(), names(running), names(missing));
    let why = format!(
        "these settings differ from the recorded ones, with which {running} still run: leave the options out to start {missing} \
         beside them, or stop all with `carmine down --dir {dir}` first"
    );
    Err(Usage(why).into())
}

/// Prints the grid, and what the user should know before it starts.
fn announce(plan: &Plan) -> anyhow::Result<()> {
    print(&plan.render())?;
    if !plan.addr.is_loopback() {
        note(&format!(
            "warning: --addr {}: there is no authentication and no encryption; anyone who reaches this address can read \
             and destroy all data",
            plan.addr
        ));
    }
    Ok(())
}
