use super::*;
use crate::confine::{ConfineCpus, ConfineKind};

fn machine() -> Topology {
    Topology::from_short("1x8x2").unwrap()
}

fn plan(wish: &Wish) -> Result<Plan> {
    Plan::new(wish, &machine(), "f")
}

#[test]
fn defaults() {
    let plan = plan(&Wish::default()).unwrap();
    assert_eq!((plan.osds(), plan.cpu.reactors, plan.store), (1, 1, StoreKind::Blue));
    assert_eq!((plan.pool.size, plan.pool.min_size, plan.pool.pg_num), (1, 1, 128));
    assert!(plan.addr.ip().is_loopback() && plan.grid.client_cpus().len() == 5);
    let three = Plan::new(&Wish { osds: Some(3), ..Wish::default() }, &machine(), "f").unwrap();
    assert_eq!((three.pool.size, three.pool.min_size, three.pool.pg_num), (3, 2, 128));
}

#[test]
fn a_plan_survives_json() {
    let plan = plan(&Wish { osd_cpus: Some("0-3".parse().unwrap()), ..Wish::default() }).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn wrong_wishes_are_named() {
    let w = Wish::default;
    let table: Vec<(Wish, &str)> = vec![
        (Wish { osds: Some(0), ..w() }, "--osds 0"),
        (Wish { osds: Some(5000), ..w() }, "--osds 5000"),
        (Wish { reactors: Some(0), ..w() }, "--reactors 0"),
        (Wish { reactors: Some(99), ..w() }, "too few CPUs"),
        (Wish { pool_size: Some(2), ..w() }, "only 1 OSD;"),
        (Wish { pool_size: Some(0), ..w() }, "--size 0"),
        (Wish { min_size: Some(2), ..w() }, "--min-size 2"),
        (Wish { pgs: Some(3), ..w() }, "--pgs 3"),
        (Wish { osd_size_bytes: Some(1), ..w() }, "--osd-size 1 bytes"),
        (Wish { osd_memory_bytes: Some(0), ..w() }, "--osd-memory 0M"),
        (Wish { poll: Some("x".into()), ..w() }, "--poll x"),
        (Wish { zero: Some(true), sparse: Some(true), ..w() }, "--zero and --sparse"),
        (
            Wish { devices: Some(vec!["/dev/a".into()]), store: Some(StoreKind::Cyan), ..w() },
            "cyan uses no device",
        ),
        (Wish { devices: Some(vec!["/dev/a".into(), "/dev/b".into()]), ..w() }, "2 devices for 1 OSD:"),
        (Wish { addr: Some("0.0.0.0:0".parse().unwrap()), ..w() }, "--addr 0.0.0.0"),
        (Wish { osd_cpus: Some("99".parse().unwrap()), ..w() }, "99"),
        (Wish { osds_per_device: Some(0), ..w() }, "--osds-per-device 0"),
        (Wish { osds: Some(3), osds_per_device: Some(2), ..w() }, "dealt evenly"),
        (
            Wish { osds: Some(2), osds_per_device: Some(2), store: Some(StoreKind::Cyan), ..w() },
            "cyan uses no device",
        ),
        (
            Wish {
                osds: Some(2),
                osds_per_device: Some(2),
                devices: Some(vec!["/dev/a".into(), "/dev/b".into()]),
                ..w()
            },
            "2 devices for 1 group of --osds-per-device:",
        ),
        (Wish { alien_threads: Some(0), ..w() }, "--alien-threads 0"),
        (Wish { osd_heartbeat_interval_s: Some(0), ..w() }, "--osd-heartbeat-interval 0"),
        (Wish { osd_heartbeat_grace_s: Some(6), ..w() }, "--osd-heartbeat-grace 6"),
    ];
    for (wish, part) in table {
        let error = plan(&wish).unwrap_err();
        assert!(error.to_string().contains(part) && error.is_usage(), "{part}: {error}");
    }
}

#[test]
fn logs_get_a_place_each() {
    let wish = |osds, wal: &[&str]| Wish {
        osds: Some(osds),
        wal_devs: Some(wal.iter().map(Into::into).collect()),
        ..Wish::default()
    };
    let made = plan(&wish(2, &["/no/such/a", "/no/such/b"])).unwrap();
    assert_eq!(made.wal_devs, [std::path::Path::new("/no/such/a"), "/no/such/b".as_ref()]);
    assert!(made.render().contains("log       /no/such/a"), "{}", made.render());
    assert_eq!(plan(&wish(3, &["/"])).unwrap().wal_devs.len(), 1);
    for (wish, part) in [
        (wish(2, &["/no/such/a"]), "names 1 place for 2 OSDs"),
        (wish(2, &["/no/such/a", "/no/such/a"]), "named twice"),
        (Wish { store: Some(StoreKind::Cyan), ..wish(1, &["/no/such/a"]) }, "the store cyan has no log"),
    ] {
        let error = plan(&wish).unwrap_err();
        assert!(error.to_string().contains(part) && error.is_usage(), "{part}: {error}");
    }
}

/// The drives of a described machine in order, or those that are named.
#[test]
fn osds_follow_their_drives() {
    let machine = Topology::from_short("2x4x1:drives=2").unwrap();
    let placed = |words: &str| -> Result<Vec<(String, usize)>> {
        let wish = Wish::from_words(words.split_whitespace().map(str::to_owned)).unwrap();
        let plan = Plan::new(&wish, &machine, "f")?;
        let row = |osd: &OsdRow| (osd.drive.clone().unwrap_or_default(), osd.reactors[0].place.node);
        Ok(plan.grid.osds.iter().map(row).collect())
    };
    let (first, second) = (("nvme0n1".to_owned(), 0), ("nvme1n1".to_owned(), 1));
    let both = placed("--osds 2 --balance drive").unwrap();
    assert_eq!(both, [first.clone(), second.clone()]);
    let swapped = placed("--osds 2 --balance drive --devs /dev/nvme1n1,/dev/nvme0n1").unwrap();
    assert_eq!(swapped, [second, first.clone()]);
    let shared = placed("--osds 2 --balance drive --osds-per-device 2").unwrap();
    assert_eq!(shared, [first.clone(), first]);
    let error = placed("--osds 1 --balance drive --store cyan").unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("OSD 0: no drive is known"), "{error}");
}

