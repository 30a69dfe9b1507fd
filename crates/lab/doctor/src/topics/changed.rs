//! Options of the testbed that are not their defaults.

use crate::Finding;
use crate::machine::Machine;

const TOPIC: &str = "changed option";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let changed =
        machine.options.changed.iter().map(|(name, value, default)| {
            Finding::info(TOPIC, format!("{value} (default: {default})")).on(name)
        });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::testing::Tree;

    #[test]
    fn each_is_named() {
        let tree = Tree::new(&[]);
        let changed = vec![("poll".to_owned(), "sleep".to_owned(), "adaptive".to_owned())];
        let found = examine(&Machine::look(&Options { changed, ..tree.options() }));
        assert_eq!(
            (found[0].subject.as_deref(), found[0].is.as_str()),
            (Some("poll"), "sleep (default: adaptive)")
        );
    }
}
