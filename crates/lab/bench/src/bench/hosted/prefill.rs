//! The data that a tool's load needs before it: objects, or an image that is written through.

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
        succeed(rbd(run, &["image-meta", "set", &image, FILLED, "yes"])?, "rbd image-meta set")?;
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
            let filled =
                |image: &String| Ok(rbd(run, &["image-meta", "get", image, FILLED])?.status.success());
            let all: Vec<bool> = images(run).iter().map(filled).collect::<anyhow::Result<_>>()?;
            Ok(!all.contains(&false))
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
            let made: Vec<bool> = images(run)
                .iter()
                .map(|image| Ok(rbd(run, &["info", image])?.status.success()))
                .collect::<anyhow::Result<_>>()?;
            Ok(made.contains(&true))
        }
        Tool::FioRados => Ok(stat(run, &fio::object(&run.spec, 0))?.is_some()),
        _ => is_there(run),
    }
}

/// The answer of `rados stat`; `None` if there is no such object.
fn stat(run: &Run<'_>, object: &str) -> anyhow::Result<Option<String>> {
    let said = output(run, &run.programs.rados, &["-p", run.pool, "stat", object])?;
    Ok(said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned()))
}

/// The load's images with their pool; none where it has objects.
fn images(run: &Run<'_>) -> Vec<String> {
    let volumes = if run.tool == Tool::FioRbd { run.spec.volumes } else { 0 };
    (0..volumes).map(|volume| format!("{}/{}", run.pool, fio::image(&run.spec, volume))).collect()
}

fn make_images(run: &Run<'_>) -> anyhow::Result<()> {
    let place = place(&run.bed, run.pool);
    for (image, volume) in images(run).iter().zip(0..) {
        if !rbd(run, &["info", image])?.status.success() {
            let args = fio::create_image(&run.spec, &place, volume);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            succeed(rbd(run, &args)?, "rbd create")?;
        }
    }
    Ok(())
}

fn rbd(run: &Run<'_>, args: &[&str]) -> anyhow::Result<Output> {
    output(run, &run.programs.rbd, args)
}

/// Runs a tool to its end. One that hangs ends with the OSDs or at Ctrl-C: it is in a group of its own.
fn output(run: &Run<'_>, program: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = tool_command(program, &run.bed);
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

fn succeed(output: Output, what: &str) -> anyhow::Result<Output> {
    if !output.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
