//! The flamegraph of a result: drawn when the load is over, written beside the result.

use std::path::{Path, PathBuf};

use crate::archive;
use crate::profile::Recorded;
use carmine_load::profile::{Profile, ProfileMode};

use carmine_testbed::output::note;

/// Draws what was recorded and writes it; a picture that cannot be had is a note, not an error. `json`: the result's file.
pub(super) fn profile(
    mode: ProfileMode,
    recorded: Result<Recorded, String>,
    json: Option<&Path>,
    load: &str,
) -> Profile {
    let path = path(mode, json);
    let drawn = recorded.and_then(|recorded| {
        note("reading the profile");
        recorded.draw(load)
    });
    let written = drawn.and_then(|drawing| {
        archive(&path, drawing.svg).map_err(|e| e.to_string())?;
        let svg = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Profile { mode, svg, missing: None, stacks: drawing.stacks, hottest: drawing.hottest })
    });
    written.unwrap_or_else(|why| {
        note(&format!("no flamegraph: {why}"));
        Profile::missing(mode, why)
    })
}

/// `DIR/NAME.MODE.svg` beside `DIR/NAME.json`.
fn path(mode: ProfileMode, json: Option<&Path>) -> PathBuf {
    match json {
        Some(json) => json.with_extension(format!("{mode}.svg")),
        None => PathBuf::from(format!("{mode}.svg")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_lies_beside_the_result() {
        let of = |json: Option<&str>| path(ProfileMode::OnCpu, json.map(Path::new)).display().to_string();
        assert_eq!(of(Some("points/a_qd1.6_r0.json")), "points/a_qd1.6_r0.oncpu.svg");
        assert_eq!(of(None), "oncpu.svg");
    }

    #[test]
    fn a_recording_that_failed_is_no_error() {
        let profile = profile(ProfileMode::OffCpu, Err("perf is not installed".into()), None, "randread");
        assert_eq!((profile.svg, profile.missing.as_deref()), (None, Some("perf is not installed")));
    }
}
