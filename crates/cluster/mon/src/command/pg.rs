//! Commands about PGs.

use carmine_types::{OsdId, errno};
use serde_json::Value;

use super::args::{number, osd, text};
use super::output::{either, said};
use super::{Answer, Known, Outcome, View};
use crate::change::{Refusal, refuse};
use crate::report::pg;
use crate::report::pg_dump::{self, Filter, Part};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    Known { words: "pg stat", parameters: &[], help: "count the PGs by state", perm: "r", run: stat },
    Known {
        words: "pg dump",
        parameters: &["dumpcontents:(all|summary|sum|pools|osds|pgs|pgs_brief)+?"],
        help: "show PGs, pools and OSDs, or parts of that",
        perm: "r",
        run: dump,
    },
    Known {
        words: "pg ls",
        parameters: &["pool:CephInt?", "states:CephString+?"],
        help: "list the PGs in all of these states, of a pool",
        perm: "r",
        run: list,
    },
    Known {
        words: "pg ls-by-pool",
        parameters: &["poolstr:CephString", "states:CephString+?"],
        help: "list the PGs of the pool of that name",
        perm: "r",
        run: list,
    },
    Known {
        words: "pg ls-by-osd",
        parameters: &["osd:CephOsdName", "pool:CephInt?", "states:CephString+?"],
        help: "list the PGs that an OSD serves",
        perm: "r",
        run: list,
    },
    Known {
        words: "pg ls-by-primary",
        parameters: &["osd:CephOsdName", "pool:CephInt?", "states:CephString+?"],
        help: "list the PGs whose primary is an OSD",
        perm: "r",
        run: list,
    },
    Known {
        words: "pg map",
        parameters: &["pgid:CephPgid"],
        help: "show the OSDs of a PG",
        perm: "r",
        run: map,
    },
];

fn stat(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || pg::stat_json(view), || pg::stat_text(view))
}

/// The words of a list parameter; a single one may come without its list.
fn words<'a>(command: &'a Value, name: &str) -> Vec<&'a str> {
    let list = command.get(name);
    let list = list.map_or(&[][..], |list| list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice));
    list.iter().filter_map(Value::as_str).collect()
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let mut asked = words(command, "dumpcontents");
    if asked.is_empty() {
        asked.push("all");
    }
    let answer = if asked == ["pgs_brief"] {
        let all = Filter::default();
        either(command, || pg_dump::list_json(view, &all), || pg_dump::list_text(view, &all))?
    } else {
        let parts = parts(&asked)?;
        either(command, || pg_dump::json(view, &parts), || pg_dump::text(view, &parts))?
    };
    let Answer::Done { data, .. } = answer else { return said("") };
    Ok(Answer::Done { status: format!("dumped {}", asked.join(",")), data })
}

/// Every part of these words, once.
fn parts(words: &[&str]) -> Result<Vec<Part>, Refusal> {
    let mut parts = Vec::new();
    for word in words {
        let more = Part::of(word).ok_or_else(|| {
            refuse(errno::EINVAL, format!("pg dump has no part '{word}' that goes with others"))
        })?;
        parts.extend(more.iter().filter(|part| !parts.contains(*part)).copied().collect::<Vec<_>>());
    }
    Ok(parts)
}

/// All four commands that list PGs: each has some of the parameters.
fn list(command: &Value, view: &View<'_>) -> Outcome {
    let filter = filter(command, view)?;
    either(command, || pg_dump::list_json(view, &filter), || pg_dump::list_text(view, &filter))
}

fn filter(command: &Value, view: &View<'_>) -> Result<Filter, Refusal> {
    let mut filter = Filter {
        pool: number::<u32>(command, "pool")?.map(i64::from),
        states: words(command, "states").into_iter().map(str::to_owned).collect(),
        ..Filter::default()
    };
    if let Some(name) = text(command, "poolstr") {
        let missing = || refuse(errno::ENOENT, format!("there is no pool '{name}'"));
        filter.pool = Some(view.map.pool_id(name).ok_or_else(missing)?);
    }
    if let Some(name) = command.get("osd") {
        let osd = Some(existing(osd(name)?, view)?);
        match text(command, "prefix") {
            Some("pg ls-by-primary") => filter.primary = osd,
            _ => filter.osd = osd,
        }
    }
    Ok(filter)
}

fn existing(osd: OsdId, view: &View<'_>) -> Result<OsdId, Refusal> {
    let missing = || refuse(errno::ENOENT, format!("{osd} does not exist"));
    view.map.exists(osd).then_some(osd).ok_or_else(missing)
}

fn map(command: &Value, view: &View<'_>) -> Outcome {
    let id = text(command, "pgid").unwrap_or_default();
    let found = pg::parse(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("there is no pg '{id}'")))?;
    either(command, || pg::map_json(view, found), || pg::map_text(view, found))
}
