//! `auth`: who has which key, and what may be done with it.

use std::collections::BTreeMap;

use carmine_auth::issuer::Issuer;
use carmine_auth::{Entity, Entry, Key, Keyring};
use carmine_types::errno;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, View, done, is_formatted, pretty, read, required, said, texts, write};
use crate::auth::AuthEdit;
use crate::change::{Refusal, refuse};
use crate::options::OptionEdit;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("auth ls", "list who has a key", list),
    read("auth list", "list who has a key", list),
    read("auth get entity:CephString", "print somebody's key and caps as a keyring", |c, v| {
        let entity = entity(c)?;
        keyring_of(c, &entity, &found(v, &entity)?)
    }),
    read("auth export entity:CephString?", "print keys and caps as a keyring: of one, or of all", export),
    read("auth get-key entity:CephString", "print somebody's key", key),
    read("auth print-key entity:CephString", "print somebody's key", key),
    read("auth print_key entity:CephString", "print somebody's key", key),
    write("auth add entity:CephString caps:CephString+?", "give somebody a new key, or that of -i FILE", add),
    write(
        "auth get-or-create entity:CephString caps:CephString+?",
        "print somebody's key and caps as a keyring; who is not known gets a new key",
        |c, v| get_or_create(c, v, keyring_of),
    ),
    write(
        "auth get-or-create-key entity:CephString caps:CephString+?",
        "print somebody's key; who is not known gets a new one",
        |c, v| get_or_create(c, v, |c, _, entry| key_text(c, entry)),
    ),
    write(
        "auth caps entity:CephString caps:CephString+",
        "change what may be done with somebody's key",
        caps,
    ),
    write("auth del entity:CephString", "forget somebody", remove),
    write("auth rm entity:CephString", "forget somebody", remove),
    write("auth import", "take over the keys and caps of the keyring of -i FILE", import),
];

/// Who is known: nobody where nobody needs a key.
fn known<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a Entity, &'a Entry)> {
    view.options.auth.iter().flat_map(|issuer| &issuer.entities)
}

/// For what changes who is known.
fn issuer<'a>(view: &'a View<'_>) -> Result<&'a Issuer, Refusal> {
    let none = || {
        refuse(errno::EOPNOTSUPP, "this cluster has no keys: `carmine up --auth cephx` makes one with keys")
    };
    view.options.auth.as_ref().ok_or_else(none)
}

fn entity(command: &Value) -> Result<Entity, Refusal> {
    required(command, "entity")?
        .parse()
        .map_err(|e: String| refuse(errno::EINVAL, format!("bad entity name: {e}")))
}

fn found(view: &View<'_>, entity: &Entity) -> Result<Entry, Refusal> {
    let entry = view.options.auth.as_ref().and_then(|issuer| issuer.entities.get(entity));
    entry.cloned().ok_or_else(|| refuse(errno::ENOENT, format!("failed to find {entity} in keyring")))
}

fn as_json(entity: &Entity, entry: &Entry) -> Value {
    json!({ "entity": entity.to_string(), "key": *entry.key.to_base64(), "caps": entry.caps })
}

fn keyring_of(command: &Value, entity: &Entity, entry: &Entry) -> Outcome {
    if is_formatted(command) {
        return done(pretty(command, &json!([as_json(entity, entry)])));
    }
    done(Keyring([(entity.clone(), entry.clone())].into()).text().as_bytes())
}

fn key_text(command: &Value, entry: &Entry) -> Outcome {
    let key = entry.key.to_base64();
    match is_formatted(command) {
        true => done(pretty(command, &json!({ "key": *key }))),
        false => done(key.as_bytes()),
    }
}

fn key(command: &Value, view: &View<'_>) -> Outcome {
    let entity = entity(command)?;
    let absent = |_| refuse(errno::ENOENT, format!("don't have {entity}"));
    key_text(command, &found(view, &entity).map_err(absent)?)
}

fn list(command: &Value, view: &View<'_>) -> Outcome {
    if is_formatted(command) {
        let all: Vec<Value> = known(view).map(|(entity, entry)| as_json(entity, entry)).collect();
        return done(pretty(command, &json!({ "auth_dump": all })));
    }
    let mut text = String::new();
    for (entity, entry) in known(view) {
        text += &format!("{entity}\n\tkey: {}\n", *entry.key.to_base64());
        entry.caps.iter().for_each(|(service, caps)| text += &format!("\tcaps: [{service}] {caps}\n"));
    }
    Ok(Answer::Done { status: "installed auth entries:\n".to_owned(), data: text.into_bytes() })
}

fn export(command: &Value, view: &View<'_>) -> Outcome {
    if command.get("entity").is_some() {
        let entity = entity(command)?;
        return keyring_of(command, &entity, &found(view, &entity)?);
    }
    let all = known(view).map(|(entity, entry)| (entity.clone(), entry.clone()));
    done(Keyring(all.collect()).text().as_bytes())
}

