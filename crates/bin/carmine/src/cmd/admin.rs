//! `carmine admin`: an admin command to one OSD, for tests and debugging.

use std::process::ExitCode;

use carmine_testbed::{Layout, ask_osd};
use carmine_types::OsdId;

use crate::args::AdminArgs;
use carmine_testbed::output::print;

/// Prints the OSD's answer.
pub(crate) fn run(args: &AdminArgs) -> anyhow::Result<ExitCode> {
    let answer = ask_osd(&Layout::new(&args.dir.dir)?, OsdId(args.osd), &args.question)?;
    print(&format!("{answer}\n"))?;
    Ok(ExitCode::SUCCESS)
}
