//! One OSD process: builds its reactors by the plan, opens its store, and runs.

use std::process::ExitCode;

use crate::args::OsdArgs;

pub(crate) fn run(args: &OsdArgs) -> anyhow::Result<ExitCode> {
    let _ = (args.id, args.mkfs, args.force_wipe);
    carmine_testbed::require_plan(&carmine_testbed::Layout::new(&args.dir.dir)?)?;
    anyhow::bail!("the OSD is not built in yet")
}
