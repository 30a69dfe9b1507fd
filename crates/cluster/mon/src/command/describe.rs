//! `get_command_descriptions`: by this the `ceph` tool knows what there is, parses its command line and prints help.

use serde_json::{Value, json};

use super::output::done;
use super::{Known, Outcome, View, all, read};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[read("get_command_descriptions", "list the commands", descriptions)];

/// The flags are 0: a command with Ceph's flag for the manager (8) would be sent there.
fn descriptions(_: &Value, _: &View<'_>) -> Outcome {
    let described = all().enumerate().map(|(n, known)| {
        let sig: Vec<Value> = known.signature.split(' ').map(part).collect();
        let module = known.signature.split(' ').next().unwrap_or_default();
        let entry =
            json!({ "sig": sig, "help": known.help, "module": module, "perm": known.perm, "flags": 0 });
        (format!("cmd{n:03}"), entry)
    });
    done(Value::Object(described.collect()).to_string())
}

/// A word as itself, a parameter `name:type?` as the object that the `ceph` tool expects.
fn part(text: &str) -> Value {
    let Some((name, kind)) = text.split_once(':') else { return json!(text) };
    let (kind, is_optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
    let (kind, is_list) = kind.strip_suffix('+').map_or((kind, false), |kind| (kind, true));
    let mut out = match kind.strip_prefix('(').and_then(|k| k.strip_suffix(')')) {
        Some(choices) => json!({ "name": name, "type": "CephChoices", "strings": choices }),
        None => json!({ "name": name, "type": kind }),
    };
    if is_optional {
        out["req"] = json!(false);
    }
    if is_list {
        out["n"] = json!("N");
    }
    out
}