#[test]
fn a_restart_may_change_cpus_but_not_data() {
    let old = plan(&Wish { osds: Some(2), ..Wish::default() }).unwrap();
    let wish = Wish { reactors: Some(2), poll: Some("sleep".into()), ..Wish::default() };
    let new = old.revise(&wish, &machine()).unwrap();
    assert_eq!((new.cpu.reactors, new.poll.as_str()), (2, "sleep"));
    assert_eq!(new.grid.osds[0].reactors.len(), 2);
    let same = Wish { osds: Some(2), pool_size: Some(2), store: Some(StoreKind::Blue), ..Wish::default() };
    assert_eq!(old.revise(&same, &machine()).unwrap(), old);
    let w = Wish::default;
    for (wish, part) in [
        (Wish { osds: Some(3), ..w() }, "--osds 3: this testbed was made with 2"),
        (Wish { store: Some(StoreKind::Cyan), ..w() }, "made with blue"),
        (Wish { pool_size: Some(1), ..w() }, "--size 1"),
        (Wish { pgs: Some(64), ..w() }, "--pgs 64"),
        (Wish { osds_per_device: Some(2), ..w() }, "--osds-per-device 2: this testbed was made with 1"),
        (Wish { osd_size_bytes: Some(128 << 20), ..w() }, "--osd-size 128M"),
        (Wish { devices: Some(vec!["/dev/a".into()]), ..w() }, "made with files"),
        (Wish { sparse: Some(true), ..w() }, "--sparse"),
        (Wish { zero: Some(true), ..w() }, "--zero"),
        (Wish { db_dir: Some("/elsewhere".into()), ..w() }, "--db-dir"),
        (Wish { wal_devs: Some(vec!["/elsewhere".into()]), ..w() }, "--wal-dev"),
    ] {
        let error = old.revise(&wish, &machine()).unwrap_err();
        assert!(error.to_string().contains(part) && error.is_usage(), "{part}: {error}");
    }
}

