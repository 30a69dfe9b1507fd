//! Commands about the rules of the CRUSH map, and about erasure code profiles, which no pool can use.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{
    Known, Outcome, View, change, done, either, is_set, pretty, read, required, said, text, texts, write,
};
use crate::change::crush::rule_of;
use crate::change::profile::filled;
use crate::change::{Change, RuleEdit, refuse};
use crate::report::crush;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd crush rule ls", "list the CRUSH rules", list),
    read("osd crush rule list", "list the CRUSH rules", list),
    read("osd crush rule dump name:CephString?", "print a CRUSH rule, or all", dump),
    write(
        "osd crush rule create-replicated name:CephString root:CephString type:CephString class:CephString?",
        "make a rule that chooses replicas by buckets of a type",
        create,
    ),
    write(
        "osd crush rule create-simple name:CephString root:CephString type:CephString mode:(firstn)?",
        "make a rule that chooses replicas by buckets of a type",
        create,
    ),
    write("osd crush rule rename srcname:CephString dstname:CephString", "give a rule another name", rename),
    write("osd crush rule rm name:CephString", "remove a rule that no pool uses", remove),
    read("osd erasure-code-profile ls", "list the erasure code profiles", |c, v| {
        let names: Vec<&String> = v.map.erasure_code_profiles.keys().collect();
        either(c, || json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
    }),
    read("osd erasure-code-profile get name:CephString", "print an erasure code profile", |c, v| {
        let name = required(c, "name")?;
        let profile = v.map.erasure_code_profiles.get(name);
        let profile =
            profile.ok_or_else(|| refuse(errno::ENOENT, format!("unknown erasure code profile '{name}'")))?;
        let lines = || profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        either(c, || json!(profile), lines)
    }),
    write(
        "osd erasure-code-profile set name:CephString profile:CephString+? force:CephBool?",
        "make an erasure code profile",
        |c, _| {
            let (name, force) = (required(c, "name")?.to_owned(), is_set(c, "force"));
            change(Change::SetProfile { name, profile: filled(&texts(c, "profile")), force }, "")
        },
    ),
    write("osd erasure-code-profile rm name:CephString", "remove an erasure code profile", |c, v| {
        let name = required(c, "name")?;
        match v.map.erasure_code_profiles.contains_key(name) {
            true => change(Change::RemoveProfile { name: name.to_owned() }, ""),
            false => said(format!("erasure-code-profile {name} does not exist")),
        }
    }),
];

fn list(command: &Value, view: &View<'_>) -> Outcome {
    let names: Vec<&String> = view.map.crush.rule_names.values().collect();
    either(command, || json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let all = crush::rules(&view.map.crush);
    let Some(name) = text(command, "name").filter(|name| !name.is_empty()) else {
        return done(pretty(command, &json!(all)));
    };
    match all.into_iter().find(|rule| rule["rule_name"] == name) {
        Some(rule) => done(pretty(command, &rule)),
        None => Err(refuse(errno::ENOENT, format!("unknown crush rule '{name}'"))),
    }
}

fn create(command: &Value, view: &View<'_>) -> Outcome {
    let word = |name: &str| required(command, name).map(str::to_owned);
    let (name, root, kind) = (word("name")?, word("root")?, word("type")?);
    if rule_of(&view.map.crush, &name).is_some() {
        return said(format!("rule {name} already exists"));
    }
    let class = text(command, "class").filter(|class| !class.is_empty()).map(str::to_owned);
    change(Change::Rule(RuleEdit::Create { name, root, kind, class }), "")
}

fn rename(command: &Value, view: &View<'_>) -> Outcome {
    let (name, to) = (required(command, "srcname")?.to_owned(), required(command, "dstname")?.to_owned());
    let crush = &view.map.crush;
    if rule_of(crush, &name).is_none() && rule_of(crush, &to).is_some() {
        return said(format!("already renamed to '{to}'"));
    }
    change(Change::Rule(RuleEdit::Rename { name, to }), "")
}

fn remove(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "name")?;
    match rule_of(&view.map.crush, name) {
        Some(_) => change(Change::Rule(RuleEdit::Remove { name: name.to_owned() }), ""),
        None => said(format!("rule {name} does not exist")),
    }
}
