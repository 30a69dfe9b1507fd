//! Erasure code profiles: the map carries them, but no pool can use one.

use std::collections::BTreeMap;

use carmine_types::{UTime, errno};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, refuse};

/// Keys and values.
pub(crate) type Profile = BTreeMap<String, String>;

/// Plugins that Ceph comes with.
const PLUGINS: [&str; 5] = ["jerasure", "isa", "lrc", "shec", "clay"];
/// Default values of a profile, as Ceph 16 fills them in.
const DEFAULTS: [(&str, &str); 8] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("jerasure-per-chunk-alignment", "false"),
    ("k", "2"),
    ("m", "2"),
    ("plugin", "jerasure"),
    ("technique", "reed_sol_van"),
];

/// The profile of a fresh Ceph 16 cluster.
pub(crate) fn default_profile() -> Profile {
    let own = DEFAULTS.iter().skip(4);
    own.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A profile with all that it leaves out.
pub(crate) fn filled(given: &[&str]) -> Profile {
    let pair = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.to_owned(), value.to_owned())
    };
    let mut profile: Profile = DEFAULTS.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    profile.insert("w".to_owned(), "8".to_owned());
    profile.extend(given.iter().map(|text| pair(text)));
    profile
}

/// `{k=2,m=2}`, as Ceph prints it.
fn shown(profile: &Profile) -> String {
    let pairs: Vec<String> = profile.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{{{}}}", pairs.join(","))
}

pub(super) fn set(
    map: &OsdMap,
    name: &str,
    profile: &Profile,
    force: bool,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let plugin = profile.get("plugin").map_or("", String::as_str);
    if !PLUGINS.contains(&plugin) {
        return Err(refuse(errno::EIO, format!("there is no erasure code plugin '{plugin}'")));
    }
    match map.erasure_code_profiles.get(name) {
        Some(old) if old == profile => return Ok(None),
        Some(old) if !force => {
            let text = format!(
                "will not override erasure code profile {name} because the existing profile {} is different from the \
                 proposed profile {}",
                shown(old),
                shown(profile)
            );
            return Err(refuse(errno::EPERM, text));
        }
        _ => {}
    }
    let mut inc = Incremental::next(map, now);
    inc.new_erasure_code_profiles.insert(name.to_owned(), profile.clone());
    Ok(Some(inc))
}

pub(super) fn remove(map: &OsdMap, name: &str, now: UTime) -> Option<Incremental> {
    map.erasure_code_profiles.get(name)?;
    let mut inc = Incremental::next(map, now);
    inc.old_erasure_code_profiles.push(name.to_owned());
    Some(inc)
}
