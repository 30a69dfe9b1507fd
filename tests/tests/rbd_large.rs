//! Images of hundreds of TiB with an object map, by Debian's python3-rbd. About 30 s.

use std::path::Path;
use std::time::Duration;

use carmine_tests::{Testbed, run, skip, workspace_root};

/// Debian's: the one for which python3-rbd is made.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn images_of_hundreds_of_tib_have_object_maps() {
    let has_rbd = Path::new(PYTHON).exists()
        && run(Path::new(PYTHON), &["-c", "import rbd"], Duration::from_secs(30)).status.success();
    if !has_rbd {
        return skip(format_args!("{PYTHON} cannot import rbd: apt-get install python3-rbd"));
    }
    let script = workspace_root().join("tests/tests/python/rbd_large.py");
    let script = script.to_str().expect("UTF-8");
    let bed = Testbed::up(&[
        "--osds",
        "2",
        "--size",
        "2",
        "--store",
        "blue",
        "--sparse",
        "--pgs",
        "8",
        "--overprovisioned",
        "--osd-size",
        "2G",
    ]);
    let out = run(Path::new(PYTHON), &[script, &bed.conf(), "bench"], Duration::from_secs(500));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    println!("{said}");
    assert!(out.status.success() && said.ends_with("ok\n"), "{said}{}", String::from_utf8_lossy(&out.stderr));
}
