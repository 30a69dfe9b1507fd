//! `carmine up`: makes a testbed, or starts a stopped one again.

use std::process::ExitCode;

use anyhow::Result;
use carmine_load::drive::StoreFacts;
use carmine_testbed::drive::facts;
use carmine_testbed::precondition::{self, Outcome, PreconditionOptions};
use carmine_testbed::{
    BedKind, Daemon, DirArgs, Layout, Plan, StartOptions, Started, Testbed, Wish, check_wipe, fresh_uuid,
    note, print, refuse, refuse_used_folder,
};
use carmine_topology::{CpuList, Topology};
use carmine_types::{StoreKind, counted};
use clap::Args;

use super::testbed::SpecArgs;
use crate::progress;

#[derive(Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    spec: SpecArgs,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    #[command(flatten)]
    precondition: PreconditionOptions,
    /// Seconds until every PG must be active
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(crate) fn run(args: UpArgs) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let wish = args.spec.wish(BedKind::Testbed)?;
    let topology = Topology::detect()?;
    let up = Up {
        wipe: args.force_wipe,
        precondition: Some(&args.precondition).filter(|asked| asked.precondition),
        kind: BedKind::Testbed,
        plan: &|made| match made {
            Some(plan) => Ok(plan.revise(&wish, &topology)?),
            None => Ok(Plan::new(&wish, &topology, &fresh_uuid()?)?),
        },
    };
    let (testbed, started) = progress::shown(args.timeout, |start| up.bring_up(&layout, start))?;
    report(&testbed, &started)
}

/// Prints what runs. The exit code says whether that is all.
pub(super) fn report(testbed: &Testbed, started: &Started) -> Result<ExitCode> {
    let plan = testbed.plan();
    let mons: Vec<String> = started.mons.iter().map(ToString::to_string).collect();
    let stores = plan
        .osd_ids()
        .filter(|osd| !started.is_lost(*osd))
        .filter_map(|id| facts::read(testbed.layout(), plan, id));
    StoreFacts::lines(&stores.collect::<Vec<_>>()).iter().try_for_each(|line| print(&format!("{line}\n")))?;
    let (all, reactors) = (plan.osd_ids().count(), counted(plan.cpu.reactors, "reactor"));
    let osds = match started.lost.len() {
        0 => counted(all, "OSD"),
        lost => format!("{} of {}", all - lost, counted(all, "OSD")),
    };
    let (store, pool, mons) = (plan.store, &plan.pool, mons.join(", "));
    let conf = testbed.layout().ceph_conf();
    let (name, size, pgs, conf) = (&pool.name, pool.size, pool.pg_num, conf.display());
    print(&match &plan.joined {
        Some(joined) => {
            let names: Vec<String> = plan.osd_ids().map(|osd| osd.to_string()).collect();
            let (names, place) = (names.join(" "), joined.location.join(" "));
            format!(
                "up: {osds} x {reactors}, {store}: {names} at {place}, in the cluster of the monitors at {mons}\n\
                 stock clients: ceph -c {conf} osd tree\n"
            )
        }
        None => format!(
            "up: {osds} x {reactors}, {store}, pool {name} size {size} with {pgs} PGs; monitor at {mons}\n\
             stock clients: rados -c {conf} -p {name} ls\n"
        ),
    })?;
    if plan.host.is_some() && plan.joined.is_none() {
        print(&format!("other hosts, with a copy of {conf}: carmine join --ceph-conf COPY --host NAME\n"))?;
    }
    testbed.require_whole(started)?;
    Ok(ExitCode::SUCCESS)
}

/// A start of a testbed or a peer.
pub(super) struct Up<'a> {
    /// Overwrite devices that are not blank.
    pub(super) wipe: bool,
    /// The preconditioning of the drives that is asked for.
    pub(super) precondition: Option<&'a PreconditionOptions>,
    pub(super) kind: BedKind,
    /// The plan that is asked for: the revised plan of an existing testbed, or a new one.
    pub(super) plan: &'a dyn Fn(Option<&Plan>) -> Result<Plan>,
}