/// Caps as they are given: service, text, service, text, …
fn given_caps(command: &Value) -> Result<BTreeMap<String, String>, Refusal> {
    let words = texts(command, "caps");
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(refuse(
            errno::EINVAL,
            format!("bad capabilities request; odd number of arguments: {}", words.len()),
        ));
    }
    let mut caps = BTreeMap::new();
    for [service, text] in pairs {
        check_caps(service, text)?;
        caps.insert((*service).to_owned(), (*text).to_owned());
    }
    Ok(caps)
}

/// # Errors
/// EINVAL: such caps would allow nothing.
fn check_caps(service: &str, text: &str) -> Result<(), Refusal> {
    let bad = |why: String| refuse(errno::EINVAL, format!("{service} capability parse failed: {why}"));
    match service {
        "mon" | "mgr" => carmine_caps::MonCaps::parse(text).map(drop).map_err(|e| bad(e.to_string())),
        "osd" => carmine_caps::OsdCaps::parse(text).map(drop).map_err(|e| bad(e.to_string())),
        "mds" => Ok(()),
        other => Err(refuse(errno::EINVAL, format!("unknown cap type '{other}'"))),
    }
}

fn set(entity: Entity, entry: Entry) -> OptionEdit {
    OptionEdit::Auth(vec![AuthEdit::Set(entity, entry)])
}

fn new_key(view: &View<'_>) -> Result<Key, Refusal> {
    Key::random(view.now).map_err(|e| refuse(errno::EIO, e.to_string()))
}

fn get_or_create(command: &Value, view: &View<'_>, shown: fn(&Value, &Entity, &Entry) -> Outcome) -> Outcome {
    let (entity, caps) = (entity(command)?, given_caps(command)?);
    if let Some(entry) = issuer(view)?.entities.get(&entity) {
        if !caps.is_empty() && caps != entry.caps {
            let text = format!(
                "key for {entity} exists but cap {} does not match",
                caps.keys().next().map_or("", |c| c)
            );
            return Err(refuse(errno::EINVAL, text));
        }
        return shown(command, &entity, entry);
    }
    let entry = Entry { key: new_key(view)?, caps };
    let data = match shown(command, &entity, &entry)? {
        Answer::Done { data, .. } => data,
        _ => Vec::new(),
    };
    Ok(Answer::OptionsAndTell { edit: set(entity, entry), data })
}

fn add(command: &Value, view: &View<'_>) -> Outcome {
    let (entity, caps) = (entity(command)?, given_caps(command)?);
    let known = issuer(view)?.entities.get(&entity);
    let mut entry = match view.input {
        [] => Entry { key: new_key(view)?, caps: BTreeMap::new() },
        _ => {
            let mut ring = ring_of(view)?;
            ring.0
                .remove(&entity)
                .ok_or_else(|| refuse(errno::ENOENT, format!("the keyring has no {entity}")))?
        }
    };
    if !caps.is_empty() {
        entry.caps = caps;
    }
    match known {
        Some(known) if view.input.is_empty() && known.caps == entry.caps => {
            said(format!("added key for {entity}"))
        }
        Some(known) if *known != entry => Err(refuse(
            errno::EINVAL,
            format!(
                "entity {entity} exists but key or caps do not match: `auth caps` changes caps, `auth del` forgets it"
            ),
        )),
        _ => Ok(Answer::Options {
            edit: set(entity.clone(), entry),
            status: format!("added key for {entity}"),
        }),
    }
}

/// The keyring that came with the command.
fn ring_of(view: &View<'_>) -> Result<Keyring, Refusal> {
    let text = std::str::from_utf8(view.input)
        .map_err(|e| refuse(errno::EINVAL, format!("the keyring is no text: {e}")))?;
    let ring = Keyring::parse(text).map_err(|e| refuse(errno::EINVAL, format!("the keyring: {e}")))?;
    for (service, text) in ring.0.values().flat_map(|entry| &entry.caps) {
        check_caps(service, text)?;
    }
    Ok(ring)
}

fn import(_: &Value, view: &View<'_>) -> Outcome {
    issuer(view)?;
    let ring = ring_of(view)?;
    if ring.0.is_empty() {
        return Err(refuse(errno::EINVAL, "auth import: no data supplied"));
    }
    Ok(Answer::Options {
        edit: OptionEdit::Auth(
            ring.0.into_iter().map(|(entity, entry)| AuthEdit::Set(entity, entry)).collect(),
        ),
        status: "imported keyring".to_owned(),
    })
}

fn caps(command: &Value, view: &View<'_>) -> Outcome {
    let entity = entity(command)?;
    let entry = Entry { caps: given_caps(command)?, ..found(view, &entity)? };
    Ok(Answer::Options { edit: set(entity.clone(), entry), status: format!("updated caps for {entity}") })
}

fn remove(command: &Value, view: &View<'_>) -> Outcome {
    let entity = entity(command)?;
    if !issuer(view)?.entities.contains_key(&entity) {
        return said(format!("entity {entity} does not exist"));
    }
    Ok(Answer::Options {
        edit: OptionEdit::Auth(vec![AuthEdit::Remove(entity)]),
        status: "updated".to_owned(),
    })
}
