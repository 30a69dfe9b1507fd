//! Commands about options. Those of clients, and those of OSDs that can change while they run, are stored and sent to them; the
//! others of the daemons have the value that they have.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, either, missing, number, read, required, said, text, write};
use crate::change::{Refusal, refuse};
use crate::option_log::Entry;
use crate::options::{MAX_PGS, OptionEdit, check_max_pgs, check_osd_option, is_client_option, osd_default};
use crate::report::dump::time;
use crate::report::table::Table;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("config get who:CephString key:CephString?", "show the value of an option", get),
    write("config set who:CephString name:CephString value:CephString force:CephBool?", "set an option", set),
    write("config rm who:CephString name:CephString", "forget an option that was set", remove),
    read("config dump", "show the options that were set", dump),
    read("config show who:CephString key:CephString?", "show the options of a daemon", show),
    read("config help key:CephString", "describe an option", help),
    read("config log num:CephInt?", "show the last changes of the options (10, if no number is given)", log),
    write("config reset num:CephInt", "set the options back to a version that `config log` shows", |c, _| {
        let version = number(c, "num")?.ok_or_else(|| missing("num"))?;
        Ok(Answer::Options { edit: OptionEdit::Reset { version }, status: String::new() })
    }),
    read("config show-with-defaults who:CephString key:CephString?", "show all options of a daemon", show),
    read("config ls", "list the options of the daemons", |c, _| {
        let names = || OPTIONS.iter().map(|(name, _)| *name);
        either(c, || names().collect(), || names().map(|name| format!("{name}\n")).collect())
    }),
];

/// Options of Ceph's daemons, and their values here.
pub(super) const OPTIONS: [(&str, &str); 11] = [
    ("mon_allow_pool_delete", "true"),
    ("mon_allow_pool_size_one", "true"),
    MAX_PGS,
    ("osd_class_update_on_start", "true"),
    ("osd_max_attr_name_len", "100"),
    ("osd_max_object_name_len", "2048"),
    ("osd_max_object_namespace_len", "256"),
    ("osd_max_object_size", "134217728"),
    ("osd_max_write_op_reply_len", "64"),
    ("osd_max_write_size", "90"),
    ("osd_min_pg_log_entries", "3000"),
];

fn option(name: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The clients or daemons that an option is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target<'a> {
    Everybody,
    /// Clients, or one of them by its whole name.
    Clients(&'a str),
    /// OSDs, or one of them by its whole name.
    Osds(&'a str),
    /// The monitor.
    Mon,
    /// Daemons that there are not.
    Others,
}

/// The monitor's name.
pub(super) const MON: &str = "mon.a";

/// # Errors
/// EINVAL: there is nobody of that kind. EOPNOTSUPP: it is a part of a kind, by place or class.
fn target(who: &str) -> Result<Target<'_>, Refusal> {
    if who.contains('/') {
        return Err(refuse(
            errno::EOPNOTSUPP,
            format!("'{who}': options by host or class are not supported"),
        ));
    }
    match who.split_once('.').unwrap_or((who, "")) {
        ("global", "") => Ok(Target::Everybody),
        ("client", _) => Ok(Target::Clients(who)),
        ("osd", id) if id.is_empty() || id.parse::<u32>().is_ok() => Ok(Target::Osds(who)),
        ("mon", "" | "a") => Ok(Target::Mon),
        ("mon" | "mgr" | "mds", _) => Ok(Target::Others),
        _ => Err(refuse(errno::EINVAL, format!("unrecognized config target '{who}'"))),
    }
}

/// `WHO MASK LEVEL OPTION VALUE RO`
fn table<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let mut table = Table::new("<WHO|<MASK|<LEVEL|<OPTION|<VALUE|<RO");
    rows.for_each(|(who, name, value)| table.row(&format!("{who}||advanced|{name}|{value}|")));
    table.render()
}

fn get(command: &Value, view: &View<'_>) -> Outcome {
    let own = match target(required(command, "who")?)? {
        Target::Clients(who) | Target::Osds(who) => view.options.effective(who),
        Target::Everybody => view.options.effective("global"),
        Target::Mon => view.options.effective(MON),
        Target::Others => Default::default(),
    };
    let Some(key) = text(command, "key") else {
        let rows = || own.iter().map(|(name, (value, who))| (*who, *name, *value));
        let one = |(who, name, value)| (name, json!({ "value": value, "section": who }));
        let json = || json!(rows().map(one).collect::<std::collections::BTreeMap<&str, Value>>());
        return either(command, json, || table(rows()));
    };
    match own.get(key).map(|(value, _)| *value).or_else(|| option(key)).or_else(|| osd_default(key)) {
        Some(value) => done(format!("{value}\n")),
        None if is_client_option(key) => {
            Err(refuse(errno::ENOENT, format!("'{key}' is not set: its value is the client's default")))
        }
        None => Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
    }
}

