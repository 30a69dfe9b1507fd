//! A drive of three is lost, or its data is damaged: the other OSDs serve, and it is replaced beside them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // damages files

use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use carmine_tests::tools::THREE_BLUE;
use carmine_tests::{Testbed, installed};

const OBJECTS: u8 = 24;
const LIMIT: Duration = Duration::from_secs(400);
/// For a busy machine.
const LONG: [&str; 2] = ["--timeout", "300"];

fn content(object: u8, life: u8) -> Vec<u8> {
    vec![object ^ life; 10_000 + usize::from(object) * 100]
}

/// `carmine osd WORDS`: its exit code and all that it said.
fn osd(bed: &Testbed, words: &[&str]) -> (Option<i32>, String) {
    code_and_text(bed.osd(words))
}

fn code_and_text(output: Output) -> (Option<i32>, String) {
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

/// Writes all objects anew.
fn write(bed: &Testbed, life: u8) {
    let file = bed.file("in");
    for object in 0..OBJECTS {
        fs::write(&file, content(object, life)).expect("a file");
        bed.rados_ok(&["put", &format!("object-{object}"), &file]);
    }
}

fn check(bed: &Testbed, life: u8) {
    let file = bed.file("out");
    for object in 0..OBJECTS {
        bed.rados_ok(&["get", &format!("object-{object}"), &file]);
        assert!(fs::read(&file).expect("a file") == content(object, life), "object-{object}");
    }
}

/// Overwrites both ends of a block file: both copies of its label.
fn damage(block: &Path) {
    let mut file = OpenOptions::new().write(true).open(block).expect("the block file");
    for place in [SeekFrom::Start(0), SeekFrom::End(-(1 << 20))] {
        file.seek(place).and_then(|_| file.write_all(&[0x5a; 1 << 20])).expect("a write");
    }
}

#[test]
fn with_a_drive_of_three_lost_the_others_serve_and_it_is_replaced() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(&[THREE_BLUE, &["--min-size", "2"]].concat());
    write(&bed, 0);
    for (lost, is_gone) in [(1, true), (2, false)] {
        let life = lost as u8;
        bed.ok("down", &[]);
        let block = bed.dir().join(format!("osd.{lost}/block"));
        if is_gone {
            fs::remove_file(&block).expect("it is there");
        } else {
            damage(&block);
        }
        let (code, said) = code_and_text(bed.run("up", &LONG));
        assert!(code == Some(3) && said.contains("up: 2 of 3 OSDs"), "{code:?}: {said}");
        let name = format!("osd.{lost}");
        for part in
            [&name, block.to_str().expect("UTF-8"), "has ended", &format!("carmine osd remove {lost}")]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        check(&bed, life - 1);
        write(&bed, life);
        let (code, said) = code_and_text(bed.run("status", &[]));
        assert!(code == Some(1) && said.contains(&format!("{name} is dead (")), "{said}");
        // Also one by one.
        bed.ok("down", &[]);
        let others: Vec<String> = (0..3).filter(|osd| *osd != lost).map(|osd| osd.to_string()).collect();
        let (code, said) = osd(&bed, &["start", &others[0], &others[1], LONG[0], LONG[1]]);
        assert_eq!(code, Some(0), "{said}");
        check(&bed, life);
        let (code, said) = osd(&bed, &["start", &lost.to_string(), LONG[0], LONG[1]]);
        assert!(code == Some(3) && said.contains("does not run"), "{said}");
        let (code, said) = code_and_text(bed.run("restart", &LONG));
        assert!(code == Some(3) && said.contains(&name), "{said}");
        check(&bed, life);
        let (code, said) = osd(&bed, &["remove", &lost.to_string()]);
        assert_eq!((code, said), (Some(0), format!("{name} is removed\n")));
        check(&bed, life);
        let (code, said) = osd(&bed, &["add", LONG[0], LONG[1]]);
        assert_eq!((code, said), (Some(0), format!("{name} is up\n")));
        bed.until(LIMIT, "status", &[], |said| said.contains(": running"));
        check(&bed, life);
    }
    assert!(bed.ok("status", &[]).contains("32 clean"), "all copies are there again");
}
