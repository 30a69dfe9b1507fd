//! Commands about PGs.

use carmine_types::{Epoch, OsdId, errno};
use serde_json::Value;

use super::osd::known;
use super::{Answer, Known, Outcome, View, change, either, number, read, said, text, texts, write};
use crate::change::pool::pool_of;
use crate::change::{Asked, Change, Refusal, refuse};
use crate::report::pg::{self, Filter, Part, Stuck, Style};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("pg stat", "count the PGs by state", |c, v| either(c, || pg::stat_json(v), || pg::stat_text(v))),
    read(
        "pg dump dumpcontents:(all|summary|sum|pools|osds|pgs|pgs_brief)+?",
        "show PGs, pools and OSDs, or parts of that",
        dump,
    ),
    read("pg ls pool:CephInt? states:CephString+?", "list the PGs in all of these states, of a pool", list),
    read(
        "pg ls-by-pool poolstr:CephString states:CephString+?",
        "list the PGs of the pool of that name",
        list,
    ),
    read(
        "pg ls-by-osd osd:CephOsdName pool:CephInt? states:CephString+?",
        "list the PGs that an OSD serves",
        list,
    ),
    read(
        "pg ls-by-primary osd:CephOsdName pool:CephInt? states:CephString+?",
        "list the PGs whose primary is an OSD",
        list,
    ),
    read(
        "pg dump_stuck stuckops:(inactive|unclean|stale|undersized|degraded)+? threshold:CephInt?",
        "list the PGs that are stuck in one of these states; all that are so now",
        dump_stuck,
    ),
    read("pg map pgid:CephPgid", "show the OSDs of a PG", map),
    write("pg repeer pgid:CephPgid", "let a PG peer again", repeer),
];

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let mut asked = texts(command, "dumpcontents");
    if asked.is_empty() {
        asked.push("all");
    }
    let answer = if asked == ["pgs_brief"] {
        let all = Filter::default();
        either(command, || pg::list_json(view, &all), || pg::list_text(view, &all, Style::Brief))?
    } else {
        let parts = parts(&asked)?;
        either(command, || pg::dump_json(view, &parts), || pg::dump_text(view, &parts))?
    };
    let Answer::Done { data, .. } = answer else { return said("") };
    Ok(Answer::Done { status: format!("dumped {}", asked.join(",")), data })
}

/// Nobody keeps since when a PG is in its state: the threshold is not looked at.
fn dump_stuck(command: &Value, view: &View<'_>) -> Outcome {
    let asked = texts(command, "stuckops");
    let word = |word: &&str| {
        Stuck::from_word(word)
            .ok_or_else(|| refuse(errno::EINVAL, format!("'{word}' is no state to be stuck in")))
    };
    let mut states = asked.iter().map(word).collect::<Result<Vec<_>, Refusal>>()?;
    if states.is_empty() {
        states.push(Stuck::Unclean);
    }
    let answer = either(command, || pg::stuck_json(view, &states), || pg::stuck_text(view, &states))?;
    let Answer::Done { data, .. } = answer else { return said("ok") };
    Ok(Answer::Done { status: "ok".to_owned(), data })
}

/// Every part of these words, once.
fn parts(words: &[&str]) -> Result<Vec<Part>, Refusal> {
    let mut parts = Vec::new();
    for word in words {
        let more = Part::from_word(word).ok_or_else(|| {
            refuse(errno::EINVAL, format!("pg dump has no part '{word}' that goes with others"))
        })?;
        parts.extend(more.iter().filter(|part| !parts.contains(*part)).copied().collect::<Vec<_>>());
    }
    Ok(parts)
}

/// All four commands that list PGs: each has some of the parameters.
fn list(command: &Value, view: &View<'_>) -> Outcome {
    let filter = filter(command, view)?;
    either(command, || pg::list_json(view, &filter), || pg::list_text(view, &filter, Style::List))
}

fn filter(command: &Value, view: &View<'_>) -> Result<Filter, Refusal> {
    let mut filter = Filter {
        pool: number::<u32>(command, "pool")?.map(i64::from),
        states: texts(command, "states").into_iter().map(str::to_owned).collect(),
        ..Filter::default()
    };
    if let Some(id) = filter.pool.filter(|id| view.map.pool(*id).is_none()) {
        return Err(refuse(errno::ENOENT, format!("pool {id} does not exist")));
    }
    if let Some(name) = text(command, "poolstr") {
        filter.pool = Some(pool_of(view.map, name)?.0);
    }
    if let Some(name) = command.get("osd") {
        let osd = Some(known(view, name)?);
        match text(command, "prefix") {
            Some("pg ls-by-primary") => filter.primary = osd,
            _ => filter.osd = osd,
        }
    }
    Ok(filter)
}

/// As in Ceph the primary serves the PG alone, or, if it does that already, with any other OSD, until it asks for what it wants: that is
/// two new intervals. Where no other OSD is up the PG stays as it is.
fn repeer(command: &Value, view: &View<'_>) -> Outcome {
    let id = text(command, "pgid").unwrap_or_default();
    let found =
        pg::parse(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("pg '{id}' does not exist")))?;
    let mapping = view.placement.mapping(found);
    let Some(leader) = mapping.acting_primary else {
        return Err(refuse(errno::EAGAIN, "pg currently has no primary"));
    };
    let mut entry = vec![leader.0 as i32];
    if mapping.acting_osds().count() == 1 {
        let is_other = |osd: &OsdId| *osd != leader && view.map.is_up(*osd);
        let Some(other) = view.map.osds().find(is_other) else { return said("") };
        entry.push(other.0 as i32);
    }
    let temps = [(found, entry)].into();
    change(Change::PgTemp(Asked { leader, epoch: Epoch(0), temps, forced: false }), "")
}

fn map(command: &Value, view: &View<'_>) -> Outcome {
    let id = text(command, "pgid").unwrap_or_default();
    let found =
        pg::parse_raw(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("pg '{id}' does not exist")))?;
    either(command, || pg::map_json(view, found), || pg::map_text(view, found))
}
