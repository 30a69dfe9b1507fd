//! Commands about options. Those of clients are stored and sent to them; those of the daemons have the value that they have.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, either, read, required, said, text, write};
use crate::change::{Refusal, refuse};
use crate::options::{OptionEdit, is_client_option};
use crate::report::table::Table;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("config get who:CephString key:CephString?", "show the value of an option", get),
    write("config set who:CephString name:CephString value:CephString force:CephBool?", "set an option", set),
    write("config rm who:CephString name:CephString", "forget an option that was set", remove),
    read("config dump", "show the options that were set", dump),
    read("config show who:CephString key:CephString?", "show the options of a daemon", show),
    read("config ls", "list the options of the daemons", |c, _| {
        let names = || OPTIONS.iter().map(|(name, _)| *name);
        either(c, || names().collect(), || names().map(|name| format!("{name}\n")).collect())
    }),
];

/// Options of Ceph's daemons, and their values here.
const OPTIONS: [(&str, &str); 9] = [
    ("mon_allow_pool_delete", "true"),
    ("mon_allow_pool_size_one", "true"),
    ("osd_max_attr_name_len", "100"),
    ("osd_max_object_name_len", "2048"),
    ("osd_max_object_namespace_len", "256"),
    ("osd_max_object_size", "137438953472"),
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
    /// Clients, or everybody.
    Clients,
    /// One client.
    Client(&'a str),
    Daemons,
}

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
        ("global", "") | ("client", "") => Ok(Target::Clients),
        ("client", id) => Ok(Target::Client(id)),
        ("mon" | "osd" | "mgr" | "mds", _) => Ok(Target::Daemons),
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
        Target::Client(id) => view.options.of(id),
        // Any client that has no section of its own.
        Target::Clients => view.options.of(""),
        Target::Daemons => Default::default(),
    };
    let Some(key) = text(command, "key") else {
        let rows = || own.iter().map(|(name, (value, who))| (*who, *name, *value));
        let one = |(who, name, value)| (name, json!({ "value": value, "section": who }));
        let json = || json!(rows().map(one).collect::<std::collections::BTreeMap<&str, Value>>());
        return either(command, json, || table(rows()));
    };
    match own.get(key).map(|(value, _)| *value).or_else(|| option(key)) {
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
    let is_for_daemons = target(who)? == Target::Daemons;
    match option(name) {
        Some(fixed) if fixed == value => said(""),
        Some(fixed) => Err(refuse(errno::EOPNOTSUPP, format!("the option '{name}' is {fixed} and stays so"))),
        None if !is_client_option(name) => {
            Err(refuse(errno::EINVAL, format!("unrecognized config option '{name}'")))
        }
        None if is_for_daemons => {
            Err(refuse(errno::EOPNOTSUPP, format!("Carmine's daemons have no option '{name}'")))
        }
        None => {
            let [who, name, value] = [who, name, value].map(str::to_owned);
            Ok(Answer::Options { edit: OptionEdit::Set { who, name, value } })
        }
    }
}

fn remove(command: &Value, _: &View<'_>) -> Outcome {
    let [who, name] = [required(command, "who")?, required(command, "name")?].map(str::to_owned);
    target(&who)?;
    Ok(Answer::Options { edit: OptionEdit::Remove { who, name } })
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let one = |(who, name, value)| {
        json!({
            "section": who, "name": name, "value": value, "level": "advanced", "can_update_at_runtime": true, "mask": "",
        })
    };
    either(command, || view.options.all().map(one).collect(), || table(view.options.all()))
}

fn show(command: &Value, _: &View<'_>) -> Outcome {
    required(command, "who")?;
    if let Some(key) = text(command, "key") {
        return match option(key) {
            Some(value) => done(format!("{value}\n")),
            None => Err(refuse(errno::ENOENT, format!("unrecognized key '{key}'"))),
        };
    }
    let one = |(name, value): &(&str, &str)| json!({ "name": name, "value": value, "source": "default" });
    either(
        command,
        || OPTIONS.iter().map(one).collect(),
        || OPTIONS.iter().map(|(name, value)| format!("{name}  {value}  default\n")).collect(),
    )
}
