//! Device classes of the CRUSH map.

use carmine_crush::classes;
use carmine_types::{OsdId, UTime, errno};
use carmine_wire::crushmap::CrushMap;
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, refuse};

/// A wish about device classes.
#[derive(Clone, Debug)]
pub(crate) enum ClassEdit {
    Create {
        name: String,
    },
    Remove {
        name: String,
    },
    Rename {
        name: String,
        to: String,
    },
    /// These OSDs are of this class, or of none.
    Set {
        osds: Vec<OsdId>,
        class: Option<String>,
    },
}

pub(super) fn edit(map: &OsdMap, edit: &ClassEdit, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let mut crush = CrushMap::clone(&map.crush);
    match edit {
        ClassEdit::Create { name } => drop(classes::create_class(&mut crush, name)),
        ClassEdit::Remove { name } => {
            let Some(class) = classes::class_of(&crush, name) else { return Ok(None) };
            let rules: Vec<String> = rules_of(&crush, class).iter().map(|rule| format!("'{rule}'")).collect();
            if !rules.is_empty() {
                let text = format!("class '{name}' still referenced by crush_rule(s): {}", rules.join(","));
                return Err(refuse(errno::EBUSY, text));
            }
            classes::remove_class(&mut crush, class);
        }
        ClassEdit::Rename { name, to } => {
            let failed =
                |errno, why: &str| refuse(errno, format!("fail to rename '{name}' to '{to}' : {why}"));
            match (classes::class_of(&crush, name), classes::class_of(&crush, to)) {
                (_, Some(_)) => return Err(failed(errno::EEXIST, "(17) File exists")),
                (None, None) => return Err(failed(errno::ENOENT, "(2) No such file or directory")),
                (Some(class), None) => classes::rename_class(&mut crush, class, to),
            }
        }
        ClassEdit::Set { osds, class } => {
            let devices: Vec<i32> = osds.iter().map(|osd| osd.0 as i32).collect();
            classes::set_class(&mut crush, &devices, class.as_deref());
        }
    }
    if crush == *map.crush {
        return Ok(None);
    }
    Ok(Some(Incremental { crush: crush.encode(), ..Incremental::next(map, now) }))
}

/// The names of the rules that choose among the devices of a class.
pub(crate) fn rules_of(crush: &CrushMap, class: i32) -> Vec<String> {
    classes::rules_of(crush, class).iter().filter_map(|slot| crush.rule_names.get(slot).cloned()).collect()
}
