//! The data that a tool's load needs before it: objects, or an image that is written through.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, bail};
use carmine_load::hosted::{Tool, fio, rados};
use carmine_load::{Prefill, Rw};

use super::process::{Clients, place, tool_command};
use super::{LOOK, PREFILL_LIMIT, Run};

/// Key of an image's metadata that says that every block of it was written.
const FILLED: &str = "carmine_filled";

/// Makes what is missing.
pub(super) fn run(run: &Run<'_>) -> anyhow::Result<()> {
    make_images(run)?;
    if !is_wanted(run)? {
        return Ok(());
    }
    let mut clients = Clients::prefill(run)?;
    run.wait_for_end(&mut clients, PREFILL_LIMIT).context("the prefill failed")?;
    for image in images(run) {
        rbd(run, &["image-meta", "set", &image, FILLED, "yes"])?;
    }
    Ok(())
}

fn is_wanted(run: &Run<'_>) -> anyhow::Result<bool> {
    // Nothing is there before `rados bench write`; a load in order writes its objects itself.
    let writes_itself = run.spec.rw == Rw::Write || run.tool == Tool::RadosBench && run.spec.rw.writes();
    Ok(match run.spec.prefill {
        Prefill::Never => false,
        Prefill::Always => !writes_itself,
        Prefill::Auto => !writes_itself && !is_there(run)?,
    })
}

fn is_there(run: &Run<'_>) -> anyhow::Result<bool> {
    match run.tool {
        Tool::FioRbd => {
            let filled = |image: &String| succeeds(run, &["image-meta", "get", image, FILLED]);
            Ok(!images(run).iter().map(filled).collect::<anyhow::Result<Vec<_>>>()?.contains(&false))
        }
        Tool::RadosBench => {
            // The last thing that a run writes is a record of itself.
            let all = (0..run.spec.numjobs).map(|job| stat(run, &rados::run_name(&run.spec, job)));
            Ok(all.collect::<anyhow::Result<Vec<_>>>()?.iter().all(Option::is_some))
        }
        _ => {
            let size = format!("size {}", run.spec.object_size_bytes);
            Ok(stat(run, &fio::object(&run.spec, run.spec.objects().saturating_sub(1)))?
                .is_some_and(|said| said.contains(&size)))
        }
    }
}

/// True if something of the load's data is there, from this load or one before.
pub(super) fn has_some(run: &Run<'_>) -> anyhow::Result<bool> {
    match run.tool {
        Tool::FioRbd => {
            let made = |image: &String| succeeds(run, &["info", image]);
            Ok(images(run).iter().map(made).collect::<anyhow::Result<Vec<_>>>()?.contains(&true))
        }
        Tool::FioRados => Ok(stat(run, &fio::object(&run.spec, 0))?.is_some()),
        _ => is_there(run),
    }
}

/// The answer of `rados stat`; `None` if there is no such object.
fn stat(run: &Run<'_>, object: &str) -> anyhow::Result<Option<String>> {
    let said = output(run, &run.programs.rados, &["-p", &run.setup.args.pool, "stat", object])?;
    Ok(said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned()))
}

/// The load's images with their pool; none where it has objects.
fn images(run: &Run<'_>) -> Vec<String> {
    let volumes = if run.tool == Tool::FioRbd { run.spec.volumes } else { 0 };
    (0..volumes).map(|volume| format!("{}/{}", run.setup.args.pool, fio::image(&run.spec, volume))).collect()
}

fn make_images(run: &Run<'_>) -> anyhow::Result<()> {
    let place = place(run);
    for (image, volume) in images(run).iter().zip(0..) {
        if !succeeds(run, &["info", image])? {
            rbd(run, &fio::create_image(&run.spec, &place, volume))?;
        }
    }
    Ok(())
}

/// Whether `rbd` succeeds with these arguments.
fn succeeds(run: &Run<'_>, args: &[&str]) -> anyhow::Result<bool> {
    Ok(output(run, &run.programs.rbd, args)?.status.success())
}

/// Runs `rbd`, which must succeed.
fn rbd<S: AsRef<OsStr>>(run: &Run<'_>, args: &[S]) -> anyhow::Result<()> {
    let output = output(run, &run.programs.rbd, args)?;
    if !output.status.success() {
        let what = args.first().map_or("".as_ref(), AsRef::as_ref).display();
        bail!("rbd {what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Runs a tool to its end. One that hangs ends with the OSDs or at Ctrl-C: it is in a group of its own.
fn output<S: AsRef<OsStr>>(run: &Run<'_>, program: &Path, args: &[S]) -> anyhow::Result<Output> {
    let mut command = tool_command(program, run);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    while child.try_wait()?.is_none() {
        if let Err(why) = run.check_alive() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(why);
        }
        std::thread::sleep(LOOK);
    }
    Ok(child.wait_with_output()?)
}
