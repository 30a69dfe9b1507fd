//! Commands about PGs.

use serde_json::Value;

use super::args::text;
use super::output::{either, said};
use super::{Answer, Known, Outcome, View};
use crate::change::refuse;
use crate::report::pg;
use carmine_types::errno;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    Known { words: "pg stat", parameters: &[], help: "count the PGs by state", perm: "r", run: stat },
    Known {
        words: "pg dump",
        parameters: &["dumpcontents:(pgs_brief|pgs|summary|sum|osds|pools|all)+?"],
        help: "list the PGs with their state and OSDs",
        perm: "r",
        run: dump,
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

/// Everything there is to know of a PG is in its brief line.
fn dump(command: &Value, view: &View<'_>) -> Outcome {
    let contents = command.get("dumpcontents");
    let contents = contents.and_then(|c| c.as_array().map_or(c.as_str(), |list| list.first()?.as_str()));
    match contents {
        Some("pgs_brief") => {}
        other => {
            let what = other.unwrap_or("the whole dump");
            return Err(refuse(
                errno::EOPNOTSUPP,
                format!("{what} is not supported: take 'pg dump pgs_brief'"),
            ));
        }
    }
    let answer = either(command, || pg::brief_json(view), || pg::brief_text(view))?;
    let Answer::Done { data, .. } = answer else { return said("") };
    Ok(Answer::Done { status: "dumped pgs_brief".into(), data })
}

fn map(command: &Value, view: &View<'_>) -> Outcome {
    let id = text(command, "pgid").unwrap_or_default();
    let found = pg::parse(view, id).ok_or_else(|| refuse(errno::ENOENT, format!("there is no pg '{id}'")))?;
    either(command, || pg::map_json(view, found), || pg::map_text(view, found))
}
