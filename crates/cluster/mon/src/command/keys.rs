//! `config-key`: values that tools store for each other; Carmine gives them no meaning.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, pretty, read, required, said, text, write};
use crate::change::{Refusal, refuse};
use crate::options::OptionEdit;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("config-key ls", "list the stored keys", keys),
    read("config-key list", "list the stored keys", keys),
    read("config-key dump key:CephString?", "print the stored keys that begin so, and their values", dump),
    read("config-key get key:CephString", "print the value of a key", |c, v| {
        done(value_of(c, v)?.ok_or_else(|| refuse(errno::ENOENT, ""))?)
    }),
    read("config-key exists key:CephString", "say whether a key is stored", |c, v| {
        let (key, value) = (required(c, "key")?, value_of(c, v)?);
        value.ok_or_else(|| refuse(errno::ENOENT, format!("key '{key}' doesn't exist")))?;
        said(format!("key '{key}' exists"))
    }),
    write(
        "config-key set key:CephString val:CephString?",
        "store the value of a key: this, or that of -i FILE",
        set,
    ),
    write(
        "config-key put key:CephString val:CephString?",
        "store the value of a key: this, or that of -i FILE",
        set,
    ),
    write("config-key rm key:CephString", "forget a key", |c, _| {
        edit(required(c, "key")?, None, "key deleted".to_owned())
    }),
    write("config-key del key:CephString", "forget a key", |c, _| {
        edit(required(c, "key")?, None, "key deleted".to_owned())
    }),
];

fn keys(command: &Value, view: &View<'_>) -> Outcome {
    let keys: Vec<&String> = view.options.keys.keys().collect();
    done(pretty(command, &json!(keys)))
}

fn value_of<'a>(command: &Value, view: &'a View<'_>) -> Result<Option<&'a str>, Refusal> {
    Ok(view.options.keys.get(required(command, "key")?).map(String::as_str))
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let begin = text(command, "key").unwrap_or_default();
    let all = view.options.keys.iter().filter(|(key, _)| key.starts_with(begin));
    done(pretty(command, &json!(all.collect::<std::collections::BTreeMap<_, _>>())))
}

/// The value is given, or it is the input of the command.
fn set(command: &Value, view: &View<'_>) -> Outcome {
    let key = required(command, "key")?;
    let value = match text(command, "val") {
        Some(value) => value,
        None => std::str::from_utf8(view.input).map_err(|_| {
            refuse(errno::EINVAL, format!("the value of '{key}' is no text: only text is kept"))
        })?,
    };
    edit(key, Some(value), format!("set {key}"))
}

fn edit(key: &str, value: Option<&str>, status: String) -> Outcome {
    let edit = OptionEdit::Key { key: key.to_owned(), value: value.map(str::to_owned) };
    Ok(Answer::Options { edit, status })
}
