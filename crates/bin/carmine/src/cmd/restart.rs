//! `carmine restart`: starts OSDs of a running testbed again.

use std::process::ExitCode;
use std::time::Duration;

use carmine_testbed::{DaemonPrograms, StartOptions};
use carmine_types::OsdId;

use super::down;
use crate::args::RestartArgs;
use crate::progress::Progress;
use carmine_daemon::signals;
use carmine_testbed::output::print;

pub(crate) fn run(args: &RestartArgs) -> anyhow::Result<ExitCode> {
    let mut testbed = down::open(&args.dir)?;
    let osds: Vec<OsdId> = match args.osd.as_slice() {
        [] => (0..testbed.plan().osds()).map(OsdId).collect(),
        some => some.iter().copied().map(OsdId).collect(),
    };
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let mut start = StartOptions {
        programs: DaemonPrograms::beside_own()?,
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
