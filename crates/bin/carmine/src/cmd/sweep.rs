//! `carmine sweep`: a plan of many points, run in a fair order and archived in one folder.

mod args;
mod begin;
mod executor;
mod list;
mod machine;
mod needs;
mod pack;
mod view;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use carmine_study::archive::{Chart, Run, RunWriter, State};
use carmine_study::expand::{Expansion, Machine, dry_run, expand};
use carmine_study::plan::Plan;
use carmine_study::run::{Ending, Job, Options, Sweep};
use carmine_study::scaling::scaling_of_run;

pub(crate) use args::SweepArgs;
use begin::Place;
use executor::Processes;
use view::View;

use carmine_daemon::signals;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{note, print};

/// 0: every point was measured; 1: some were not, or the sweep was stopped; 2: the plan can't be used.
pub(crate) fn run(args: SweepArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        print(&list::list(args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let args = if args.resume { begin::resumed(args)? } else { args };
    let plan = args.plan()?;
    let machine = machine::machine(&args)?;
    let expansion = expand(&plan, &machine).map_err(|e| Usage(e.to_string()))?;
    if args.dry_run {
        print(&if args.json { list::points_json(&expansion)? } else { dry_run(&plan, &expansion) })?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.topology.is_some() {
        return Err(Usage("--topology: another machine can only be looked at; add --dry-run".into()).into());
    }
    needs::check(&expansion)?;
    let place = Place::take(&args, &plan)?;
    let ending = go(&args, &plan, &machine, expansion, &place)?;
    finish(&args, &place.dir, ending)
}

fn go(
    args: &SweepArgs,
    plan: &Plan,
    machine: &Machine,
    expansion: Expansion,
    place: &Place,
) -> anyhow::Result<Ending> {
    let cancel = signals::cancel_flag()?;
    let mut processes = Processes::new(&place.dir, &cancel)?;
    let file = begin::run_file(args, plan, &expansion, place)?;
    let estimate = expansion.estimate;
    let job = Job {
        plan,
        machine,
        options: Options {
            layouts: place.layouts.clone(),
            keep_layouts: args.keep_layouts,
            force_wipe: args.force_wipe,
            precondition: args.precondition,
        },
        writer: RunWriter::create(&place.dir)?,
        file,
        points: expansion.points,
    };
    note(&view::opening(plan, &job, estimate));
    let mut view = View::new(job.points.len());
    let mut show = |event| view.show(event);
    let ending = Sweep::new(job, &mut processes, &mut show).and_then(Sweep::run);
    view.finish();
    ending.context("the sweep could not go on")
}

/// The table, the report, the archive's place.
fn finish(args: &SweepArgs, dir: &Path, ending: Ending) -> anyhow::Result<ExitCode> {
    let run = Run::open(dir)?;
    print(&if args.json { list::summary_json(&run)? } else { view::table(&run) })?;
    if ending == Ending::Stopped {
        note(&format!("stopped; go on with: carmine sweep --resume --out {}", dir.display()));
        return Ok(ExitCode::FAILURE);
    }
    if !args.json && run.file.chart == Chart::Scaling {
        print(&view::scaling(&scaling_of_run(&run)?))?;
    }
    match super::report::write(&[dir.to_path_buf()], None) {
        Ok(written) => note(&format!("report: {}", written.html.display())),
        Err(e) => note(&format!("warning: no report could be made of it: {e}")),
    }
    if args.zip {
        note(&format!("packed in {}", pack::pack(dir)?.display()));
    }
    note(&format!("archived in {}", dir.display()));
    let missed = run.points.iter().filter(|point| {
        !matches!(run.state(point), Ok(Some(state)) if matches!(state.state, State::Done | State::Skipped))
    });
    Ok(if missed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
