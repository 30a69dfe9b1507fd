//! `health mute`: health checks that nobody wants to hear of for a time.

use std::time::Duration;

use carmine_types::{UTime, errno};
use serde_json::Value;

use super::{Answer, Known, Outcome, View, is_set, required, text, write};
use crate::change::{Refusal, refuse};
use crate::options::OptionEdit;
use crate::report::health;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write(
        "health mute code:CephString ttl:CephString? sticky:CephBool?",
        "leave a health check out of the state, for so long (2h, 30m); until it is over or worse, if it is not sticky",
        mute,
    ),
    write("health unmute code:CephString?", "show a muted health check again, or all of them", |c, v| {
        let codes = match text(c, "code") {
            Some(code) => vec![code.to_owned()],
            None => v.options.mutes.keys().cloned().collect(),
        };
        Ok(Answer::Options { edit: OptionEdit::Unmute { codes }, status: String::new() })
    }),
];

fn mute(command: &Value, view: &View<'_>) -> Outcome {
    let code = required(command, "code")?;
    let until = match text(command, "ttl") {
        Some(ttl) => UTime::from_unix(view.now.to_unix() + span(ttl)?),
        None => UTime::ZERO,
    };
    let mute = health::mute(view, code, until, is_set(command, "sticky"))?;
    Ok(Answer::Options { edit: OptionEdit::Mute { code: code.to_owned(), mute }, status: String::new() })
}

/// Units of time and their seconds; a number without one is of seconds.
const UNITS: [(&str, u64); 7] =
    [("", 1), ("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 7 * 86_400), ("y", 365 * 86_400)];
/// Longest time; longer ones are without end.
const SPAN_MAX_S: u64 = 100 * 365 * 86_400;

/// `90`, `30m`, `2h`
fn span(text: &str) -> Result<Duration, Refusal> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, seconds)| *seconds);
    let seconds = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| *seconds <= SPAN_MAX_S);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        refuse(errno::EINVAL, format!("invalid duration: '{text}': take a number and s, m, h, d, w or y"))
    })
}
