//! Parameters of a command: whatever their JSON, they are there and fit, or the command is refused.

use carmine_types::{OsdId, errno};
use carmine_wire::osdmap::OsdMap;
use serde_json::Value;

use crate::change::{Refusal, refuse};

/// A text parameter.
pub(super) fn text<'a>(command: &'a Value, name: &str) -> Option<&'a str> {
    command.get(name).and_then(Value::as_str)
}

/// The words of a list, or the one word.
pub(super) fn texts<'a>(command: &'a Value, name: &str) -> Vec<&'a str> {
    let list =
        command.get(name).map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A text parameter that must be there.
pub(super) fn required<'a>(command: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    text(command, name).ok_or_else(|| refuse(errno::EINVAL, format!("the parameter '{name}' is missing")))
}

/// A whole number, given as a number or as text.
pub(super) fn number<T: TryFrom<u64>>(command: &Value, name: &str) -> Result<Option<T>, Refusal> {
    let Some(value) = command.get(name) else { return Ok(None) };
    let parsed = value.as_u64().or_else(|| value.as_str()?.parse().ok()).and_then(|n| T::try_from(n).ok());
    parsed.map(Some).ok_or_else(|| refuse(errno::EINVAL, format!("{name} {value}: not a fitting number")))
}

/// A switch such as `--yes-i-really-mean-it`; older tools send it as a word.
pub(super) fn is_set(command: &Value, name: &str) -> bool {
    command.get(name).is_some_and(|v| v.as_bool() == Some(true) || v.is_string())
}

/// An OSD given as `3`, `"3"` or `"osd.3"`.
pub(super) fn osd(value: &Value) -> Result<OsdId, Refusal> {
    let of_text = || value.as_str().and_then(|s| s.strip_prefix("osd.").unwrap_or(s).parse().ok());
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).or_else(of_text);
    id.map(OsdId).ok_or_else(|| refuse(errno::EINVAL, format!("{value} is no OSD: take 3 or osd.3")))
}

/// One or more OSDs in the list `ids`; `any`, `all` and `*` are all that there are.
pub(super) fn osds(command: &Value, map: &OsdMap) -> Result<Vec<OsdId>, Refusal> {
    let ids = command.get("ids").ok_or_else(|| refuse(errno::EINVAL, "the parameter 'ids' is missing"))?;
    let ids = ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice);
    if ids.is_empty() {
        return Err(refuse(errno::EINVAL, "name one OSD at least"));
    }
    if ids.iter().any(|id| matches!(id.as_str(), Some("any" | "all" | "*"))) {
        return Ok(map.osds().collect());
    }
    ids.iter().map(osd).collect()
}
