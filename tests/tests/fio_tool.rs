//! fio 3.33 with its engines `rbd` and `rados` against a testbed: every kind of load on an image with layering only, on one
//! with the default features, and on objects. About 30 s.
#![allow(clippy::disallowed_methods)] // reads and writes files

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{FioRun, ONE_CYAN, THREE_BLUE};
use carmine_tests::{Testbed, installed};

/// One kind of load: fio's words for it, and how many requests of 8 MiB it makes.
struct Load {
    name: &'static str,
    words: &'static [&'static str],
    /// Reads and writes together; a job that verifies reads what it wrote once more.
    ios: u64,
    way: Way,
    note: &'static str,
}

/// The kind of a load.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Write,
    Read,
    Mixed,
    Trim,
    /// Each block is trimmed, then written.
    TrimWrite,
}

/// They run one after the other: those that only read compare what those before them wrote.
const LOADS: &[Load] = &[
    Load {
        name: "write",
        words: &["--rw=write", "--bs=64k", "--verify=crc32c"],
        ios: 128,
        way: Way::Write,
        note: "all of it read back and compared by `--verify=crc32c`",
    },
    Load {
        name: "read",
        words: &["--rw=read", "--bs=64k", "--verify=crc32c"],
        ios: 128,
        way: Way::Read,
        note: "compared by `--verify=crc32c`",
    },
    Load {
        name: "randread",
        words: &["--rw=randread", "--bs=64k", "--verify=crc32c"],
        ios: 128,
        way: Way::Read,
        note: "compared by `--verify=crc32c`",
    },
    Load {
        name: "randwrite",
        words: &["--rw=randwrite", "--bs=4k", "--io_size=4m", "--verify=crc32c"],
        ios: 1024,
        way: Way::Write,
        note: "all of it read back and compared by `--verify=crc32c`",
    },
    Load {
        name: "rw",
        // fio 3.33 takes what it wrote itself for wrong when it verifies this load, on a plain file as well.
        words: &["--rw=rw", "--bs=16k", "--io_size=4m"],
        ios: 256,
        way: Way::Mixed,
        note: "without `--verify`: fio cannot verify this one, on a plain file neither",
    },
    Load {
        name: "randrw",
        words: &["--rw=randrw", "--bs=4k", "--io_size=4m", "--verify=crc32c"],
        ios: 1024,
        way: Way::Mixed,
        note: "what it wrote read back and compared by `--verify=crc32c`",
    },
    Load {
        name: "trimwrite",
        words: &["--rw=trimwrite", "--bs=64k", "--iodepth=1", "--verify=crc32c"],
        ios: 128,
        way: Way::TrimWrite,
        note: "with `--iodepth=1`: each block trimmed, written, read back and compared by `--verify=crc32c`",
    },
    Load {
        name: "trimwrite-16",
        // With more in flight fio does not wait for a block's trim before it writes the block, and librbd keeps no order between
        // the two: `--verify` finds zeros. So it does with ceph-osd 16.2.15 (three runs of three; ioengine=rados passes there, too).
        words: &["--rw=trimwrite", "--bs=64k"],
        ios: 128,
        way: Way::TrimWrite,
        note: "with `--iodepth=16`, without `--verify`: fio writes a block before its trim has ended, and librbd may turn \
               them round; verifying fails with a real Ceph 16.2.15, too (`ioengine=rbd`)",
    },
    Load {
        name: "randtrim",
        words: &["--rw=randtrim", "--bs=4k", "--io_size=2m"],
        ios: 512,
        way: Way::Trim,
        note: "",
    },
    Load {
        name: "trim",
        words: &["--rw=trim", "--bs=64k"],
        ios: 128,
        way: Way::Trim,
        note: "of all of it: it is all zeros",
    },
];

/// All loads in one run of fio, on what `target` names.
fn run_loads(bed: &Testbed, target: &[&str]) -> FioRun {
    let common = ["--clientname=admin", "--pool=bench", "--iodepth=16", "--size=8m"];
    let names: Vec<String> = LOADS.iter().map(|load| format!("--name={}", load.name)).collect();
    let mut args = Vec::new();
    for (load, name) in LOADS.iter().zip(&names) {
        // Options hold for the job that they follow, those of an engine after its name.
        args.extend([name.as_str(), "--stonewall"]);
        args.extend(target.iter().chain(&common).chain(load.words));
    }
    let run = bed.fio(&args);
    assert!(run.is_good, "{}", run.said);
    run
}

