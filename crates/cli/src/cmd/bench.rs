//! `carmine bench`: loads a testbed and measures it.

use std::process::ExitCode;

use clap::Args;

use crate::args::DirArgs;

/// Options of the bench, in fio's words.
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
}

pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let _ = args.dir;
    anyhow::bail!("`carmine bench` is not built into this version yet")
}
