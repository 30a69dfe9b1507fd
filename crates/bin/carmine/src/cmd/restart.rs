//! `carmine restart`: starts OSDs of a running testbed again.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use carmine_testbed::StartOptions;
use carmine_types::OsdId;

use super::down;
use crate::args::RestartArgs;
use crate::output::print;
use crate::progress::Progress;
use crate::signals;

pub(crate) fn run(args: &RestartArgs) -> anyhow::Result<ExitCode> {
    let mut testbed = down::open(&args.dir)?;
    let osds: Vec<OsdId> = match args.osd.as_slice() {
        [] => (0..testbed.plan().osds()).map(OsdId).collect(),
        some => some.iter().copied().map(OsdId).collect(),
    };
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let mut start = StartOptions {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        cancel: &cancel,
        events: &mut |event| progress.show(event),
        limit: Duration::from_secs(args.timeout),
    };
    let restarted = testbed.restart(&osds, &mut start);
    progress.finish();
    restarted?;
    let names: Vec<String> = osds.iter().map(ToString::to_string).collect();
    print(&format!("restarted {}; all PGs are active and clean\n", names.join(" ")))?;
    Ok(ExitCode::SUCCESS)
}
