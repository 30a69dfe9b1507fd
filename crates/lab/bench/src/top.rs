//! `carmine top`: what a running testbed does, second by second.

mod draw;
mod model;
mod sample;
mod screen;
mod source;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use carmine_testbed::{Layout, require_plan};
use carmine_types::counted;
use clap::Args;

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;
use model::View;
use screen::{End, PERIOD};
use source::Source;

/// Options of `top`.
#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Print one second's figures as text, and end
    #[arg(long)]
    once: bool,
    /// Print a line of JSON each second (with --once: one)
    #[arg(long)]
    json: bool,
}

/// Shows a running testbed until the user quits (exit code 0) or the testbed goes away (1).
///
/// # Errors
/// There is no running testbed, or no terminal.
pub fn run(args: &TopArgs, cancel: &AtomicBool) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = require_plan(&layout)?;
    let dir = layout.dir().display().to_string();
    let title = format!(
        "{dir}: {} x {}, {}",
        counted(plan.osds() as usize, "OSD"),
        counted(plan.cpu.reactors, "reactor"),
        plan.store
    );
    let source = Source::new(layout, plan);
    if !source.is_alive() {
        bail!("the testbed in {dir} does not run; start it with `carmine up --dir {dir}`");
    }
    let end = if args.json || args.once {
        lines(&source, &title, args, cancel)?
    } else if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        screen::run(&source, &title, cancel)?
    } else {
        return Err(Usage("top needs a terminal: take --once or --json".into()).into());
    };
    match end {
        End::Asked => Ok(ExitCode::SUCCESS),
        End::TestbedGone => {
            note(&format!("the testbed in {dir} has stopped"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// One or more seconds as lines.
fn lines(source: &Source, title: &str, args: &TopArgs, cancel: &AtomicBool) -> anyhow::Result<End> {
    let mut before = source.sample();
    loop {
        std::thread::sleep(PERIOD);
        if cancel.load(Ordering::Relaxed) {
            return Ok(End::Asked);
        }
        if !source.is_alive() {
            return Ok(End::TestbedGone);
        }
        let now = source.sample();
        let view = View::between(&source.plan().grid, &before, &now);
        if args.json {
            print(&format!("{}\n", serde_json::to_string(&view).context("cannot print the figures")?))?;
        } else {
            print(&draw::plain(title, &view))?;
        }
        if args.once {
            return Ok(End::Asked);
        }
        before = now;
    }
}
