//! `carmine join`: makes OSDs that join a cluster, which has its own monitors: a Ceph cluster, or a testbed of several hosts.

use std::process::ExitCode;

use anyhow::Result;
use carmine_testbed::precondition::PreconditionOptions;
use carmine_testbed::spec::hide_of_clusters;
use carmine_testbed::{BedKind, DirArgs, JoinWish, Layout, Plan, Wish, load, refuse};
use carmine_topology::Topology;
use clap::{Arg, Args};

use super::up::{Up, report};
use crate::progress;

/// Stands below the options.
const HELP: &str = "\
The OSDs get the smallest free numbers of the cluster, and in a Ceph cluster the device class
`carmine`. The --ceph-conf of a testbed that was made with `carmine up --host NAME` is in its folder;
it has the networks and heartbeats of all hosts, too. Afterwards
`carmine up`, `down`, `status`, `osd` and `top` with the same --dir work on these OSDs only, and
`ceph -c FOLDER/ceph.conf` on the cluster. `carmine osd remove N` takes one out, waits until it is
not needed any more, and removes it.";

/// An option of a testbed as OSDs of a cluster have it.
fn of_cluster(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "dir" => arg.help("Folder of the OSDs"),
        "host" => arg.help(
            "Name of this host in the CRUSH map [default: the machine's name, up to its first dot]",
        ),
        "addr" => arg.value_name("IP").help(
            "Address on which the OSDs listen [default: the one from which this machine reaches the monitors]",
        ),
        // Only `blue` keeps what it is given.
        "store" => arg.hide(true),
        _ => hide_of_clusters(arg),
    }
}

/// Add OSDs of this host to a cluster that runs: a Ceph cluster, or a testbed of several hosts.
#[derive(Args)]
#[command(mut_args(of_cluster), after_help = HELP)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    join: JoinWish,
    #[command(flatten)]
    wish: Wish,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    #[command(flatten)]
    precondition: PreconditionOptions,
    /// Seconds until every OSD must be up
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(crate) fn run(args: &JoinArgs) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let topology = Topology::detect()?;
    refuse_second(&layout, load(BedKind::Testbed, &layout)?.as_ref())?;
    let up = Up {
        wipe: args.force_wipe,
        precondition: Some(&args.precondition).filter(|asked| asked.precondition),
        kind: BedKind::Testbed,
        plan: &|made| {
            refuse_second(&layout, made)?;
            Ok(Plan::new_joined(&args.wish, &args.join, &topology)?)
        },
    };
    let (testbed, started) = progress::shown(args.timeout, |start| up.bring_up(&layout, start))?;
    report(&testbed, &started)
}

/// Fails if there are OSDs in the folder.
fn refuse_second(layout: &Layout, made: Option<&Plan>) -> Result<()> {
    let dir = layout.dir().display();
    refuse!(
        made.is_some(),
        "there are OSDs in {dir} already: `carmine up --dir {dir}` starts them, `carmine osd add --dir {dir}` adds one"
    );
    Ok(())
}
