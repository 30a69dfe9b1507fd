use super::*;
use proptest::prelude::*;

const TEXT: &str = "\
[global]
ioengine=libaio
direct=1
filename=/dev/sdx
bssplit=4k/60:64k/40
random_distribution=zipf:1.2
size=30m
runtime=2
time_based
log_avg_msec=1000
[reader]
rw=randread
iodepth=16
rate_iops=500
[writer]
rw=randwrite
numjobs=2
size=10m
write_lat_log=lat
";

fn parse(text: &str) -> Result<JobFile, String> {
    JobFile::parse("x.fio", text, None, &|_| None)
}

fn place() -> ClusterAccess {
    ClusterAccess { conf: "/d/ceph.conf".into(), pool: "bench".into() }
}

fn given(file: &JobFile, tool: Tool) -> String {
    let spec = file.load(tool, &LoadSpec::default()).unwrap();
    file.given(tool, &spec, &place(), "/home/me")
}

#[test]
fn our_settings_are_put_over_the_file_and_the_rest_is_kept() {
    let file = parse(TEXT).unwrap();
    let text = given(&file, Tool::FioRbd);
    let (reader, writer) = text.split_once("[writer]\n").unwrap();
    for line in [
        "[reader]",
        "ioengine=rbd",
        "rbdname=carmine-32m",
        "pool=bench",
        "clientname=admin",
        "bssplit=4k/60:64k/40",
        "random_distribution=zipf:1.2",
        "size=30m",
        "runtime=2",
        "time_based",
        "log_avg_msec=1000",
        "rate_iops=500",
        "iodepth=16",
        "thread",
        "write_iops_log=carmine",
    ] {
        assert!(reader.lines().any(|l| l == line), "no {line} in {reader}");
    }
    assert!(!text.contains("libaio") && !text.contains("/dev/sdx") && !text.contains("direct"), "{text}");
    assert!(writer.contains("\nsize=10m\n") && writer.contains("write_lat_log=/home/me/lat"), "{writer}");
    let notes = file.notes.join("\n");
    assert!(
        notes.contains("[global] ioengine=libaio: --client") && notes.contains("[global] direct=1: "),
        "{notes}"
    );
    assert_eq!(file.notes.len(), 3, "each once: {notes}");
    let text = given(&file, Tool::FioRados);
    for line in
        ["ioengine=rados", "conf=/d/ceph.conf", "nrfiles=8", "nrfiles=3", "size=33554432", "size=12582912"]
    {
        assert!(text.lines().any(|l| l == line), "no {line} in {text}");
    }
    assert!(!text.contains("size=30m") && text.contains("file_service_type=random"), "{text}");
}

#[test]
fn the_load_is_what_the_jobs_do_together() {
    let file = parse(TEXT).unwrap();
    let load = file.load(Tool::FioRbd, &LoadSpec::default()).unwrap();
    assert_eq!((load.numjobs, load.iodepth, load.rw), (3, 6, Rw::RandRw));
    assert_eq!((load.size_bytes, load.runtime_ms, load.ramp_ms), (32 << 20, 2000, 0));
    assert_eq!(
        (load.rate_iops, file.is_timed(), file.groups(), file.rates_ms()),
        (None, true, 1, Some(1000))
    );
    assert!(load.jobfile.as_ref().is_some_and(|id| id.starts_with("x.fio ")) && load.check().is_ok());
    assert!(file.marks().is_empty());
    let one = JobFile::parse("x.fio", TEXT, Some("reader"), &|_| None).unwrap();
    let load = one.load(Tool::FioRbd, &LoadSpec::default()).unwrap();
    assert_eq!((load.rw, load.depth_total(), load.rate_iops), (Rw::RandRead, 16, None));
    let plain = TEXT.replace("bssplit=4k/60:64k/40", "bs=4k");
    let one = JobFile::parse("x.fio", &plain, Some("reader"), &|_| None).unwrap();
    assert_eq!(one.load(Tool::FioRbd, &LoadSpec::default()).unwrap().rate_iops, Some(500.0));
    let error = JobFile::parse("x.fio", TEXT, Some("none"), &|_| None).unwrap_err();
    assert!(error.contains("--section none") && error.contains("reader, writer"), "{error}");
}

