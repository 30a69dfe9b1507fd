//! Options that administrators store for clients and OSDs (`ceph config set`, `rbd config global set`): the monitor sends each of
//! them those of its own, and of all. Beside them lie keys that mean nothing to Carmine (`ceph config-key`), and the health checks
//! that are muted.

use std::collections::BTreeMap;

use carmine_auth::issuer::Issuer;
use carmine_codec::Coded as _;
use carmine_types::{UTime, errno};
use carmine_wire::{DecodeError, Decoder, Encoder};

use crate::auth::AuthEdit;
use crate::change::{Refusal, refuse};
use crate::option_log::{OptionLog, Sections};

/// Most options that are stored.
const OPTIONS_MAX: usize = 1_000;
/// Longest name of an option or of whom it is for, bytes.
const NAME_BYTES_MAX: usize = 128;
/// Longest value, bytes.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// Longest key that tools use among themselves, and its value, as in Ceph (mon_config_key_max_entry_size).
const KEY_BYTES_MAX: usize = 1 << 10;
const KEY_VALUE_BYTES_MAX: usize = 64 << 10;
/// All of these keys and their values: each change writes them all.
const KEYS_BYTES_MAX: usize = 4 << 20;

/// First words of the options that clients have. The monitor keeps no list of them: a client takes no notice of one that it has
/// not got.
const CLIENT_WORDS: [&str; 11] =
    ["client", "crush", "debug", "err", "librados", "log", "ms", "mon", "objecter", "rados", "rbd"];

/// Whether an option of this name may be one of a client.
pub(crate) fn is_client_option(name: &str) -> bool {
    let word = name.split('_').next().unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    CLIENT_WORDS.contains(&word) && name != word && name.len() <= NAME_BYTES_MAX && name.chars().all(good)
}

/// Options of OSDs that can change while they run: name, default, least value. The one without numbers is `true` or `false`; one whose
/// default has a point may have a fraction.
const OSD_OPTIONS: [(&str, &str, u64); 13] = [
    ("osd_backfill_retry_interval", "30", 0),
    ("osd_deep_scrub_interval", "604800", 0),
    ("osd_deep_scrub_large_omap_object_key_threshold", "200000", 0),
    ("osd_deep_scrub_large_omap_object_value_sum_threshold", "1073741824", 0),
    ("osd_max_backfills", "1", 1),
    ("osd_op_complaint_time", "30.000000", 0),
    ("osd_recovery_bytes_per_second", "0", 0),
    ("osd_recovery_max_active", "10", 1),
    ("osd_scrub_auto_repair", "false", 0),
    ("osd_scrub_auto_repair_num_errors", "5", 0),
    ("osd_scrub_bytes_per_second", "67108864", 256 << 10),
    ("osd_scrub_max_interval", "604800", 0),
    ("osd_scrub_min_interval", "86400", 0),
];

/// The monitor's option for how many PGs OSDs may have on average, and its default, which is Ceph's.
pub(crate) const MAX_PGS: (&str, &str) = ("mon_max_pg_per_osd", "250");

/// # Errors
/// EINVAL: no such number of PGs.
pub(crate) fn check_max_pgs(value: &str) -> Result<u32, Refusal> {
    let number = value.parse::<u32>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        refuse(
            errno::EINVAL,
            format!("'{value}' is no value of '{}': give a whole number from 1 on", MAX_PGS.0),
        )
    })
}

/// The default of an option that OSDs take while they run.
pub(crate) fn osd_default(name: &str) -> Option<&'static str> {
    OSD_OPTIONS.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| *value)
}

/// # Errors
/// EINVAL: the value is none for this option of OSDs.
pub(crate) fn check_osd_option(name: &str, value: &str) -> Result<(), Refusal> {
    let Some((_, default, least)) = OSD_OPTIONS.iter().find(|(known, ..)| *known == name) else {
        return Ok(());
    };
    let is_number = default.parse::<f64>().is_ok();
    let most = if name.ends_with("_per_second") { u64::MAX } else { u32::MAX.into() };
    let is_good = if default.contains('.') {
        value.parse::<f64>().is_ok_and(|number| (*least as f64..=most as f64).contains(&number))
    } else if is_number {
        value.parse::<u64>().is_ok_and(|number| (*least..=most).contains(&number))
    } else {
        value.parse::<bool>().is_ok()
    };
    let whole = if default.contains('.') { "" } else { "whole " };
    let wanted =
        if is_number { format!("a {whole}number, {least} to {most}") } else { "true or false".to_owned() };
    is_good
        .then_some(())
        .ok_or_else(|| refuse(errno::EINVAL, format!("'{value}' is no value of '{name}': give {wanted}")))
}

