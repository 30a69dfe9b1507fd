//! Snapshots and clones of images: Debian's `rbd` 16.2.15, and the methods of the class rbd, say the same here as of a real Ceph
//! 16.2.15, whose answers are beside the scripts that ask. About 3 minutes.
#![allow(clippy::disallowed_methods)] // reads files

use std::path::Path;
use std::time::Duration;

use carmine_tests::sheet::Sheet;
use carmine_tests::tools::{ONE_CYAN, THREE_BLUE};
use carmine_tests::{Testbed, installed, run, skip, workspace_root};

/// Debian's: the one for which python3-rados is made; another may come first on the PATH.
const PYTHON: &str = "/usr/bin/python3";

fn file(name: &str) -> String {
    workspace_root().join("tests/tests").join(name).to_str().expect("UTF-8").to_owned()
}

/// Compares line by line, so that a failure shows what was asked.
fn compare(said: &str, expected: &str, errors: &str) {
    let pairs = said.lines().map(Some).chain([None]).zip(expected.lines().map(Some).chain([None]));
    for (n, (ours, theirs)) in pairs.enumerate() {
        let before: Vec<&str> = expected.lines().take(n).collect();
        let context = before[before.len().saturating_sub(12)..].join("\n");
        assert_eq!(ours, theirs, "line {} is different, after\n{context}\n{errors}", n + 1);
    }
}

fn snapshots_as_in_ceph(bed: &Testbed) {
    let (script, folder) = (file("sh/rbd_snapshots.sh"), bed.file("snapshots"));
    std::fs::create_dir(&folder).expect("a folder");
    let out = run(Path::new("bash"), &[&script, &bed.conf(), &folder], Duration::from_secs(900));
    let expected = std::fs::read_to_string(file("sh/rbd_snapshots.txt")).expect("what Ceph says");
    compare(&String::from_utf8_lossy(&out.stdout), &expected, &String::from_utf8_lossy(&out.stderr));
}

#[test]
fn rbd_says_of_snapshots_and_clones_what_it_says_of_a_real_ceph() {
    if !installed("rbd", "ceph-common") {
        return;
    }
    let bed = Testbed::up(ONE_CYAN);
    snapshots_as_in_ceph(&bed);
    let mut sheet = Sheet::new("rbd: snapshots and clones");
    let same = "as of a real Ceph 16.2.15, with and without object map";
    for (words, note) in [
        ("snap create|ls|rename|rm|purge IMAGE@SNAP", same),
        ("snap protect|unprotect IMAGE@SNAP", same),
        ("snap limit set|clear IMAGE", "one more is refused: Disk quota exceeded"),
        ("snap rollback IMAGE@SNAP", "the image is the snapshot again"),
        ("export IMAGE@SNAP FILE", "the bytes of then"),
        ("du IMAGE`, `rbd diff --from-snap SNAP IMAGE@SNAP", same),
        ("object-map check|rebuild IMAGE@SNAP", ""),
        ("export-diff|import-diff|merge-diff", "the snapshots come along, with the same bytes"),
        ("deep cp IMAGE COPY", "its snapshots, too, with the same bytes"),
        ("export|import --export-format 2 IMAGE", "its snapshots, too"),
        (
            "clone --rbd-default-clone-format 1 IMAGE@SNAP CLONE",
            "of a protected snapshot; read through its parent",
        ),
        ("clone --rbd-default-clone-format 2 IMAGE@SNAP CLONE", "a parent that is removed goes to the trash"),
        ("children IMAGE@SNAP`, `rbd children --all IMAGE", same),
        ("flatten CLONE", "the same bytes, without the parent"),
        ("trash mv|ls|restore|purge", "an image with snapshots is kept"),
    ] {
        sheet.works(&format!("`rbd {words}`"), note);
    }
    sheet.check();
}

#[test]
fn three_replicated_blue_osds_have_snapshots_and_clones() {
    if !installed("rbd", "ceph-common") {
        return;
    }
    snapshots_as_in_ceph(&Testbed::up(THREE_BLUE));
}

/// Runs the script of this name, which prints what methods of object classes answer.
fn answers_as_in_ceph(bed: &Testbed, name: &str) {
    let [script, answers] = ["py", "txt"].map(|end| file(&format!("python/{name}.{end}")));
    let out = run(Path::new(PYTHON), &[&script, &bed.conf(), "bench"], Duration::from_secs(300));
    let expected = std::fs::read_to_string(answers).expect("what Ceph says");
    compare(&String::from_utf8_lossy(&out.stdout), &expected, &String::from_utf8_lossy(&out.stderr));
}

#[test]
fn object_classes_answer_as_in_ceph() {
    let has_rados = Path::new(PYTHON).exists()
        && run(Path::new(PYTHON), &["-c", "import rados"], Duration::from_secs(30)).status.success();
    if !has_rados {
        return skip(format_args!("{PYTHON} cannot import rados: apt-get install python3-rados"));
    }
    let bed = Testbed::up(ONE_CYAN);
    answers_as_in_ceph(&bed, "rbd_class");
    answers_as_in_ceph(&bed, "classes");
    let mut sheet = Sheet::new("object classes");
    sheet.works(
        "`lock`, `hello`, `rbd`",
        "all methods but those of groups, mirroring, migration and journaling",
    );
    sheet.works(
        "`numops`, `refcount`, `version`, `log`",
        "all methods: the answers, omaps and xattrs of a real Ceph 16.2.15",
    );
    sheet.check();
}
