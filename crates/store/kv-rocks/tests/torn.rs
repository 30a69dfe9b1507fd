//! RocksDB's files as they may lie after a crash, and worse: cut, torn at sectors, with flipped bits. It opens with a prefix of
//! the commits, or refuses and names its folder; a value is never another one than was written.
//!
//! A harm that it may not notice: a MANIFEST that is cut where a record ends. Then commits are missing; each pair is still one
//! that was committed. (`blue` notices: older.rs.)
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_store::{Kv, KvBatch};

const COMMITS: u64 = 600;
const KEYS: u64 = 40;
/// Commits between two flushes; the last commit is flushed.
const FLUSH_EVERY: u64 = 60;
const SECTOR: u64 = 512;

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

fn options() -> RocksOptions {
    // Tables, and several of them, after little.
    RocksOptions {
        block_cache_bytes: 1 << 20,
        write_buffer_bytes: 64 << 10,
        background_threads: 2,
        ..RocksOptions::default()
    }
}

fn value(commit: u64) -> Vec<u8> {
    let len = 20 + mix(commit) % 400;
    (0..len).map(|at| mix((commit << 16) | at) as u8).collect()
}

fn main_key(commit: u64) -> Vec<u8> {
    format!("Okey{}", commit % KEYS).into_bytes()
}

fn log_key(commit: u64) -> Vec<u8> {
    [b"L".as_slice(), &commit.to_be_bytes()].concat()
}

/// Fills a database whose files are copied while it runs: as `kill -9` leaves them.
fn fill(folder: &Path, copy: &Path) {
    let kv = RocksKv::open(folder, options()).unwrap();
    for commit in 1..=COMMITS {
        let mut batch = KvBatch::default();
        batch.put(&main_key(commit), &value(commit));
        batch.put(&log_key(commit), &value(commit));
        kv.commit(&[batch], false).unwrap();
        if commit.is_multiple_of(FLUSH_EVERY) {
            kv.flush().unwrap();
        }
    }
    // A copy of one moment: nothing changed while it was made.
    loop {
        let before = listing(folder);
        copy_folder(folder, copy);
        if listing(folder) == before {
            return;
        }
        fs::remove_dir_all(copy).unwrap();
    }
}

fn listing(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| (entry.path(), entry.metadata().map_or(0, |found| found.len()))).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // A file that RocksDB removes meanwhile is one that it no longer needs.
        let _ = fs::copy(entry.path(), to.join(entry.file_name()));
    }
}

/// Number of the last commit that is there, if all that is there is what the commits up to it left. With `any`: the number of
/// commits of which something is there; each pair must be of one.
fn check(kv: &RocksKv, what: &str, any: bool) -> Result<u64, String> {
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let scanned = kv.scan(&[0], &[0xff], &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        true
    });
    scanned.map_err(|error| error.to_string())?;
    if any {
        let committed = |key: &[u8], value: &[u8]| {
            let mut commits =
                (1..=COMMITS).filter(|commit| key == main_key(*commit) || key == log_key(*commit));
            commits.any(|commit| self::value(commit) == value)
        };
        assert!(
            found.iter().all(|(key, value)| committed(key, value)),
            "{what}: a pair that was never committed"
        );
        return Ok(found.len() as u64);
    }
    let last = found.keys().filter(|key| key[0] == b'L').count() as u64;
    let mut wanted = BTreeMap::new();
    for commit in 1..=last {
        wanted.insert(main_key(commit), value(commit));
        wanted.insert(log_key(commit), value(commit));
    }
    assert!(found == wanted, "{what}: {} pairs are not those of the first {last} commits", found.len());
    Ok(last)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let holds_data = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.is_file() && !name.starts_with("LOG") && name != "LOCK" && !name.starts_with("OPTIONS")
    };
    files.retain(holds_data);
    files.sort();
    files
}

/// Harms a file; says how.
fn harm(path: &Path, random: u64) -> String {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let at = mix(random ^ 1) % len.max(1);
    let how = match random % 4 {
        0 => {
            file.set_len(at).unwrap();
            "cut"
        }
        // A power cut leaves only some sectors of the last writes.
        1 => {
            for sector in
                (at / SECTOR..len.div_ceil(SECTOR)).filter(|sector| mix(random ^ sector).is_multiple_of(2))
            {
                file.write_all_at(&[0; SECTOR as usize], sector * SECTOR).unwrap();
            }
            file.set_len(len).unwrap();
            "torn"
        }
        2 => {
            let mut byte = [0];
            if file.read_at(&mut byte, at).unwrap() == 1 {
                file.write_all_at(&[byte[0] ^ (1 << ((random >> 8) % 8))], at).unwrap();
            }
            "with a flipped bit"
        }
        _ => {
            let noise: Vec<u8> = (0..SECTOR).map(|n| mix(random ^ (n << 20)) as u8).collect();
            file.write_all_at(&noise[..(SECTOR.min(len - at)) as usize], at).unwrap();
            "overwritten"
        }
    };
    format!("{} {how} at {at} of {len}", path.display())
}

#[test]
fn harmed_files_give_a_prefix_or_a_clear_refusal_and_never_wrong_data() {
    let rounds = std::env::var("TORN_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(80u64);
    let root = tempfile::tempdir().unwrap();
    let killed = root.path().join("killed");
    fill(&root.path().join("live"), &killed);
    let harmless = root.path().join("harmless");
    copy_folder(&killed, &harmless);
    let kv = RocksKv::open(&harmless, options()).unwrap();
    assert_eq!(check(&kv, "not harmed", false), Ok(COMMITS), "all that was flushed is there after kill -9");
    drop(kv);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..rounds {
        let folder = root.path().join(format!("round-{round}"));
        copy_folder(&killed, &folder);
        let files = files(&folder);
        let file = &files[(mix(round) % files.len() as u64) as usize];
        let said = harm(file, mix(round ^ 0xfeed));
        let any = said.contains("MANIFEST");
        match RocksKv::open(&folder, options()).map(|kv| check(&kv, &said, any)) {
            Ok(Ok(_)) => opened += 1,
            // It says where, whether at the opening or at a read.
            Ok(Err(error)) => {
                assert!(error.contains(folder.to_str().unwrap()), "{said}: {error}");
                refused += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains(folder.to_str().unwrap()), "{said}: {error}");
                refused += 1;
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{opened} opened with a prefix, {refused} refused");
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}
