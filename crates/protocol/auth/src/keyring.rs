//! Entities, and the file that has their keys (INI: a section for each entity).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use carmine_wire::EntityType;
use zeroize::Zeroizing;

use crate::key::Key;
use crate::{AuthError, Result};

/// Somebody who can have a key: `client.admin`, `osd.3`, `mon.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// The kind of process, such as a client or an OSD.
    pub kind: EntityType,
    /// Its name, without the kind.
    pub id: String,
}

impl Entity {
    /// The entity of this kind and name.
    pub fn new(kind: EntityType, id: impl Into<String>) -> Entity {
        Entity { kind, id: id.into() }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}

impl FromStr for Entity {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Entity, String> {
        let kinds = [EntityType::MON, EntityType::MDS, EntityType::OSD, EntityType::CLIENT, EntityType::MGR];
        let parts = text.split_once('.');
        let found = parts
            .and_then(|(kind, id)| Some((kinds.into_iter().find(|known| known.to_string() == kind)?, id)));
        let (kind, id) = found.ok_or_else(|| {
            format!("`{text}` names nobody: take client.NAME, osd.N, mgr.NAME, mds.NAME or mon.")
        })?;
        Ok(Entity::new(kind, id))
    }
}

/// The key of an entity, and what it may do at each service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its caps, by service.
    pub caps: BTreeMap<String, String>,
}

/// The entries of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(pub BTreeMap<Entity, Entry>);

impl Keyring {
    /// Reads a file's text. Names may have spaces for underscores, values may be quoted, `#` and `;` begin comments.
    ///
    /// # Errors
    /// Names the line.
    pub fn parse(text: &str) -> Result<Keyring> {
        let mut ring = BTreeMap::new();
        let mut section: Option<(Entity, Option<Key>, BTreeMap<String, String>)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what: &str| AuthError::BadKey(format!("line {number}: {what}"));
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                finish(&mut ring, section.take())?;
                section = Some((name.trim().parse().map_err(|e: String| wrong(&e))?, None, BTreeMap::new()));
                continue;
            }
            let (name, value) =
                line.split_once('=').ok_or_else(|| wrong("neither a section nor `name = value`"))?;
            let (_, key, caps) = section.as_mut().ok_or_else(|| wrong("a value before the first section"))?;
            let name = name.trim().replace(['_', '\t'], " ");
            match (name.as_str(), name.strip_prefix("caps ")) {
                ("key", _) => {
                    *key = Some(Key::from_base64(unquoted(value)).map_err(|e| wrong(&e.to_string()))?)
                }
                (_, Some(service)) => {
                    _ = caps.insert(service.trim().to_owned(), unquoted(value).replace("\\\"", "\""))
                }
                ("auid", _) => {}
                _ => return Err(wrong(&format!("`{name}` is not known; take `key` and `caps SERVICE`"))),
            }
        }
        finish(&mut ring, section)?;
        Ok(Keyring(ring))
    }

    /// The text of a file with these entries.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for (entity, entry) in &self.0 {
            *text += &format!("[{entity}]\n\tkey = ");
            *text += &entry.key.to_base64();
            *text += "\n";
            for (service, caps) in &entry.caps {
                *text += &format!("\tcaps {service} = \"{}\"\n", caps.replace('"', "\\\""));
            }
        }
        text
    }
}

fn finish(
    ring: &mut BTreeMap<Entity, Entry>,
    section: Option<(Entity, Option<Key>, BTreeMap<String, String>)>,
) -> Result<()> {
    if let Some((entity, key, caps)) = section {
        let key = key.ok_or_else(|| AuthError::BadKey(format!("[{entity}] has no key")))?;
        ring.insert(entity, Entry { key, caps });
    }
    Ok(())
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}
