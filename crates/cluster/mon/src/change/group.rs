//! The flags noup, nodown, noin and noout: of the whole map, of single OSDs, of a CRUSH node with all OSDs below it, and of a device class.

use carmine_crush::tree::is_below;
use carmine_types::{OsdId, UTime};
use carmine_wire::osdmap::consts::{FLAG_NODOWN, FLAG_NOIN, FLAG_NOOUT, FLAG_NOUP};
use carmine_wire::osdmap::{Incremental, OsdMap};

/// One of these flags: its bit in the map's flags, and the one in those of an OSD, a node or a class.
#[derive(Clone, Copy)]
pub(crate) struct Bar {
    of_map: u32,
    pub(crate) of_osd: u32,
    pub(crate) name: &'static str,
}

/// OSDs that boot stay down.
pub(crate) const NOUP: Bar = Bar { of_map: FLAG_NOUP, of_osd: 0x100, name: "noup" };
/// OSDs stay up, whoever reports them.
pub(crate) const NODOWN: Bar = Bar { of_map: FLAG_NODOWN, of_osd: 0x200, name: "nodown" };
/// OSDs that boot stay out.
pub(crate) const NOIN: Bar = Bar { of_map: FLAG_NOIN, of_osd: 0x400, name: "noin" };
/// OSDs that are down stay in.
pub(crate) const NOOUT: Bar = Bar { of_map: FLAG_NOOUT, of_osd: 0x800, name: "noout" };
/// In the order in which tools list them.
pub(crate) const BARS: [Bar; 4] = [NODOWN, NOIN, NOOUT, NOUP];

impl Bar {
    /// Whether it is set for an OSD, wherever.
    pub(crate) fn holds(&self, map: &OsdMap, osd: OsdId) -> bool {
        let (item, bit) = (osd.0 as i32, self.of_osd);
        let class = map.crush.item_classes.get(&item).and_then(|class| map.device_class_flags.get(class));
        let mut nodes = map.crush_node_flags.iter().filter(|(_, flags)| **flags & bit != 0);
        map.flags & self.of_map != 0
            || map.state(osd) & bit != 0
            || class.is_some_and(|flags| flags & bit != 0)
            || nodes.any(|(node, _)| is_below(&map.crush, item, *node))
    }
}

/// Those for which flags are set or cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) osds: Vec<OsdId>,
    /// CRUSH nodes, and classes, by their ids.
    pub(crate) nodes: Vec<i32>,
    pub(crate) classes: Vec<i32>,
}

/// Sets or clears these bits for all of a group.
pub(super) fn edit(map: &OsdMap, group: &Group, bits: u32, is_set: bool, now: UTime) -> Option<Incremental> {
    let mut inc = Incremental::next(map, now);
    let wanted = |old: u32| if is_set { old | bits } else { old & !bits };
    for osd in group.osds.iter().filter(|osd| map.exists(**osd)) {
        // The bits that are named are flipped.
        let flips = wanted(map.state(*osd)) ^ map.state(*osd);
        inc.new_state.extend((flips != 0).then_some((*osd, flips)));
    }
    for (ids, old, new) in [
        (&group.nodes, &map.crush_node_flags, &mut inc.new_crush_node_flags),
        (&group.classes, &map.device_class_flags, &mut inc.new_device_class_flags),
    ] {
        for id in ids {
            let flags = old.get(id).copied().unwrap_or(0);
            new.extend((wanted(flags) != flags).then_some((*id, wanted(flags))));
        }
    }
    let is_same = inc.new_state.is_empty()
        && inc.new_crush_node_flags.is_empty()
        && inc.new_device_class_flags.is_empty();
    (!is_same).then_some(inc)
}
