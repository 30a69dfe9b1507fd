//! The checks before the first point: space, memory, time, devices.

mod common;

use std::time::Duration;

use carmine_study::expand::{Expansion, expand};
use carmine_study::needs::{Device, Have, shortages};
use carmine_study::plan::Plan;
use common::described;

fn expansion(axes: &str) -> Expansion {
    let text = format!("name = \"p\"\n[axes]\n{axes}\n");
    expand(&Plan::parse("p", &text).unwrap(), &described("1x16x1")).unwrap()
}

#[test]
fn layouts_add_up_and_figures_say_what_is_short() {
    let all = expansion(
        "osds = [1, 2]\nstore = [\"blue\", \"cyan\"]\nosd_size_bytes = \"2G\"\nsize_bytes = \"1G\"",
    );
    // One OSD and two, 2 GiB each; two OSDs of 1 GiB, and 1 GiB in two copies.
    assert_eq!((all.disk_bytes, all.memory_bytes), (6 << 30, 4 << 30));
    let enough = Have { disk_bytes: Some(6 << 30), memory_bytes: Some(4 << 30), ..Have::default() };
    assert!(shortages(&all, &enough).is_empty() && shortages(&all, &Have::default()).is_empty());
    let time = Some(Duration::from_secs(60));
    let have = Have { disk_bytes: Some(5 << 30), memory_bytes: Some(3 << 30), time, ..enough };
    let short = shortages(&all, &have);
    assert_eq!(short.len(), 3, "{short:?}");
    assert!(short[0].contains("take 6144 MiB, 5120 MiB are free; lower osd_size_bytes"), "{}", short[0]);
    assert!(short[1].contains("takes 4096 MiB, 3072 MiB are available"), "{}", short[1]);
    assert!(short[2].contains("--deadline allows 60 s"), "{}", short[2]);
}

#[test]
fn a_plan_needs_as_many_load_hosts_as_its_largest_point() {
    let all = expansion("load_hosts = [0, 2]\njobs = 2\nsize_bytes = \"64M\"");
    let short = |load_hosts| shortages(&all, &Have { load_hosts, ..Have::default() }).join("");
    assert_eq!(short(2), "");
    assert!(short(1).contains("the plan takes 2, --load-hosts names 1"), "{}", short(1));
}

#[test]
fn devices_exist_are_large_enough_and_blank() {
    let device = |size_bytes, is_blank| Device { name: "/dev/x".into(), size_bytes, is_blank };
    let short = |device: Device, may_wipe| {
        shortages(&expansion("osds = 1"), &Have { devices: vec![device], may_wipe, ..Have::default() })
            .join("")
    };
    assert_eq!(short(device(Some(1 << 40), true), false), "");
    assert!(short(device(Some(1 << 40), false), false).contains("--force-wipe"));
    assert_eq!(short(device(Some(1 << 40), false), true), "");
    assert!(short(device(None, true), true).contains("can't be opened"));
    assert!(short(device(Some(1 << 20), true), true).contains("it has 1 MiB"));
}