/// # Errors
/// EFBIG: the key or its value is too long.
fn check_key(key: &str, value: &str) -> Result<(), Refusal> {
    if value.len() > KEY_VALUE_BYTES_MAX {
        return Err(refuse(
            errno::EFBIG,
            format!("error: entry size limited to {KEY_VALUE_BYTES_MAX} bytes"),
        ));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(refuse(
            errno::EFBIG,
            format!("a key of {} bytes: the limit is {KEY_BYTES_MAX}", key.len()),
        ));
    }
    Ok(())
}

/// A health check that nobody wants to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mute {
    /// Its end; zero: none.
    pub(crate) until: UTime,
    /// It stays when the check is over, or becomes worse.
    pub(crate) is_sticky: bool,
    /// What the check said at the time, and of how many things.
    pub(crate) summary: String,
    pub(crate) count: u64,
}

impl Mute {
    pub(crate) fn is_over(&self, now: UTime) -> bool {
        self.until != UTime::ZERO && self.until <= now
    }
}

/// A mute as it is stored.
type StoredMute = ((UTime, bool), (String, u64));

/// A change of the options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OptionEdit {
    Set {
        who: String,
        name: String,
        value: String,
    },
    Remove {
        who: String,
        name: String,
    },
    /// Stores a value that tools use among themselves, or with `None` forgets it.
    Key {
        key: String,
        value: Option<String>,
    },
    Mute {
        code: String,
        mute: Mute,
    },
    Unmute {
        codes: Vec<String>,
    },
    /// Changes of who is known, and by which key.
    Auth(Vec<AuthEdit>),
    /// The options are again as they were at this version.
    Reset {
        version: u64,
    },
}

impl OptionEdit {
    /// Its reason, as the log of the options has it.
    fn why(&self) -> String {
        match self {
            OptionEdit::Reset { version } => format!("reset to {version}"),
            _ => String::new(),
        }
    }

    /// The change as the log shows it: the values that tools keep may be secrets.
    pub(crate) fn shown(&self) -> OptionEdit {
        match self {
            OptionEdit::Key { key, value } => {
                OptionEdit::Key { key: key.clone(), value: value.as_ref().map(|_| "***".to_owned()) }
            }
            other => other.clone(),
        }
    }
}

/// Values by name, by whom they are for: `global`, `client`, `client.ID`, `osd`, or `osd.ID`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ClientOptions {
    sections: Sections,
    /// Values that tools use among themselves.
    pub(crate) keys: BTreeMap<String, String>,
    /// By the code of the check.
    pub(crate) mutes: BTreeMap<String, Mute>,
    /// How the options became so.
    pub(crate) log: OptionLog,
    /// Who is known, and the services' keys; `None`: nobody is asked for a key.
    pub(crate) auth: Option<Issuer>,
}

impl ClientOptions {
    pub(crate) fn decode(bytes: &[u8]) -> Result<ClientOptions, DecodeError> {
        if bytes.is_empty() {
            return Ok(ClientOptions::default());
        }
        Decoder::all(bytes, "options", |d| {
            let sections = d.get()?;
            // States that were written before there were keys end here.
            let keys = if d.is_empty() { BTreeMap::new() } else { d.get()? };
            // And those before there were mutes here.
            let mutes: BTreeMap<String, StoredMute> = if d.is_empty() { BTreeMap::new() } else { d.get()? };
            let mute = |((until, is_sticky), (summary, count))| Mute { until, is_sticky, summary, count };
            let mutes = mutes.into_iter().map(|(code, stored)| (code, mute(stored))).collect();
            // And those before changes were noted here.
            let log = if d.is_empty() { OptionLog::default() } else { OptionLog::decode(d)? };
            // And those before there were keys of entities here.
            let auth = if d.is_empty() { None } else { Some(d.get()?) };
            Ok(ClientOptions { sections, keys, mutes, log, auth })
        })
    }

