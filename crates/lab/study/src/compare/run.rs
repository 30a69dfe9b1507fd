//! Arms of archived runs.

use std::collections::BTreeMap;

use super::{Arm, Measured, Refusal};
use crate::archive::{Point, PointKind, Run, State};

/// A whole run as one arm: pairs with another run are points of the same repeat.
///
/// # Errors
/// The run is not complete, or nothing of it was measured.
pub fn arm_of_run(run: &Run) -> Result<Arm, Refusal> {
    check_complete(run)?;
    arm(run, name_of(run), |point| Some(point.repeat))
}

/// Two arms of one run: those named, or those that its plan compares. Pairs are what ran side by side.
///
/// # Errors
/// The run is not complete, has no such arms, or nothing of them was measured.
pub fn arms_of_run(run: &Run, names: Option<(&str, &str)>) -> Result<(Arm, Arm), Refusal> {
    check_complete(run)?;
    let known = run.file.comparison.as_ref().map(|c| c.arms.clone()).unwrap_or_default();
    let (base, new) = match (names, known.as_slice()) {
        (Some((base, new)), _) => (base.to_owned(), new.to_owned()),
        (None, [base, new]) => (base.clone(), new.clone()),
        (None, arms) => return Err(Refusal::NoArms { run: name_of(run), found: arms.len() }),
    };
    let of = |name: &str| {
        if !run.points.iter().any(|p| p.arm.as_deref() == Some(name)) {
            let (run, arms) = (name_of(run), known.join(", "));
            return Err(Refusal::NoArm { run, arm: name.to_owned(), arms });
        }
        let turn = |p: &Point| (p.arm.as_deref() == Some(name)).then(|| p.pair.unwrap_or(p.repeat));
        arm(run, name.to_owned(), turn)
    };
    Ok((of(&base)?, of(&new)?))
}

fn name_of(run: &Run) -> String {
    run.dir().display().to_string()
}

fn check_complete(run: &Run) -> Result<(), Refusal> {
    let mut missing = 0;
    for point in &run.points {
        missing += usize::from(run.state(point)?.is_none());
    }
    if run.file.complete && missing == 0 {
        return Ok(());
    }
    Err(Refusal::Incomplete { run: name_of(run), missing, all: run.points.len() })
}

/// The points that `turn` gives a turn.
fn arm(run: &Run, name: String, turn: impl Fn(&Point) -> Option<u32>) -> Result<Arm, Refusal> {
    let mut arm = Arm { name, run: Some(run.dir().to_path_buf()), facts: facts(run), ..Arm::default() };
    for point in run.points.iter().filter(|p| p.kind == PointKind::Point) {
        let Some(turn) = turn(point) else { continue };
        let state = run.state(point)?;
        let failure = state.filter(|s| s.state == State::Failed);
        match (failure, run.result(point)?) {
            (None, Some(result)) => arm.points.push(Measured {
                name: point.stem.clone(),
                config: point.config.clone(),
                turn,
                result,
            }),
            (failure, _) => {
                let why = failure.and_then(|s| s.error).unwrap_or_else(|| "it has no result".to_owned());
                arm.left_out.push(format!("{}: {why}", point.stem));
            }
        }
    }
    if arm.points.is_empty() {
        return Err(Refusal::Nothing { run: arm.name });
    }
    Ok(arm)
}

/// What the run's own file says of builds and machine.
fn facts(run: &Run) -> BTreeMap<String, String> {
    let build = &run.file.carmine;
    let of_host = |name: &str| run.file.host.get(name).map(|value| value.to_string().replace('"', ""));
    let all = [
        ("carmine version", Some(build.version.clone())),
        ("git hash", Some(build.git_hash.clone())),
        ("build profile", Some(build.profile.clone())),
        ("allocator", Some(build.allocator.clone())),
        ("kernel", Some(run.file.kernel.clone())),
        ("cpu", of_host("cpu")),
        ("cpus of the machine", of_host("cpus")),
        ("memory_bytes", of_host("memory_bytes")),
    ];
    let known = all.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)));
    known.filter(|(_, value)| !value.is_empty()).collect()
}