/// Compares what each load did with what it should have done, and notes it.
fn check_loads(run: &FioRun, what: &str, sheet: &mut Sheet) {
    for load in LOADS {
        let [reads, writes, trims] = run.ios(load.name);
        let is_right = match load.way {
            Way::Write => (reads, writes, trims) == (load.ios, load.ios, 0),
            Way::Read => (reads, writes, trims) == (load.ios, 0, 0),
            // Its own reads, and those that verify.
            Way::Mixed if load.words.contains(&"--verify=crc32c") => {
                writes > 0 && reads == load.ios && trims == 0
            }
            Way::Mixed => writes > 0 && reads > 0 && reads + writes == load.ios && trims == 0,
            Way::TrimWrite => {
                let verified = if load.words.contains(&"--verify=crc32c") { load.ios } else { 0 };
                (reads, writes, trims) == (verified, load.ios, load.ios)
            }
            Way::Trim => (reads, writes, trims) == (0, 0, load.ios),
        };
        assert!(is_right, "{} made {reads} reads, {writes} writes, {trims} trims: {}", load.name, run.said);
        let rw = load.words.iter().find_map(|word| word.strip_prefix("--rw=")).expect("each load has one");
        sheet.works(&format!("{what}: `rw={rw}`"), load.note);
    }
}

fn on_image(bed: &Testbed, image: &str, what: &str, sheet: &mut Sheet) {
    let name = format!("--rbdname={image}");
    let run = run_loads(bed, &["--ioengine=rbd", &name]);
    check_loads(&run, &format!("`ioengine=rbd`, {what}"), sheet);
    let path = bed.file(&format!("{image}-trimmed"));
    bed.rbd_ok(&["export", "--no-progress", image, &path]);
    let bytes = std::fs::read(&path).expect("what was exported");
    assert!(bytes.len() == 8 << 20 && bytes.iter().all(|byte| *byte == 0), "{image}: not all is trimmed");
}

const OBJECTS: &[&str] = &["--ioengine=rados", "--nrfiles=4", "--filename_format=object.$filenum"];

fn on_objects(bed: &Testbed, sheet: &mut Sheet) {
    let conf = format!("--conf={}", bed.conf());
    let run = run_loads(bed, &[OBJECTS, &[&conf]].concat());
    check_loads(&run, "`ioengine=rados`", sheet);
    for object in 0..4 {
        let path = bed.file("trimmed");
        bed.rados_ok(&["get", &format!("object.{object}"), &path]);
        let bytes = std::fs::read(&path).expect("an object");
        // A trim that reaches the end makes an object shorter.
        assert!(
            bytes.len() < 2 << 20 && bytes.iter().all(|byte| *byte == 0),
            "object.{object} is not trimmed"
        );
    }
}

/// That the loads above end well says something: fio finds a block that is not what it wrote.
fn a_wrong_block_is_found(bed: &Testbed) {
    let conf = format!("--conf={}", bed.conf());
    let target = ["--ioengine=rados", &conf, "--clientname=admin", "--pool=bench", "--filename=changed"];
    let load = ["--size=1m", "--bs=64k", "--verify=crc32c"];
    let run = bed.fio(&[&["--name=w", "--rw=write"], &target[..], &load].concat());
    assert!(run.is_good, "{}", run.said);
    let file = bed.file("wrong");
    std::fs::write(&file, [7; 100]).expect("a file");
    bed.rados_ok(&["put", "changed", &file, "--offset", "300000"]);
    let run = bed.fio(&[&["--name=r", "--rw=read"], &target[..], &load].concat());
    assert!(!run.is_good && run.said.contains("verify"), "{}", run.said);
}

#[test]
fn fio_s_engines_against_one_cyan_osd() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    let mut sheet = Sheet::new("fio");
    bed.rbd_ok(&["create", "--size", "8M", "--image-feature", "layering", "plain"]);
    bed.rbd_ok(&["create", "--size", "8M", "full"]);
    on_objects(&bed, &mut sheet);
    on_image(&bed, "plain", "image with layering only", &mut sheet);
    on_image(&bed, "full", "image with the default features", &mut sheet);
    a_wrong_block_is_found(&bed);
    sheet.check();
}

#[test]
fn fio_s_engines_against_three_replicated_blue_osds() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(THREE_BLUE);
    bed.rbd_ok(&["create", "--size", "8M", "full"]);
    on_image(&bed, "full", "", &mut Sheet::unlisted());
    on_objects(&bed, &mut Sheet::unlisted());
}