    /// No bytes if there are none.
    pub(crate) fn encode(&self) -> Vec<u8> {
        if *self == ClientOptions::default() {
            return Vec::new();
        }
        Encoder::collect(|e| {
            e.put(&self.sections);
            e.put(&self.keys);
            let stored = |mute: &Mute| -> StoredMute {
                ((mute.until, mute.is_sticky), (mute.summary.clone(), mute.count))
            };
            let mutes: BTreeMap<String, StoredMute> =
                self.mutes.iter().map(|(code, mute)| (code.clone(), stored(mute))).collect();
            // Earlier programs read a state without any.
            let (has_log, has_auth) = (!self.log.is_empty(), self.auth.is_some());
            if !mutes.is_empty() || has_log || has_auth {
                e.put(&mutes);
            }
            if has_log || has_auth {
                self.log.encode(e);
            }
            self.auth.iter().for_each(|issuer| issuer.put(e));
        })
    }

    /// The options after a change.
    ///
    /// # Errors
    /// E2BIG: there are too many, or a value is too long.
    pub(crate) fn edited(&self, edit: &OptionEdit) -> Result<ClientOptions, Refusal> {
        let mut next = self.clone();
        match edit {
            OptionEdit::Set { who, name, value } => {
                if value.len() > VALUE_BYTES_MAX || who.len() > NAME_BYTES_MAX {
                    return Err(refuse(
                        errno::E2BIG,
                        format!("the value of '{name}' for '{who}' is too long"),
                    ));
                }
                next.sections.entry(who.clone()).or_default().insert(name.clone(), value.clone());
            }
            OptionEdit::Remove { who, name } => {
                next.sections.get_mut(who).map(|section| section.remove(name));
                next.sections.retain(|_, section| !section.is_empty());
            }
            OptionEdit::Key { key, value: Some(value) } => {
                check_key(key, value)?;
                next.keys.insert(key.clone(), value.clone());
                let bytes: usize = next.keys.iter().map(|(key, value)| key.len() + value.len()).sum();
                if bytes > KEYS_BYTES_MAX {
                    let text =
                        format!("all keys and their values together have {KEYS_BYTES_MAX} bytes at most");
                    return Err(refuse(errno::ENOSPC, text));
                }
            }
            OptionEdit::Key { key, value: None } => {
                next.keys.remove(key);
            }
            OptionEdit::Mute { code, mute } => {
                if code.len() > NAME_BYTES_MAX {
                    return Err(refuse(errno::E2BIG, "no health check has so long a name"));
                }
                next.mutes.insert(code.clone(), mute.clone());
            }
            OptionEdit::Unmute { codes } => next.mutes.retain(|code, _| !codes.contains(code)),
            OptionEdit::Auth(_) => {}
            OptionEdit::Reset { version } => next.sections = self.log.undo(&self.sections, *version)?,
        }
        if next.all().count() + next.keys.len() + next.mutes.len() > OPTIONS_MAX {
            return Err(refuse(
                errno::E2BIG,
                format!("{OPTIONS_MAX} options, keys and mutes are stored, which is the limit"),
            ));
        }
        Ok(next)
    }

    /// The options after a change at this time, which their log tells of.
    ///
    /// # Errors
    /// As [`ClientOptions::edited`].
    pub(crate) fn edited_at(&self, edit: &OptionEdit, now: UTime) -> Result<ClientOptions, Refusal> {
        let mut next = self.edited(edit)?;
        if let OptionEdit::Auth(edits) = edit {
            for edit in edits {
                next.auth = next.auth.map(|issuer| edit.applied(issuer, now)).transpose()?;
            }
        }
        next.log.note(&self.sections, &next.sections, &edit.why(), now);
        Ok(next)
    }

    /// PGs, with all replicas, that OSDs may have on average.
    pub(crate) fn max_pg_per_osd(&self) -> u32 {
        let own = self.effective("mon.a");
        let stored = own.get(MAX_PGS.0).and_then(|(value, _)| check_max_pgs(value).ok());
        stored.or_else(|| MAX_PGS.1.parse().ok()).unwrap_or(u32::MAX)
    }

