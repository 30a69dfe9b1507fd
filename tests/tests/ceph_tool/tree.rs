//! The CRUSH tree takes another shape, and flags of a part of it.

use std::path::Path;

use carmine_tests::{installed, run, succeed};

use super::{Ceph, LIMIT, clean};

/// A second root gets racks, and PGs follow the OSDs in them.
pub(super) fn racks(ceph: &mut Ceph<'_>) {
    let up = |ceph: &Ceph<'_>| {
        let up = ceph.json("osd map racked kept")["up"].clone();
        let mut up: Vec<u64> = serde_json::from_value(up).expect("OSDs");
        up.sort_unstable();
        up
    };
    let made = "added bucket rack-a type rack to location {root=racked}";
    ceph.says("osd crush add-bucket rack-a rack root=racked", made, "and the root, too");
    let place = |osd, host, rack| format!("osd crush add osd.{osd} 1 host={host} rack={rack} root=racked");
    let placed =
        "add item id 0 name 'osd.0' weight 1 at location {host=host-a,rack=rack-a,root=racked} to crush map";
    ceph.says(&place(0, "host-a", "rack-a"), placed, "it keeps its other place");
    ceph.ok(&place(1, "host-b", "rack-b"));
    ceph.refused("osd crush move racked rack=rack-a", "(40) Too many levels of symbolic links");
    ceph.refused("osd crush rm rack-a", "(39) Directory not empty");
    ceph.ok("osd crush rule create-replicated racks racked rack");
    ceph.refused("osd crush unlink racked", "a crush rule takes the bucket");
    ceph.ok("osd pool create racked 8 8 replicated racks --size 2");
    ceph.until("status", clean);
    assert_eq!(up(ceph), [0, 1]);
    let kept: String = (0..20_000u32).map(|n| format!("{n:x}.")).collect();
    let file = ceph.bed.file("racked");
    std::fs::write(&file, &kept).expect("a file");
    ceph.bed.rados_ok(&["-p", "racked", "put", "kept", &file]);
    let moved = "name 'host-b' to location {root=apart} in crush map";
    ceph.says("osd crush move host-b root=apart", moved, "with all below it");
    ceph.ok(&place(2, "host-c", "rack-b"));
    ceph.until("status", clean);
    assert_eq!(up(ceph), [0, 2]);
    assert!(ceph.bed.rados_ok(&["-p", "racked", "get", "kept", "-"]) == kept, "the object is another one");
    ceph.sheet.works(
        "`ceph osd crush move NAME LOCATION...`",
        "PGs of a rule by racks follow what moves, with their data",
    );
    weights_of_the_tree(ceph);
    another_map(ceph);
    ceph.ok("osd pool rm racked racked --yes-i-really-really-mean-it");
    ceph.ok("osd crush rule rm racks");
    for (osd, root) in [(0, "racked"), (1, "apart"), (2, "racked")] {
        ceph.said(&format!("osd crush rm osd.{osd} {root}"), &format!("name 'osd.{osd}' from crush map"));
    }
    ceph.ok("osd crush rename-bucket rack-a rack-c");
    for bucket in ["host-a", "host-b", "host-c", "rack-b"] {
        ceph.ok(&format!("osd crush rm {bucket}"));
    }
    ceph.says("osd crush rm rack-c", "name 'rack-c' from crush map", "also `remove`, and `rename-bucket`");
    ceph.ok("osd crush rm racked");
    ceph.ok("osd crush remove apart");
    assert_eq!(
        ceph.json("osd crush dump")["buckets"].as_array().map(Vec::len),
        Some(2 * 2),
        "as before, with shadows"
    );
    ceph.until("status", clean);
}