#[test]
fn jobs_after_each_other_have_the_whole_run_as_their_window() {
    let file = parse(&TEXT.replace("[writer]\n", "[writer]\nstonewall\n")).unwrap();
    let load = file.load(Tool::FioRbd, &LoadSpec::default()).unwrap();
    assert_eq!((file.groups(), file.is_timed(), load.depth_total(), file.rates_ms()), (2, false, 16, None));
    assert!(file.marks()[0].contains("2 groups") && given(&file, Tool::FioRbd).contains("\nstonewall\n"));
    for change in [
        "[writer]\nruntime=3\n",
        "[writer]\nramp_time=1\n",
        "[writer]\nstartdelay=1\n",
        "[writer]\ntime_based=0\n",
    ] {
        assert!(!parse(&TEXT.replace("[writer]\n", change)).unwrap().is_timed(), "{change}");
    }
    let ramped = parse(&TEXT.replace("[reader]", "ramp_time=500ms\n[reader]")).unwrap();
    let load = ramped.load(Tool::FioRbd, &LoadSpec::default()).unwrap();
    assert_eq!((ramped.is_timed(), load.ramp_ms), (true, 500));
    let longer = LoadSpec { ramp_ms: 900, ..load };
    let text = ramped.given(Tool::FioRbd, &longer, &place(), "/");
    assert_eq!(
        text.lines().filter(|line| line.starts_with("ramp_time")).collect::<Vec<_>>(),
        ["ramp_time=900ms"; 2]
    );
}

#[test]
fn sizes_come_from_the_jobs_or_else_from_the_options() {
    let size = |keys: &str| {
        let file = parse(&format!("[a]\nrw=read\n{keys}")).unwrap();
        file.load(Tool::FioRbd, &LoadSpec::default()).unwrap().size_bytes
    };
    assert_eq!((size(""), size("size=50%"), size("size=8m")), (1 << 30, 1 << 30, 8 << 20));
    assert_eq!((size("filesize=8m"), size("size=8m\noffset=8m")), (8 << 20, 16 << 20));
    assert_eq!(size("size=8m\noffset_increment=8m\nnumjobs=3"), 24 << 20);
}

#[test]
fn what_cannot_run_here_names_key_and_section() {
    for (keys, part) in [
        ("rw=randtrim", "[a] rw=randtrim: only reads and writes"),
        ("read_iolog=x", "[a] read_iolog=x: a trace"),
        ("uid=0", "[a] uid=0"),
        ("runtime=soon", "[a] runtime=soon: `soon`"),
    ] {
        let error = parse(&format!("[a]\n{keys}")).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
    for (keys, part) in [
        ("numjobs=0", "[a] numjobs=0: take"),
        ("size=many", "[a] size=many"),
        ("size=9000000t", "too large"),
        ("size=50%", "fio-rbd"),
        ("offset=1m", "[a] offset=1m: it would move"),
    ] {
        let error =
            parse(&format!("[a]\n{keys}")).unwrap().load(Tool::FioRados, &LoadSpec::default()).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

proptest! {
    #[test]
    fn no_value_panics(
        key in prop::sample::select(vec!["size", "offset", "numjobs", "iodepth", "runtime", "rw", "rate_iops", "log_avg_msec"]),
        value in "[0-9a-z%,:.-]{0,8}",
    ) {
        if let Ok(file) = parse(&format!("[a]\n{key}={value}\n[b]\nstonewall\n")) {
            for tool in [Tool::FioRbd, Tool::FioRados] {
                let _ = file.load(tool, &LoadSpec::default()).map(|spec| file.given(tool, &spec, &place(), "/"));
            }
        }
    }
}