    /// For whom, name and value: `global` first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let mut order: Vec<&String> = self.sections.keys().collect();
        // A stable sort: the others stay in their order.
        order.sort_by_key(|who| who.as_str() != "global");
        order.into_iter().flat_map(|who| {
            let section = self.sections.get(who).into_iter().flatten();
            section.map(move |(name, value)| (who.as_str(), name.as_str(), value.as_str()))
        })
    }

    /// The options of `client.NAME` or `osd.ID`, each with the section that it comes from: the nearest section counts.
    pub(crate) fn effective(&self, own: &str) -> BTreeMap<&str, (&str, &str)> {
        let meant = |who: &str| {
            let is_part = own.strip_prefix(who).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            who == "global" || is_part
        };
        let mut sections: Vec<&str> =
            self.sections.keys().map(String::as_str).filter(|who| meant(who)).collect();
        sections.sort_by_key(|who| if *who == "global" { 0 } else { who.len() });
        let mut out = BTreeMap::new();
        for who in sections {
            let values = self.sections.get(who).into_iter().flatten();
            out.extend(values.map(|(name, value)| (name.as_str(), (value.as_str(), who))));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(who: &str, name: &str, value: &str) -> OptionEdit {
        OptionEdit::Set { who: who.into(), name: name.into(), value: value.into() }
    }

    #[test]
    fn the_nearest_section_counts() {
        let mut options = ClientOptions::default();
        let edits = [
            set("client.a", "rbd_cache", "1"),
            set("client", "rbd_cache", "2"),
            set("global", "rbd_cache", "3"),
            set("global", "rbd_default_features", "4"),
            set("client.ab", "rbd_cache", "5"),
        ];
        for edit in &edits {
            options = options.edited(edit).unwrap();
        }
        assert_eq!(ClientOptions::decode(&options.encode()), Ok(options.clone()));
        assert_eq!(options.effective("client.a")["rbd_cache"], ("1", "client.a"));
        assert_eq!(options.effective("client.a.b")["rbd_cache"], ("1", "client.a"));
        assert_eq!(options.effective("client.b")["rbd_cache"], ("2", "client"));
        assert_eq!(options.effective("client.ab")["rbd_default_features"], ("4", "global"));
        assert_eq!(options.all().next().unwrap().0, "global");
        for who in ["client.a", "client", "client.ab", "global"] {
            options =
                options.edited(&OptionEdit::Remove { who: who.into(), name: "rbd_cache".into() }).unwrap();
        }
        assert_eq!(options.all().collect::<Vec<_>>(), [("global", "rbd_default_features", "4")]);
    }

    #[test]
    fn keys_lie_beside_options() {
        let key = |key: &str, value: Option<&str>| OptionEdit::Key {
            key: key.into(),
            value: value.map(str::to_owned),
        };
        let options = ClientOptions::default().edited(&key("a/b", Some("c"))).unwrap();
        assert_eq!(ClientOptions::decode(&options.encode()), Ok(options.clone()));
        assert_eq!((options.all().count(), options.keys["a/b"].as_str()), (0, "c"));
        assert!(options.edited(&key("k", Some(&"v".repeat(KEY_VALUE_BYTES_MAX)))).is_ok());
        assert!(options.edited(&key("k", Some(&"v".repeat(KEY_VALUE_BYTES_MAX + 1)))).is_err());
        assert!(options.edited(&key(&"k".repeat(KEY_BYTES_MAX + 1), Some("v"))).is_err());
        let mut full = options.clone();
        let most = KEYS_BYTES_MAX / KEY_VALUE_BYTES_MAX;
        let is_stored = |full: &mut ClientOptions, n: usize| {
            let next = full.edited(&key(&n.to_string(), Some(&"v".repeat(KEY_VALUE_BYTES_MAX))));
            next.map(|next| *full = next).is_ok()
        };
        assert_eq!((0..most + 5).filter(|n| is_stored(&mut full, *n)).count(), most - 1);
        assert_eq!(options.edited(&key("a/b", None)), Ok(ClientOptions::default()));
        // As it was written before there were keys.
        let sections = ClientOptions::default().edited(&set("global", "rbd_cache", "1")).unwrap();
        let old = Encoder::collect(|e| e.put(&sections.sections));
        assert_eq!(ClientOptions::decode(&old), Ok(sections));
    }

    #[test]
    fn changes_are_noted_and_undone() {
        let at = |sec| UTime { sec, nsec: 0 };
        let shown = |options: &ClientOptions, count| -> Vec<(u64, String)> {
            let one = |entry: crate::option_log::Entry| {
                let edited =
                    entry.edited.iter().map(|e| format!("{}/{} {:?} {:?}", e.who, e.name, e.before, e.after));
                (entry.version, format!("{}{}", entry.why, edited.collect::<Vec<_>>().join(",")))
            };
            options.log.newest(count).into_iter().map(one).collect()
        };
        let mut options = ClientOptions::default();
        assert_eq!(shown(&options, 10), [(1, String::new())]);
        let edits = [
            set("osd", "osd_max_backfills", "3"),
            set("client", "rbd_cache", "true"),
            set("client", "rbd_cache", "true"),
            OptionEdit::Key { key: "a".into(), value: Some("b".into()) },
            set("client", "rbd_cache", "false"),
        ];
        for (n, edit) in edits.iter().enumerate() {
            options = options.edited_at(edit, at(n as u32)).unwrap();
        }
        assert_eq!(ClientOptions::decode(&options.encode()), Ok(options.clone()));
        // Neither keys nor what changes nothing are changes of options.
        let last = (4, "client/rbd_cache Some(\"true\") Some(\"false\")".to_owned());
        assert_eq!(shown(&options, 1), [last]);
        assert_eq!(shown(&options, 10).len(), 4);
        let back = options.edited_at(&OptionEdit::Reset { version: 2 }, at(9)).unwrap();
        assert_eq!(back.all().collect::<Vec<_>>(), [("osd", "osd_max_backfills", "3")]);
        assert_eq!(shown(&back, 1), [(5, "reset to 2client/rbd_cache Some(\"false\") None".to_owned())]);
        let forth = back.edited_at(&OptionEdit::Reset { version: 4 }, at(10)).unwrap();
        assert_eq!(forth.all().collect::<Vec<_>>(), options.all().collect::<Vec<_>>());
        let none = forth.edited_at(&OptionEdit::Reset { version: 0 }, at(11)).unwrap();
        assert_eq!(none.all().count(), 0);
        assert!(none.edited(&OptionEdit::Reset { version: 99 }).is_err());
        for n in 0..200 {
            options = options.edited_at(&set("client", "rbd_cache", &n.to_string()), at(n)).unwrap();
        }
        assert_eq!(options.log.newest(1000).len(), 100, "older ones are forgotten");
        assert!(options.edited(&OptionEdit::Reset { version: 3 }).is_err());
    }

    #[test]
    fn mutes_are_kept() {
        let mute = Mute { until: UTime { sec: 9, nsec: 1 }, is_sticky: true, summary: "s".into(), count: 2 };
        let edit = OptionEdit::Mute { code: "OSD_DOWN".into(), mute: mute.clone() };
        let options = ClientOptions::default().edited(&edit).unwrap();
        assert_eq!(ClientOptions::decode(&options.encode()), Ok(options.clone()));
        assert!(!mute.is_over(UTime { sec: 9, nsec: 0 }) && mute.is_over(UTime { sec: 9, nsec: 1 }));
        assert!(!Mute { until: UTime::ZERO, ..mute }.is_over(UTime { sec: 9, nsec: 1 }));
        assert_eq!(
            options.edited(&OptionEdit::Unmute { codes: vec!["PG_DEGRADED".into()] }),
            Ok(options.clone())
        );
        let codes = vec!["OSD_DOWN".into()];
        assert_eq!(options.edited(&OptionEdit::Unmute { codes }), Ok(ClientOptions::default()));
    }

    #[test]
    fn what_is_stored_is_bounded() {
        let mut options = ClientOptions::default();
        assert!(options.edited(&set("client", "rbd_cache", &"v".repeat(5000))).is_err());
        for n in 0..OPTIONS_MAX {
            options = options.edited(&set("client", &format!("rbd_{n}"), "1")).unwrap();
        }
        assert!(options.edited(&set("client", "rbd_more", "1")).is_err());
        assert!(options.edited(&set("client", "rbd_0", "2")).is_ok());
        assert!(ClientOptions::decode(b"any").is_err());
        let good = |name, value| check_osd_option(name, value).is_ok();
        assert!(OSD_OPTIONS.iter().all(|(name, value, _)| good(name, value) && !good(name, "tea")));
        assert!(good("osd_op_complaint_time", "0.5") && !good("osd_op_complaint_time", "-1"));
        assert!(!good("osd_op_complaint_time", "nan") && !good("osd_op_complaint_time", "inf"));
        assert!(!good("osd_max_backfills", "0") && !good("osd_scrub_bytes_per_second", "9"));
        let names = ["rbd_cache", "debug_ms", "rbd", "tea_cache", "rbd cache", "osd_max"];
        assert_eq!(names.map(is_client_option), [true, true, false, false, false, false]);
    }
}