impl Up<'_> {
    /// Makes it, or starts a stopped one or its dead processes.
    pub(super) fn bring_up(
        &self,
        layout: &Layout,
        start: &mut StartOptions<'_>,
    ) -> Result<(Testbed, Started)> {
        let mut testbed = match Testbed::open(self.kind, layout.clone())? {
            Some(mut testbed) => {
                check_wipe(self.wipe, true, &testbed.plan().devices)?;
                let (running, missing) = testbed.parts()?;
                let is_whole = testbed.plan().complete && self.kind == BedKind::Testbed;
                if is_whole && !running.is_empty() && !missing.is_empty() {
                    self.refuse_other_settings(&testbed, &names(&running), &names(&missing))?;
                    self.refuse_precondition()?;
                    note(&format!("starting {}; already running: {}", names(&missing), names(&running)));
                    let started = testbed.start_some(&missing, start)?;
                    return Ok((testbed, started));
                }
                testbed.require_stopped()?;
                self.refuse_precondition()?;
                let plan = (self.plan)(Some(testbed.plan()))?;
                announce(&plan)?;
                if plan.store != StoreKind::Blue {
                    note(&format!("note: the store {} keeps nothing: the testbed starts empty", plan.store));
                }
                testbed.set_plan(plan)?;
                testbed
            }
            None => {
                let mut plan = (self.plan)(None)?;
                check_wipe(self.wipe, false, &plan.devices)?;
                announce(&plan)?;
                let written = self.precondition(layout, &mut plan, start)?;
                Testbed::create(layout, plan, self.wipe || written, start)?
            }
        };
        let started = testbed.start(start)?;
        Ok((testbed, started))
    }

    /// Fails if options ask for anything but the recorded settings: running daemons keep theirs.
    fn refuse_other_settings(&self, testbed: &Testbed, running: &str, missing: &str) -> Result<()> {
        // Even without options the CPUs may differ, because of what this process is allowed to use; nobody asked for that.
        let plan = testbed.plan();
        // Nor do interrupts stay where they are.
        let (asked, same) = ((self.plan)(Some(plan))?, plan.revise(&Wish::default(), &Topology::detect()?)?);
        let is_same = (&asked.spec, &asked.cpu, &asked.peer) == (&same.spec, &same.cpu, &same.peer);
        let dir = testbed.layout().dir().display();
        refuse!(
            !is_same,
            "these settings differ from the recorded ones, which are still in use ({running}): leave the options out to start \
             {missing} with the recorded ones, or stop all with `carmine down --dir {dir}` first"
        );
        Ok(())
    }

    /// Preconditions the drives of a new plan, if that was asked for, and records the outcome in it; true if something was written.
    fn precondition(&self, layout: &Layout, plan: &mut Plan, start: &mut StartOptions<'_>) -> Result<bool> {
        let Some(options) = self.precondition else { return Ok(false) };
        refuse_used_folder(layout.dir(), self.kind)?;
        let done = precondition::run(&plan.devices, self.wipe, options, start)?;
        done.iter().for_each(|drive| note(&format!("precondition {drive}")));
        let written = done.iter().any(|drive| drive.outcome != Outcome::Na);
        // Zeros everywhere would undo it.
        plan.spec.sparse |= written;
        plan.preconditioned = done;
        Ok(written)
    }

    /// Fails if drives are to be written whose stores exist already.
    fn refuse_precondition(&self) -> Result<()> {
        let why =
            "the stores of this testbed exist, and it would overwrite them; `carmine destroy` removes them";
        refuse!(self.precondition.is_some(), "--precondition: {why}");
        Ok(())
    }
}

fn names(daemons: &[Daemon]) -> String {
    daemons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Prints the grid, and what the user should know before it starts.
fn announce(plan: &Plan) -> Result<()> {
    plan.refuse_exposure()?;
    print(&plan.render())?;
    if let Some(warning) = plan.exposure_warning() {
        note(&format!("warning: {warning}"));
    }
    let given = plan.cpu.cpus.as_ref().map_or(0, CpuList::len);
    let unused = given.saturating_sub(plan.cpu.reactors * plan.cpu.osds);
    if plan.kind() == BedKind::Peer && unused > 0 {
        note(&format!("note: {unused} of the {given} CPUs stay unused: they cannot be divided evenly"));
    }
    Ok(())
}
