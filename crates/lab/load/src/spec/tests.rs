use super::*;
use proptest::prelude::*;

#[test]
fn sizes_and_times() {
    assert_eq!((parse_bytes("4k"), parse_bytes("4KiB"), parse_bytes("512")), (Ok(4096), Ok(4096), Ok(512)));
    assert_eq!(
        (parse_bytes("2g"), show_bytes(2 << 30), show_bytes(4096)),
        (Ok(2 << 30), "2g".into(), "4k".into())
    );
    assert_eq!(
        (parse_millis("10"), parse_millis("0.5"), parse_millis("250ms")),
        (Ok(10_000), Ok(500), Ok(250))
    );
    assert_eq!(parse_millis("2m"), Ok(120_000));
    for text in ["", "k", "4q", "-1", "99999999999t", "1.5k"] {
        assert!(parse_bytes(text).unwrap_err().contains(&format!("`{text}`")));
    }
    for text in ["", "ms", "4q", "-1", "1e99"] {
        assert!(parse_millis(text).is_err(), "{text}");
    }
}

#[test]
fn one_is_singular() {
    let summary = |spec: LoadSpec| spec.summary();
    let one = summary(LoadSpec { size_bytes: 4 << 20, ..LoadSpec::default() });
    assert_eq!(one, "read 4k, iodepth 1 x 1 job, 4m in 1 object");
    let two = summary(LoadSpec { size_bytes: 8 << 20, numjobs: 2, ..LoadSpec::default() });
    assert_eq!(two, "read 4k, iodepth 1 x 2 jobs, 8m in 2 objects");
}

#[test]
fn popularity_and_lengths_are_told() {
    let spec = LoadSpec {
        rw: Rw::RandRw,
        rwmixread: 25,
        random_distribution: Distribution::Zipf(1.2),
        bssplit: "4k/100,8k/50:16k/50".parse().ok(),
        io_bytes: Some(1 << 20),
        ..LoadSpec::default()
    };
    let spec = spec.in_units();
    assert_eq!((spec.check(), spec.bs_bytes, spec.longest_bytes()), (Ok(()), 4096, 16384));
    let summary = spec.summary();
    assert!(summary.starts_with("randrw (25 % reads) zipf:1.2 4k/100,8k/50:16k/50, iodepth"), "{summary}");
    assert_eq!((spec.mean_bytes(), spec.ops_of(0)), (0.25 * 4096.0 + 0.75 * 12288.0, Some(102)));
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(
        (&json["random_distribution"], &json["bssplit"]),
        (&"zipf:1.2".into(), &"4k/100,8k/50:16k/50".into())
    );
    assert_eq!(serde_json::from_value::<LoadSpec>(json).unwrap().bssplit, spec.bssplit);
}

#[test]
fn words_are_fios() {
    assert_eq!("randwrite".parse(), Ok(Rw::RandWrite));
    let error = "randwrites".parse::<Rw>().unwrap_err().to_string();
    assert!(error.contains("`randwrites`") && error.contains("randwrite or"), "{error}");
    assert_eq!(serde_json::to_string(&Rw::RandRw).unwrap(), "\"randrw\"");
}

#[test]
fn checks_name_the_option() {
    type Change = fn(&mut LoadSpec);
    let cases: [(&str, Change); 15] = [
        ("--bs 0", |s| s.bs_bytes = 0),
        ("--object-size", |s| s.bs_bytes = 4097),
        ("--size 1", |s| s.size_bytes = 1),
        ("--iodepth 0", |s| s.iodepth = 0),
        ("--numjobs 300", |s| s.numjobs = 300),
        ("--volumes 3", |s| (s.volumes, s.numjobs) = (3, 2)),
        ("--processes 0", |s| s.processes = 0),
        ("--rwmixread 101", |s| s.rwmixread = 101),
        ("--runtime", |s| s.runtime_ms = 0),
        ("--rate", |s| s.rate_iops = Some(f64::NAN)),
        ("--verify", |s| (s.verify, s.bs_bytes) = (true, 32)),
        ("--random-distribution zipf:1.2", |s| s.random_distribution = Distribution::Zipf(1.2)),
        ("--bs 8192: leave out", |s| (s.bssplit, s.bs_bytes) = ("4k/100".parse().ok(), 8192)),
        ("--bssplit 4k/50:8m/50", |s| s.bssplit = "4k/50:8m/50".parse().ok()),
        ("--io-size", |s| (s.bssplit, s.io_bytes) = ("4k/50:64k/50".parse().ok(), Some(4096))),
    ];
    assert_eq!(LoadSpec::default().check(), Ok(()));
    for (part, change) in cases {
        let mut spec = LoadSpec::default();
        change(&mut spec);
        let error = spec.check().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

proptest! {
    #[test]
    fn bytes_round_trip(bytes: u64) {
        prop_assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
    }

    #[test]
    fn parsers_never_panic(text in "\\PC{0,20}") {
        let _ = (parse_bytes(&text), parse_millis(&text));
    }
}
