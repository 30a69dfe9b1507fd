//! `carmine down` and `carmine destroy`.

use std::process::ExitCode;

use carmine_testbed::{Layout, Stopped, Testbed};

use crate::args::DirArgs;
use crate::output::{Usage, print};

fn open(args: &DirArgs) -> anyhow::Result<Testbed> {
    let layout = Layout::new(&args.dir)?;
    let dir = layout.dir().display().to_string();
    match Testbed::open(layout)? {
        Some(testbed) => Ok(testbed),
        None => Err(Usage(format!("there is no testbed in {dir}")).into()),
    }
}

/// Stops the processes; a testbed that is stopped already is fine.
pub(crate) fn down(args: &DirArgs) -> anyhow::Result<ExitCode> {
    let mut testbed = open(args)?;
    let mut text = String::new();
    for (daemon, how) in testbed.stop()? {
        let how = match how {
            Stopped::NotRunning => "was not running",
            Stopped::Clean => "stopped",
            Stopped::Killed => "did not stop in time and was killed",
        };
        text.push_str(&format!("{daemon} {how}\n"));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Stops the processes and removes all that the testbed made.
pub(crate) fn destroy(args: &DirArgs) -> anyhow::Result<ExitCode> {
    let testbed = open(args)?;
    let dir = testbed.layout().dir().to_path_buf();
    testbed.destroy()?;
    let left = if dir.exists() { " (the folder stays: it has other files)" } else { "" };
    print(&format!("removed the testbed in {}{left}\n", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
