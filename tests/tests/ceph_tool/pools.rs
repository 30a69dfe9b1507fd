//! Pools, their values, and the rules that place them.

use serde_json::Value;

use super::Ceph;

pub(super) fn pools(ceph: &mut Ceph<'_>) {
    ceph.says("osd pool create rbd 16 16", "pool 'rbd' created", "");
    ceph.shows("osd pool get rbd pg_num", &["pg_num: 16"], &[".pg_num"]);
    ceph.says(
        "osd pool set rbd size 2",
        "set pool 2 size to 2",
        "PGs get or lose copies behind their primary",
    );
    ceph.says("osd pool set rbd min_size 1", "set pool 2 min_size to 1", "");
    ceph.ok("osd pool mksnap rbd s");
    assert!(ceph.ok("osd pool ls detail").contains("snap 1 's' "));
    ceph.ok("osd pool rmsnap rbd s");
    assert!(ceph.ok("osd dump").contains("pool_snaps"));
    ceph.sheet
        .works("`ceph osd pool mksnap|rmsnap POOL SNAP`", "`osd pool ls detail` and `osd dump` show it");
    ceph.shows("osd pool get rbd size", &["size: 2"], &[".size"]);
    ceph.says("osd pool application enable rbd rbd", "enabled application 'rbd'", "");
    ceph.says("osd pool set rbd pg_autoscale_mode off", "pg_autoscale_mode to off", "");
    ceph.says("osd pool set noautoscale", "noautoscale is set", "");
    ceph.says("osd pool set rbd pg_num 32", "set pool 2 pg_num to 32", "its PGs are split");
    ceph.says("osd pool set rbd pg_num 8", "set pool 2 pg_num to 8", "its PGs are merged");
    ceph.refused("osd pool create ec 8 8 erasure", "only replicated pools");
    ceph.ok("osd pool create hundred 100 100");
    ceph.ok("osd pool rm hundred hundred --yes-i-really-really-mean-it");
    names_and_values_of_pools(ceph);
    ceph.refused("osd pool rm rbd", "pass the pool name *twice*");
    ceph.says("osd pool rm rbd rbd --yes-i-really-really-mean-it", "pool 'rbd' removed", "");
    ceph.refused("osd pool get rbd size", "unrecognized pool 'rbd'");
    rules(ceph);
}

fn names_and_values_of_pools(ceph: &mut Ceph<'_>) {
    ceph.says("osd pool rename rbd blocks", "pool 'rbd' renamed to 'blocks'", "");
    ceph.is_refused("osd pool rename rbd x", "unrecognized pool 'rbd'");
    ceph.is_refused("osd pool rename blocks bench", "pool 'bench' already exists");
    ceph.ok("osd pool rename blocks rbd");
    ceph.is_refused("osd pool application enable rbd two", "already has an enabled application");
    ceph.ok("osd pool application enable rbd two --yes-i-really-mean-it");
    ceph.is_refused("osd pool application disable rbd two", "Are you SURE?");
    let disable = "osd pool application disable rbd two --yes-i-really-mean-it";
    ceph.says(disable, "disable application 'two' on pool 'rbd'", "");
    ceph.ok("osd pool application set rbd rbd key value");
    assert_eq!(ceph.ok("osd pool application get rbd rbd key"), "value\n");
    ceph.is_refused("osd pool application get rbd nfs", "pool 'rbd' has no application 'nfs'");
    ceph.sheet.works("`ceph osd pool application get POOL APP KEY`", "");
    for (var, value) in [
        ("noscrub", "1"),
        ("scrub_min_interval", "3.5"),
        ("recovery_priority", "5"),
        ("compression_mode", "none"),
    ] {
        ceph.ok(&format!("osd pool set rbd {var} {value}"));
        let shown = if value == "1" { "true" } else { value };
        assert_eq!(ceph.ok(&format!("osd pool get rbd {var}")), format!("{var}: {shown}\n"));
    }
    let note = "stored: `noscrub`, `write_fadvise_dontneed`, `bulk`, `scrub_*`, `recovery_*`, `compression_*`, `csum_*`, \
        `target_size_*` and the others that Ceph has for replicated pools";
    ceph.sheet.works("`ceph osd pool set|get POOL VALUE`", note);
    ceph.shows("osd pool get rbd all", &["nodelete: false", "recovery_priority: 5"], &[".noscrub", ".size"]);
    ceph.refused("osd pool get rbd csum_type", "option 'csum_type' is not set on pool 'rbd'");
    ceph.refused("osd pool set rbd hit_set_type bloom", "Permission denied");
    ceph.refused("osd pool set rbd compression_mode tea", "unrecognized compression mode");
    for (var, words, why) in [
        ("nosizechange", "osd pool set rbd size 3", "pool size change is disabled"),
        ("nodelete", "osd pool rm rbd rbd --yes-i-really-really-mean-it", "pool deletion is disabled"),
    ] {
        ceph.ok(&format!("osd pool set rbd {var} 1"));
        ceph.refused(words, why);
        ceph.ok(&format!("osd pool set rbd {var} 0"));
    }
    ceph.says("osd pool set-quota rbd max_objects 10", "set-quota max_objects = 10 for pool rbd", "");
    ceph.shows("osd pool get-quota rbd", &["max objects: 10 objects"], &[".quota_max_objects"]);
    ceph.ok("osd pool set-quota rbd max_objects 0");
    ceph.refused("osd pool set rbd size 11", "pool size must be between 1 and 10");
    ceph.refused("osd pool set rbd size 1", "could lead to data loss");
    ceph.says(
        "osd pool create wide 8 8 --size 5",
        "its PGs are undersized",
        "more copies than there are OSDs",
    );
    let rm = "osd pool rm wide wide --yes-i-really-really-mean-it-not-faking";
    ceph.says(rm, "pool 'wide' removed", "either switch");
}

/// Rules of the CRUSH map, and erasure code profiles.
fn rules(ceph: &mut Ceph<'_>) {
    ceph.shows("osd crush rule ls", &["replicated_rule\n"], &["[0]"]);
    ceph.ok("osd crush rule create-replicated mine default osd");
    let dump = ceph.json("osd crush rule dump mine");
    assert_eq!((&dump["rule_id"], &dump["steps"][1]["op"]), (&Value::from(1), &Value::from("choose_firstn")));
    ceph.ok("osd pool create placed 8 8 replicated mine");
    assert_eq!(ceph.ok("osd pool get placed crush_rule"), "crush_rule: mine\n");
    ceph.refused("osd crush rule rm mine", "is in use");
    ceph.refused("osd crush rule create-replicated no nothing osd", "root item nothing does not exist");
    ceph.ok("osd pool rm placed placed --yes-i-really-really-mean-it");
    ceph.ok("osd crush rule rename mine ours");
    ceph.ok("osd crush rule rm ours");
    ceph.sheet.works(
        "`ceph osd crush rule create-replicated|create-simple|rename|rm|dump`",
        "a pool is placed by one",
    );
    ceph.shows("osd erasure-code-profile ls", &["default"], &["[0]"]);
    ceph.shows("osd erasure-code-profile get default", &["plugin=jerasure"], &[".k"]);
    ceph.ok("osd erasure-code-profile set mine k=3 m=1");
    ceph.refused("osd erasure-code-profile set mine k=4 m=1", "will not override erasure code profile mine");
    ceph.ok("osd erasure-code-profile rm mine");
    ceph.sheet.works("`ceph osd erasure-code-profile set|rm`", "stored; no pool can use one");
}
