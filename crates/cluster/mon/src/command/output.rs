//! Answers as text or as JSON, as the command asks for.

use serde_json::Value;

use super::args::text;
use super::{Answer, Outcome};
use crate::change::Change;

/// Output without a status.
pub(super) fn done(data: impl Into<Vec<u8>>) -> Outcome {
    Ok(Answer::Done { status: String::new(), data: data.into() })
}

/// A status without output: tools print it to their standard error.
pub(super) fn said(status: impl Into<String>) -> Outcome {
    Ok(Answer::Done { status: status.into(), data: Vec::new() })
}

/// A change, and the status once it is done.
pub(super) fn change(change: Change, status: impl Into<String>) -> Outcome {
    Ok(Answer::Change { change, status: status.into() })
}

fn wants_json(command: &Value) -> bool {
    text(command, "format").is_some_and(|f| f.starts_with("json"))
}

/// JSON whatever the format asked for; Ceph has no text for it.
pub(super) fn pretty(command: &Value, value: &Value) -> Vec<u8> {
    let compact = text(command, "format") == Some("json");
    let out = if compact { serde_json::to_vec(value) } else { serde_json::to_vec_pretty(value) };
    // A Value always serialises.
    let mut out = out.unwrap_or_default();
    out.push(b'\n');
    out
}

/// JSON or text, as asked for.
pub(super) fn either(
    command: &Value,
    value: impl FnOnce() -> Value,
    plain: impl FnOnce() -> String,
) -> Outcome {
    if wants_json(command) { done(pretty(command, &value())) } else { done(plain()) }
}