/// Flags of single OSDs, of a host, and of a device class.
pub(super) fn groups(ceph: &mut Ceph<'_>) {
    ceph.says(
        "osd set-group noup,noout osd.0 host-0 ssd",
        "",
        "also `unset-group`; shown by `health detail`",
    );
    let health = ceph.ok("health detail");
    for line in [
        "3 OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set",
        "osd.0 has flags noout,noup",
        "host host-0 has flags noout,noup",
        "device class 'ssd' has flags noout,noup",
    ] {
        assert!(health.contains(line), "{line:?} is not in {health}");
    }
    let dump = ceph.json("osd dump");
    assert_eq!(dump["osds"][0]["state"], serde_json::json!(["exists", "noout", "noup", "up"]));
    assert_eq!(dump["crush_node_flags"], serde_json::json!({ "host-0": ["noout", "noup"] }));
    assert_eq!(dump["device_class_flags"], serde_json::json!({ "ssd": ["noout", "noup"] }));
    ceph.ok("osd unset-group noup,noout osd.0 host-0 ssd");
    ceph.refused(
        "osd set-group nosuch osd.0",
        "unrecognized flag 'nosuch', must be one of {noup,nodown,noin,noout}",
    );
    ceph.refused(
        "osd set-group noup nosuch",
        "unable to parse osd id or crush node or device class: \"nosuch\"",
    );
    ceph.says("osd add-noup 1", "", "also `nodown`, `noin` and `noout`, and `rm-` of each");
    ceph.ok("osd down 1");
    ceph.until("status", |status| status["osdmap"]["num_up_osds"] == 2);
    ceph.ok("osd rm-noup all");
    ceph.until("status", |status| status["osdmap"]["num_up_osds"] == 3 && clean(status));
    ceph.says("osd setmaxosd 5", "set new max_osd = 5", "");
    ceph.refused("osd setmaxosd 2", "cannot shrink max_osd to 2 because osd.2");
    ceph.said("osd setmaxosd 3", "set new max_osd = 3");
    ceph.refused("osd rm 0", "osd.0 is still up; must be down before removal");
    ceph.said("osd rm 9", "osd.9 does not exist");
    ceph.ok("osd pool create many 8 8 --bulk --pg-num-min 4 --pg-num-max 16 --target_size_ratio 0.5");
    let pool = ceph.json("osd pool get many all");
    assert_eq!(
        (&pool["bulk"], &pool["pg_num_min"], &pool["pg_num_max"]),
        (&true.into(), &4.into(), &16.into())
    );
    ceph.ok("osd pool rm many many --yes-i-really-really-mean-it");
    ceph.sheet.works(
        "`ceph osd pool create POOL ... --bulk --pg-num-min N --pg-num-max N --target_size_bytes N --target_size_ratio X`",
        "stored; nothing scales the pool",
    );
}

fn weights_of_the_tree(ceph: &mut Ceph<'_>) {
    let weight = |ceph: &Ceph<'_>| ceph.json("osd crush dump")["buckets"][0]["weight"].clone();
    let subtree = |weight| format!("osd crush reweight-subtree default {weight}");
    ceph.says(&subtree(2), "reweighted subtree id -1 name 'default' to 2 in crush map", "");
    assert_eq!(weight(ceph), 6 << 16);
    ceph.ok(&subtree(1));
    ceph.says("osd crush reweight-all", "reweighted crush hierarchy", "");
    let moved = "create-or-move updated item name 'osd.0' weight 5 at location {host=host-a} to crush map";
    ceph.says("osd crush create-or-move osd.0 5 host=host-a", moved, "one that has a place keeps its weight");
    ceph.says("osd crush set osd.0 1 host=host-a", "at location {host=host-a}: no change", "also `add`");
    ceph.said("osd crush link host-a root=second", "name 'host-a' to location {root=second} in crush map");
    ceph.said("osd crush unlink host-a second", "name 'host-a' from crush map");
    ceph.said("osd crush swap-bucket second host-a", "swapped bucket of second to host-a");
    ceph.said("osd crush swap-bucket host-a second", "swapped bucket of host-a to second");
    ceph.ok("osd crush rm second");
    ceph.sheet.works("`ceph osd crush link|unlink|swap-bucket`", "PGs go where the tree says");
    ceph.says("osd crush weight-set ls", "", "those of a map that was set");
    ceph.tells("osd crush weight-set dump", "{}");
    ceph.says("osd crush tunables hammer", "adjusted tunables profile to hammer", "PGs move as these say");
    assert_eq!(ceph.json("osd crush show-tunables")["profile"], "hammer");
    ceph.ok("osd crush tunables optimal");
    ceph.says("osd crush set-tunable straw_calc_version 1", "adjusted tunable straw_calc_version to 1", "");
}

/// A map that Ceph's own tool has changed; and what is none.
fn another_map(ceph: &mut Ceph<'_>) {
    let (old, new) = (ceph.bed.file("crush"), ceph.bed.file("crush.new"));
    ceph.ok(&format!("osd getcrushmap -o {old}"));
    if installed("crushtool", "ceph-base") {
        let args = ["-i", &old, "--reweight-item", "osd.0", "2", "-o", &new];
        succeed(run(Path::new("crushtool"), &args, LIMIT), "crushtool --reweight-item");
        ceph.ok(&format!("osd setcrushmap -i {new}"));
        assert_eq!(ceph.json("osd crush dump")["buckets"][0]["weight"], 4 << 16);
        ceph.ok(&format!("osd crush set -i {old}"));
        assert_eq!(ceph.json("osd crush dump")["buckets"][0]["weight"], 3 << 16);
        ceph.sheet.works(
            "`ceph osd setcrushmap -i FILE`, `ceph osd crush set -i FILE`",
            "a map that `crushtool` has changed",
        );
    }
    let conf = ceph.bed.conf();
    ceph.is_refused(&format!("osd setcrushmap -i {conf}"), "Failed to parse crushmap");
    ceph.is_refused(&format!("osd setcrushmap 1 -i {old}"), "prior_version 1 != crush version");
}
