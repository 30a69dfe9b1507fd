//! Room in the folders of stores.

use crate::Finding;
use crate::machine::Machine;
use crate::options::Place;

const TOPIC: &str = "free space";
/// A file system that is fuller than this spreads new files over what is left.
const FULL_PERCENT: u64 = 90;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let found = machine.options.places.iter().map(|place| match room(place) {
        Some((free, total)) => judge(place, free, total),
        None => Finding::absent(TOPIC, "the folder does not exist").on(place.folder.display().to_string()),
    });
    let found = found.collect();
    Finding::or_absent(found, TOPIC, "no folder was named: give --dir")
}

/// Free and all bytes of the folder's file system.
fn room(place: &Place) -> Option<(u64, u64)> {
    let fs = rustix::fs::statvfs(&place.folder).ok()?;
    Some((fs.f_bavail.saturating_mul(fs.f_frsize), fs.f_blocks.saturating_mul(fs.f_frsize)))
}

fn judge(place: &Place, free_bytes: u64, total_bytes: u64) -> Finding {
    let percent = 100 - (free_bytes.saturating_mul(100) / total_bytes.max(1)).min(100);
    let is = format!("{} of {} MiB are free ({percent} % used)", free_bytes >> 20, total_bytes >> 20);
    let finding = if free_bytes < place.needed_bytes {
        Finding::bad(TOPIC, is)
            .better(format!(
                "{} MiB free, for stores that are not written through yet",
                place.needed_bytes >> 20
            ))
            .command("carmine up --osd-size SIZE in a folder with room, as any user")
    } else if percent >= FULL_PERCENT {
        Finding::warn(TOPIC, is)
            .better(format!("less than {FULL_PERCENT} % used: block files are scattered over what is left"))
    } else {
        Finding::ok(TOPIC, is)
    };
    finding.on(place.folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn room_is_compared_with_need() {
        let place = Place { folder: "/x".into(), needed_bytes: 5 << 20 };
        assert_eq!(judge(&place, 4 << 20, 100 << 20).severity, Severity::Bad);
        assert_eq!(judge(&place, 6 << 20, 100 << 20).severity, Severity::Warn);
        assert_eq!(judge(&place, 60 << 20, 100 << 20).severity, Severity::Ok);
    }

    #[test]
    fn real_folders() {
        let tree = Tree::new(&[]);
        let of = |folder| {
            let place = Place { folder, needed_bytes: 0 };
            examine(&Machine::look(&Options { places: vec![place], ..tree.options() })).remove(0).severity
        };
        assert_ne!(of(tree.path().to_path_buf()), Severity::NotPresent);
        assert_eq!(of(tree.path().join("none")), Severity::NotPresent);
    }
}