fn set(command: &Value, _: &View<'_>) -> Outcome {
    let (who, name) = (required(command, "who")?, required(command, "name")?);
    let value = required(command, "value")?;
    let target = target(who)?;
    let store = || {
        let [who, name, value] = [who, name, value].map(str::to_owned);
        Ok(Answer::Options { edit: OptionEdit::Set { who, name, value }, status: String::new() })
    };
    match option(name) {
        _ if name == MAX_PGS.0 && matches!(target, Target::Mon | Target::Everybody) => {
            check_max_pgs(value)?;
            store()
        }
        Some(fixed) if fixed == value => said(""),
        Some(fixed) => Err(refuse(errno::EOPNOTSUPP, format!("the option '{name}' is {fixed} and stays so"))),
        None if osd_default(name).is_some() => match target {
            Target::Osds(_) | Target::Everybody => {
                check_osd_option(name, value)?;
                store()
            }
            _ => Err(refuse(
                errno::EINVAL,
                format!("'{name}' is an option of OSDs: give osd, osd.N or global"),
            )),
        },
        None if !is_client_option(name) => {
            Err(refuse(errno::EINVAL, format!("unrecognized config option '{name}'")))
        }
        None if matches!(target, Target::Osds(_) | Target::Mon | Target::Others) => {
            Err(refuse(errno::EOPNOTSUPP, format!("Carmine's daemons have no option '{name}'")))
        }
        None => store(),
    }
}

fn remove(command: &Value, _: &View<'_>) -> Outcome {
    let [who, name] = [required(command, "who")?, required(command, "name")?].map(str::to_owned);
    target(&who)?;
    Ok(Answer::Options { edit: OptionEdit::Remove { who, name }, status: String::new() })
}

fn help(command: &Value, _: &View<'_>) -> Outcome {
    let key = required(command, "key")?;
    let (value, can_change) = match (option(key), osd_default(key)) {
        (Some(fixed), _) => (fixed, key == MAX_PGS.0),
        (None, Some(default)) => (default, true),
        (None, None) => return Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
    };
    let json =
        || json!({ "name": key, "level": "advanced", "default": value, "can_update_at_runtime": can_change });
    let plain =
        || format!("{key} - \n  (advanced)\n  Default: {value}\n  Can update at runtime: {can_change}\n");
    either(command, json, plain)
}

/// Changes that `config log` shows, if nobody says how many.
const LOG_LINES: usize = 10;

fn log(command: &Value, view: &View<'_>) -> Outcome {
    let entries = view.options.log.newest(number(command, "num")?.unwrap_or(LOG_LINES));
    either(command, || entries.iter().map(entry_json).collect(), || entries.iter().map(entry_text).collect())
}

fn entry_json(entry: &Entry) -> Value {
    let changes = entry.edited.iter().map(|edited| {
        let mut change = json!({ "name": format!("{}/{}", edited.who, edited.name) });
        let values = [("previous_value", &edited.before), ("new_value", &edited.after)];
        for (key, value) in values.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            change[key] = json!(value);
        }
        change
    });
    let changes: Vec<Value> = changes.collect();
    json!({ "version": entry.version, "timestamp": time(entry.stamp), "name": entry.why, "changes": changes })
}

fn entry_text(entry: &Entry) -> String {
    let why = if entry.why.is_empty() { String::new() } else { format!(" {} ---", entry.why) };
    let mut text = format!("--- {} --- {} ---{why}\n", entry.version, time(entry.stamp));
    for edited in &entry.edited {
        let lines = [("-", &edited.before), ("+", &edited.after)];
        for (sign, value) in lines.into_iter().filter_map(|(sign, value)| Some((sign, value.as_ref()?))) {
            text += &format!("{sign} {}/{} = {value}\n", edited.who, edited.name);
        }
    }
    text
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let one = |(who, name, value)| {
        json!({
            "section": who, "name": name, "value": value, "level": "advanced", "can_update_at_runtime": true, "mask": "",
        })
    };
    either(command, || view.options.all().map(one).collect(), || table(view.options.all()))
}

fn show(command: &Value, view: &View<'_>) -> Outcome {
    let stored = view.options.effective(required(command, "who")?);
    if let Some(key) = text(command, "key") {
        return match stored.get(key).map(|(value, _)| *value).or_else(|| option(key)) {
            Some(value) => done(format!("{value}\n")),
            None => Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
        };
    }
    let is_fixed = |(name, _): &&(&str, &str)| !stored.contains_key(name);
    let fixed = OPTIONS.iter().filter(is_fixed).map(|(name, value)| (*name, *value, "default"));
    let stored = stored.iter().filter(|(name, _)| osd_default(name).is_some() || option(name).is_some());
    let rows: Vec<_> = fixed.chain(stored.map(|(name, (value, _))| (*name, *value, "mon"))).collect();
    let json = |(name, value, source): &(&str, &str, &str)| json!({ "name": name, "value": value, "source": source });
    either(
        command,
        || rows.iter().map(json).collect(),
        || rows.iter().map(|(name, value, source)| format!("{name}  {value}  {source}\n")).collect(),
    )
}
