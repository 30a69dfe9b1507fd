//! Commands about the limits that the map sets for all.

use carmine_types::errno;
use serde_json::Value;

use super::{Known, Outcome, change, present, required, write};
use crate::change::{Change, FullState, refuse};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("osd set-nearfull-ratio ratio:CephFloat", "set the used share at which OSDs warn", |c, _| {
        set(c, "nearfull", FullState::Nearfull)
    }),
    write(
        "osd set-backfillfull-ratio ratio:CephFloat",
        "set the used share at which OSDs take no data of others",
        |c, _| set(c, "backfillfull", FullState::Backfillfull),
    ),
    write("osd set-full-ratio ratio:CephFloat", "set the used share at which OSDs take no writes", |c, _| {
        set(c, "full", FullState::Full)
    }),
    write(
        "osd require-osd-release release:(luminous|mimic|nautilus|octopus|pacific) yes_i_really_mean_it:CephBool?",
        "say which OSDs may take part",
        |c, _| change(Change::RequireOsds { release: required(c, "release")?.to_owned() }, ""),
    ),
];

fn set(command: &Value, name: &str, state: FullState) -> Outcome {
    let value = present(command, "ratio")?;
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let ratio = number.filter(|ratio| (0.0..=1.0).contains(ratio));
    let ratio = ratio.ok_or_else(|| refuse(errno::EINVAL, format!("{value} not in range [0.0, 1.0]")))?;
    change(Change::Ratio { state, ratio: ratio as f32 }, format!("osd set-{name}-ratio {ratio}"))
}
