//! `carmine down` and `carmine destroy`.

use std::process::ExitCode;

use carmine_testbed::{Daemon, Layout, Ruin, Stopped, Testbed};

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;

pub(super) fn open(args: &DirArgs) -> anyhow::Result<Testbed> {
    let layout = Layout::new(&args.dir)?;
    let dir = layout.dir().display().to_string();
    match Testbed::open(layout)? {
        Some(testbed) => Ok(testbed),
        None => Err(Usage(format!("there is no testbed in {dir}")).into()),
    }
}

/// Stops the processes; a testbed that is stopped already is fine.
pub(crate) fn down(args: &DirArgs) -> anyhow::Result<ExitCode> {
    if let Some(ruin) = Ruin::open(Layout::new(&args.dir)?)? {
        print(&stopped_lines(&ruin.stop()?))?;
        note(&format!("note: {}; its data is as it was, but it cannot be started again", ruin.why()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut testbed = open(args)?;
    print(&stopped_lines(&testbed.stop()?))?;
    Ok(ExitCode::SUCCESS)
}

/// How each daemon ended, a line each.
pub(crate) fn stopped_lines(report: &[(Daemon, Stopped)]) -> String {
    let line = |(daemon, how): &(Daemon, Stopped)| {
        let how = match how {
            Stopped::NotRunning => "was not running",
            Stopped::Clean => "stopped",
            Stopped::Killed => "did not stop in time and was killed",
        };
        format!("{daemon} {how}\n")
    };
    report.iter().map(line).collect()
}

/// Stops the processes and removes all that the testbed made.
pub(crate) fn destroy(args: &DirArgs) -> anyhow::Result<ExitCode> {
    let dir = match Ruin::open(Layout::new(&args.dir)?)? {
        Some(ruin) => {
            let dir = ruin.layout().dir().to_path_buf();
            ruin.destroy()?;
            dir
        }
        None => {
            let testbed = open(args)?;
            let dir = testbed.layout().dir().to_path_buf();
            testbed.destroy()?;
            dir
        }
    };
    let left = if dir.exists() { " (the folder stays: it has other files)" } else { "" };
    print(&format!("removed the testbed in {}{left}\n", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
