//! What operators' scripts ask for: XML, weights that follow from what OSDs have, a PG that peers again, and limits.

use super::{Ceph, clean};

/// The whole is named as a real monitor names it.
fn xml(ceph: &mut Ceph<'_>) {
    for (words, root) in [
        ("status", "status"),
        ("health", "health"),
        ("df", "stats"),
        ("osd tree", "tree"),
        ("osd dump", "osdmap"),
        ("pg dump", "pg_info"),
    ] {
        let line = ceph.ok(&format!("{words} --format xml"));
        let (begin, end) = (format!("<{root}>"), format!("</{root}>"));
        assert!(line.trim().starts_with(&begin) && line.trim().ends_with(&end), "ceph {words}: {line}");
        assert_eq!(line.trim().lines().count(), 1, "ceph {words}: {line}");
        let pretty = ceph.ok(&format!("{words} --format xml-pretty"));
        let lines: Vec<&str> = pretty.trim().lines().collect();
        assert_eq!((lines.first(), lines.last()), (Some(&&*begin), Some(&&*end)), "ceph {words}: {pretty}");
        assert!(lines[1].starts_with(" <"), "ceph {words}: {pretty}");
    }
    let tree = ceph.ok("osd tree --format xml");
    assert!(tree.contains("<nodes><item><children><child>"), "{tree}");
    let words = "`ceph status|health|df|osd tree|osd dump|pg dump --format xml|xml-pretty`";
    ceph.sheet.works(words, "elements are named as Ceph names them; so is what other commands show");
}

/// OSDs with more PGs than others get lower weights.
fn weights(ceph: &mut Ceph<'_>) {
    ceph.ok("osd pool create spread 64 64 --size 1");
    ceph.shows(
        "osd test-reweight-by-pg 101 0.05 4 spread",
        &["moved ", " / 64 (", "oload 101\n", " weight 1.0000 -> 0."],
        &[".reweights[0].new_weight", ".utilization.new_std_dev"],
    );
    ceph.said("osd test-reweight-by-pg 101 0.05 4 spread", "no change");
    let lighter = |ceph: &Ceph<'_>| {
        let map = ceph.json("osd dump");
        let osds = map["osds"].as_array().expect("OSDs");
        osds.iter().filter(|osd| osd["weight"].as_f64() < Some(1.0)).count()
    };
    assert_eq!(lighter(ceph), 0);
    ceph.says("osd reweight-by-pg 101 0.05 1 spread", "", "one OSD is 0.05 lighter at most");
    assert_eq!(lighter(ceph), 1);
    (0..3).for_each(|osd| ceph.said(&format!("osd reweight {osd} 1"), "reweighted"));
    ceph.refused("osd reweight-by-utilization 100", "You must give a percentage higher than 100.");
    ceph.is_refused("osd test-reweight-by-utilization 120 0", "max_change 0 must be positive");
    ceph.is_refused("osd reweight-by-pg 120 0.05 4 nosuch", "pool 'nosuch' does not exist");
    ceph.ok("osd pool rm spread spread --yes-i-really-really-mean-it");
    ceph.until("status", |status| clean(status) && status["osdmap"]["num_remapped_pgs"] == 0);
}

/// The primary serves the PG alone, then asks for the others again.
fn repeer(ceph: &mut Ceph<'_>) {
    let map = |ceph: &Ceph<'_>| ceph.json("pg map 1.0")["acting"].clone();
    let (epoch, before) = (ceph.json("osd dump")["epoch"].as_u64(), map(ceph));
    ceph.says("pg repeer 1.0", "", "its primary serves it alone for a moment");
    ceph.until("osd dump", |dump| {
        dump["epoch"].as_u64() >= epoch.map(|epoch| epoch + 2) && dump["pg_temp"] == serde_json::json!([])
    });
    ceph.until("status", clean);
    assert_eq!(map(ceph), before);
    ceph.refused("pg repeer 1.fff", "pg '1.fff' does not exist");
}

fn pgs(ceph: &mut Ceph<'_>) {
    let why = "which exceeds max 750 (mon_max_pg_per_osd 250 * num_in_osds 3)";
    ceph.refused("osd pool create big 1024 1024", why);
    ceph.refused(
        "osd pool create huge 131072",
        "'pg_num' must be greater than 0 and less than or equal to 65536",
    );
    ceph.says("config set mon mon_max_pg_per_osd 1", "", "pools may give each OSD so many PGs");
    assert_eq!(ceph.ok("config get mon mon_max_pg_per_osd"), "1\n");
    let told = ceph.json("tell mon.a config get mon_max_pg_per_osd");
    assert_eq!(told, serde_json::json!({ "mon_max_pg_per_osd": "1" }));
    ceph.is_refused("osd pool create small 8 8", "(mon_max_pg_per_osd 1 * num_in_osds 3)");
    ceph.is_refused("config set mon mon_max_pg_per_osd many", "give a whole number");
    ceph.ok("config rm mon mon_max_pg_per_osd");
    assert_eq!(ceph.ok("config get mon mon_max_pg_per_osd"), "250\n");
}

pub(super) fn by_scripts(ceph: &mut Ceph<'_>) {
    xml(ceph);
    weights(ceph);
    repeer(ceph);
    pgs(ceph);
}
