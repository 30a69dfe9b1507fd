use super::*;
use carmine_testbed::Wish;
use carmine_topology::Topology;

#[test]
fn only_the_file_of_baseline_is_a_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.json");
    let of = |text: &str| {
        std::fs::write(&path, text).unwrap();
        load_baseline("--baseline", &path).map_err(|e| e.to_string())
    };
    let raw = r#"{"iops": 1000.0, "bs_bytes": 4096, "iodepth": 1}"#;
    assert!(of(&format!(r#"{{"device": null, "messenger": {raw}}}"#)).unwrap().messenger.is_some());
    for (text, what) in [
        (r#"{"fio version": "x", "jobs": [], "carmine": {}}"#, "a result of `carmine bench --json`"),
        (r#"{"fio version": "x", "jobs": []}"#, "a result of fio"),
        ("{}", "JSON without raw figures"),
        ("[1]", "JSON without raw figures"),
        (r#"{"device": null, "messenger": null}"#, "JSON without raw figures"),
        (r#"{"device": {}}"#, "JSON without raw figures"),
        (&format!(r#"{{"device": {raw}, "points": []}}"#), "JSON without raw figures"),
        ("iops 5", "not JSON"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.contains(what) && error.contains("`carmine baseline --json FILE`"), "{text}: {error}");
    }
}

fn applied(fill: Option<u8>, age: Option<f64>) -> Result<LoadSpec> {
    let wish = Wish { osds: Some(3), osd_size_bytes: Some(1 << 30), pool_size: Some(2), ..Wish::default() };
    let plan = Plan::new(&wish, &Topology::from_short("1x8x1").unwrap(), "f").unwrap();
    let mut spec = LoadSpec::default();
    fill_and_age(&mut spec, &plan, (fill, age))?;
    Ok(spec)
}

#[test]
fn parts_of_the_capacity_in_whole_objects() {
    let spec = applied(Some(80), None).unwrap();
    // 3 GiB hold 1.5 GiB twice; 80 % of that, in objects of 4 MiB.
    assert_eq!(spec.size_bytes, 307 * (4 << 20));
    assert_eq!((spec.io_bytes, spec.rw), (None, Rw::Read));
    assert_eq!(applied(None, None).unwrap(), LoadSpec::default());
}

#[test]
fn rounds_of_overwriting() {
    let spec = applied(Some(10), Some(2.5)).unwrap();
    assert_eq!((spec.rw, spec.io_bytes), (Rw::RandWrite, Some(spec.size_bytes / 2 * 5)));
    for bad in [0.0, -1.0, f64::NAN, 1e9] {
        assert!(applied(None, Some(bad)).unwrap_err().to_string().contains("--age"));
    }
}
