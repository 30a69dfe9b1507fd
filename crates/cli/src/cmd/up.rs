//! `carmine up`: makes a testbed, or starts a stopped one again.

mod precondition;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use carmine_load::drive::StoreFacts;
use carmine_testbed::{Layout, Plan, StartOptions, StoreKind, Testbed, Wish};
use carmine_topology::Topology;
use carmine_types::OsdId;

pub(crate) use precondition::PreconditionArgs;

use crate::args::UpArgs;
use crate::cmd::osd::facts;
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

pub(crate) fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let wish = args.wish.wish();
    let topology = Topology::detect()?;
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let mut start = StartOptions {
        program: std::env::current_exe().context("cannot find this program's own file")?,
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
        "up: {} OSDs x {} reactors, {}, pool {} size {} with {} PGs; monitor at {mon}\n\
         stock clients: rados -c {} -p {} ls\n",
        plan.osds(),
        plan.cpu.reactors,
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

/// Prints the grid, and what the user should know before it starts.
fn announce(plan: &Plan) -> anyhow::Result<()> {
    print(&plan.render())?;
    if !plan.addr.is_loopback() {
        note(&format!(
            "warning: --addr {}: there is no authentication and no encryption; whoever reaches this address can read \
             and destroy all data",
            plan.addr
        ));
    }
    Ok(())
}
