//! Flamegraphs of points: files of the archive that the page links to.

use std::path::{Component, Path, PathBuf};

use carmine_load::profile::{Profile, ProfileMode};
use carmine_types::counted;

use crate::data::{Measured, RunData};
use crate::lists::{joined, tally};
use crate::report::{Block, Kind};
use crate::units::grouped;

/// Functions that are named beside a link.
const HOTTEST: usize = 5;

/// Flamegraphs of all points, as a report in the folder `out` links to them, and why others are missing.
pub(crate) fn flames(runs: &[RunData], out: &Path) -> Vec<Block> {
    let (mut links, mut missing) = (Vec::new(), Vec::new());
    for (run, measured) in runs.iter().flat_map(|run| run.points.iter().map(move |point| (run, point))) {
        let Some(profile) = measured.result.as_ref().and_then(|r| r.carmine.profile.as_ref()) else {
            continue;
        };
        match href(run, measured, profile, out) {
            Ok(href) => links.push([joined([&*run.label, &measured.point.stem], "/"), href, text(profile)]),
            Err(why) => missing.push(why),
        }
    }
    let about = "Files of the archive, not part of this page. Click a frame to zoom in; Ctrl-F searches.";
    let mut remarks: Vec<String> = (!links.is_empty()).then(|| about.to_owned()).into_iter().collect();
    let without = |(why, n)| format!("No flamegraph of {}: {why}.", counted(n, "point"));
    remarks.extend(tally(missing).into_iter().map(without));
    vec![Block::Text(Kind::Remarks, remarks), Block::Links(links)]
}

/// The file has the point's name, whatever the result says.
fn href(run: &RunData, measured: &Measured, profile: &Profile, out: &Path) -> Result<String, String> {
    if profile.svg.is_none() {
        let why = profile.missing.clone().unwrap_or_else(|| "the result does not say why".into());
        return Err(why.trim_end_matches('.').to_owned());
    }
    let file = run.run.point_file(&measured.point, &format!("{}.svg", profile.mode));
    if !file.is_file() {
        return Err("the file is not in the archive any more".into());
    }
    Ok(link(&relative(out, &file)))
}

fn text(profile: &Profile) -> String {
    let (what, share) = match profile.mode {
        ProfileMode::OnCpu => ("on CPU", "CPU time in"),
        ProfileMode::OffCpu => ("off CPU", "waiting in"),
    };
    let hottest = profile.hot(HOTTEST);
    let share = if hottest.is_empty() { String::new() } else { format!("; {share} {hottest}") };
    format!("{what}, {} stacks{share}", grouped(profile.stacks as f64, 0))
}

/// The relative path from a folder to a file. If either cannot be resolved, the file's path as it is.
fn relative(from: &Path, file: &Path) -> PathBuf {
    let (Ok(from), Ok(file)) = (from.canonicalize(), file.canonicalize()) else { return file.to_owned() };
    let same = from.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(same).map(|_| Component::ParentDir);
    up.chain(file.components().skip(same)).collect()
}

/// A path as part of a page: characters with a meaning there are written as `%XX`.
fn link(path: &Path) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/.-_~".contains(&b);
    let write = |b: &u8| if is_plain(*b) { char::from(*b).to_string() } else { format!("%{b:02X}") };
    path.as_os_str().as_encoded_bytes().iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_load::profile::HotFrame;

    #[test]
    fn links_lead_from_the_report_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let points = dir.path().join("my run#1/points");
        let elsewhere = dir.path().join("reports");
        for folder in [&points, &elsewhere] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let file = points.join("a.oncpu.svg");
        std::fs::write(&file, "<svg/>").unwrap();
        assert_eq!(link(&relative(&dir.path().join("my run#1"), &file)), "points/a.oncpu.svg");
        assert_eq!(link(&relative(&elsewhere, &file)), "../my%20run%231/points/a.oncpu.svg");
    }

    #[test]
    fn the_hottest_functions_stand_beside_it() {
        let frame = |name: &str, percent| HotFrame { name: name.into(), percent };
        let hottest = vec![frame("crc", 31.2), frame("memcpy", 8.0)];
        let profile = Profile {
            mode: ProfileMode::OnCpu,
            svg: Some("x".into()),
            missing: None,
            stacks: 2345,
            hottest,
            stages: Vec::new(),
        };
        assert_eq!(text(&profile), "on CPU, 2,345 stacks; CPU time in crc 31 %, memcpy 8 %");
    }
}