/// The texts are known by heart. `UPDATE_GOLDEN=1` rewrites the files: read the difference before it is committed.
#[test]
fn plans_are_printed_as_ever() {
    let w = Wish::default;
    let quota = Wish {
        osds: Some(2),
        confine: Some(ConfineKind::Quota),
        confine_cpus: Some(ConfineCpus::Cpus(1.5)),
        osd_wrap: Some("/bin/sh -c 'exec \"$@\"' {osd}".into()),
        osd_env: Some(vec!["B=2".into(), "A={osd}".into()]),
        ..w()
    };
    let cpuset = Wish {
        osds: Some(2),
        reactors: Some(2),
        confine: Some(ConfineKind::Cpuset),
        confine_cpus: Some(ConfineCpus::Cpus(3.0)),
        ..w()
    };
    let slices = Wish { osds: Some(4), osds_per_device: Some(2), osd_size_bytes: Some(1 << 30), ..w() };
    for (name, wish) in [("quota", quota), ("cpuset", cpuset), ("slices", slices), ("plain", w())] {
        let text = plan(&wish).unwrap().render();
        let path = format!("{}/tests/golden/plan_{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, want, "{path} differs (UPDATE_GOLDEN=1 rewrites it)");
    }
}

#[test]
fn a_confinement_is_kept_until_it_is_taken_away() {
    let kind = |kind, cpus| Wish { confine: Some(kind), confine_cpus: Some(cpus), ..Wish::default() };
    let old = plan(&kind(ConfineKind::Cpuset, ConfineCpus::Cpus(2.0))).unwrap();
    assert_eq!(
        (old.confinement(), old.cpu.cpus_per_osd),
        (Confine { kind: ConfineKind::Cpuset, cpus: 2.0 }, Some(2))
    );
    assert_eq!(old.grid.allocated_cpus().len(), 2);
    assert_eq!(old.revise(&Wish::default(), &machine()).unwrap(), old);
    let quota = old.revise(&kind(ConfineKind::Quota, ConfineCpus::Cpus(2.0)), &machine()).unwrap();
    assert_eq!(
        (quota.confinement(), quota.cpu.cpus_per_osd),
        (Confine { kind: ConfineKind::Quota, cpus: 2.0 }, None)
    );
    let free = quota.revise(&kind(ConfineKind::Quota, ConfineCpus::NoLimit), &machine()).unwrap();
    assert_eq!((free.confinement(), free.grid), (Confine::NONE, plan(&Wish::default()).unwrap().grid));
    let wide = plan(&kind(ConfineKind::Cpuset, ConfineCpus::Cpus(17.0))).unwrap_err();
    assert!(wide.is_usage() && wide.to_string().contains("--confine-cpus 17"), "{wide}");
}

#[test]
fn a_wipe_needs_devices_and_no_stores() {
    let devices = [std::path::PathBuf::from("/dev/a")];
    assert!(check_wipe(true, false, &devices).is_ok() && check_wipe(false, true, &[]).is_ok());
    for (exist, devices, part) in [(false, &[][..], "no --devs"), (true, &devices[..], "the stores exist")] {
        let error = check_wipe(true, exist, devices).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn settings_of_blue_are_kept_until_auto_takes_them_back() {
    let tuning = |text: &str| Wish::from_words(text.split_whitespace().map(str::to_owned)).unwrap();
    let old = plan(&tuning("--flush-mode dsync --prefer-deferred-size 0 --discard")).unwrap();
    let same = old.revise(&Wish::default(), &machine()).unwrap();
    assert_eq!(same, old);
    assert_eq!((old.tuning.flush_mode.to_string(), old.tuning.discard), ("dsync".to_owned(), true));
    let back = tuning("--flush-mode auto --prefer-deferred-size auto --discard=off");
    assert_eq!(old.revise(&back, &machine()).unwrap().tuning, crate::Tuning::default());
    let memory = Wish { store: Some(StoreKind::Cyan), ..back };
    let error = plan(&memory).unwrap_err().to_string();
    assert!(
        error.contains("--flush-mode, --prefer-deferred-size, --discard: the store cyan uses no device"),
        "{error}"
    );
}

#[test]
fn every_store_has_its_own_id() {
    let fsid = "b79dd65e-35b4-47de-95c3-97d67e42c11d";
    let plan = Plan::new(&Wish::default(), &Topology::from_short("1x4x1").unwrap(), fsid).unwrap();
    let ids: BTreeSet<_> = (0..1000).map(|n| plan.store_uuid(OsdId(n)).unwrap()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(!ids.contains(&fsid.parse().unwrap()));
}
