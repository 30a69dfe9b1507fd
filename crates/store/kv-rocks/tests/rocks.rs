//! RocksDB behind `Kv`: the same as the in-memory one, durable, with fast CRC, and clear errors.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_store::{Kv, KvBatch, MemKv};
use proptest::prelude::*;

fn small() -> RocksOptions {
    RocksOptions {
        block_cache_bytes: 1 << 20,
        write_buffer_bytes: 1 << 20,
        background_threads: 1,
        ..RocksOptions::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    Commit(bool),
    Flush,
    Reopen,
}

/// Keys around the borders of the log family.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![b'A', b'K', b'L', b'M', b'X', 0, 0xfe]), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (key(), prop::collection::vec(any::<u8>(), 0..30)).prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::Delete),
        2 => (key(), key()).prop_map(|(start, end)| Step::DeleteRange(start, end)),
        4 => any::<bool>().prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

fn content(kv: &dyn Kv, start: &[u8], end: &[u8], max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    kv.scan(start, end, &mut |key, value| {
        out.push((key.to_vec(), value.to_vec()));
        out.len() < max
    })
    .unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_map_in_memory(steps in prop::collection::vec(step(), 1..80), start in key(), end in key(), max in 1usize..9) {
        let folder = tempfile::tempdir().unwrap();
        let mut rocks = Some(RocksKv::open(folder.path(), small()).unwrap());
        let mem = MemKv::new();
        let mut batch = KvBatch::default();
        for step in steps {
            let kv = rocks.as_ref().unwrap();
            match step {
                Step::Put(key, value) => batch.put(&key, &value),
                Step::Delete(key) => batch.delete(&key),
                // RocksDB refuses ranges that are the wrong way round; the store never makes them.
                Step::DeleteRange(start, end) if start < end => batch.delete_range(&start, &end),
                Step::DeleteRange(..) => {}
                Step::Commit(sync) => {
                    let batches = [std::mem::take(&mut batch), KvBatch::default()];
                    kv.commit(&batches, sync).unwrap();
                    mem.commit(&batches, true).unwrap();
                }
                Step::Flush => kv.flush().unwrap(),
                Step::Reopen => {
                    drop(rocks.take());
                    rocks = Some(RocksKv::open(folder.path(), small()).unwrap());
                }
            }
        }
        let rocks = rocks.unwrap();
        let all = content(&mem, &[], &[0xff], usize::MAX);
        prop_assert_eq!(&content(&rocks, &[], &[0xff], usize::MAX), &all);
        prop_assert_eq!(content(&rocks, &start, &end, max), content(&mem, &start, &end, max));
        for (key, value) in all {
            prop_assert_eq!(rocks.get(&key).unwrap(), Some(value));
        }
        prop_assert_eq!(rocks.get(b"nothing").unwrap(), None);
    }
}

#[test]
fn crc32c_is_compiled_for_the_hardware() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open(folder.path(), small()).unwrap();
    let support = kv.crc32_support().unwrap();
    assert!(
        support.starts_with("Supported"),
        "RocksDB says of its CRC32C: {support:?} (CXXFLAGS in .cargo/config.toml)"
    );
}

#[test]
fn options_are_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open(folder.path(), small()).unwrap();
    let log = std::fs::read_to_string(kv.path().join("LOG")).unwrap();
    // Options that contradict each other are silently changed: see what is left of those that matter.
    for line in [
        "Options.atomic_flush: 1",
        "Options.avoid_flush_during_shutdown: 0",
        "Options.use_fsync: 0",
        "Options.compression: NoCompression",
    ] {
        let (name, value) = line.split_once(": ").unwrap();
        let found = log
            .lines()
            .find(|line| line.contains(&format!("{name}: ")) || line.contains(&format!(" {name}:")));
        let found = found.unwrap_or_else(|| panic!("{name} is not in the log"));
        assert_eq!(found.rsplit(": ").next().map(str::trim), Some(value), "{found}");
    }
    assert!(kv.stats().contains("Uptime"), "{}", kv.stats());
    assert!(kv.free_bytes().unwrap() > 0);
}

#[test]
fn a_second_process_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let _kv = RocksKv::open(folder.path(), small()).unwrap();
    let Err(error) = RocksKv::open(folder.path(), small()) else { panic!("opened twice") };
    let text = error.to_string();
    assert!(text.contains("has it open") && text.contains(&*folder.path().to_string_lossy()), "{text}");
}

#[test]
fn a_folder_that_cannot_be_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let Err(error) = RocksKv::open(&file.path().join("db"), small()) else { panic!("opened") };
    assert!(error.to_string().contains("open the database"), "{error}");
}

#[test]
fn damage_to_a_table_is_an_error_not_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open(folder.path(), small()).unwrap();
    let mut batch = KvBatch::default();
    (0..200u8).for_each(|n| batch.put(&[b'O', n], &[n; 100]));
    kv.commit(&[batch], true).unwrap();
    kv.flush().unwrap();
    drop(kv);
    let tables = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    for table in tables.filter(|path| path.extension().is_some_and(|extension| extension == "sst")) {
        let mut bytes = std::fs::read(&table).unwrap();
        bytes[1000] ^= 4;
        std::fs::write(&table, bytes).unwrap();
    }
    let result = RocksKv::open(folder.path(), small()).and_then(|kv| {
        (0..200u8).try_for_each(|n| kv.get(&[b'O', n]).map(|value| assert_eq!(value, Some(vec![n; 100]))))
    });
    assert!(result.unwrap_err().to_string().contains("orruption"));
}

#[test]
fn compacting_loses_nothing_and_its_threads_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open(folder.path(), small()).unwrap();
    let before = kv.cpu().expect("this kernel tells");
    for round in 0..4u8 {
        let mut batch = KvBatch::default();
        (0..20_000u32).for_each(|n| batch.put(&[&b"O"[..], &n.to_be_bytes()].concat(), &[round; 100]));
        kv.commit(&[batch], true).unwrap();
    }
    kv.compact().unwrap();
    assert_eq!(content(&kv, b"O", b"P", usize::MAX).len(), 20_000);
    assert_eq!(kv.get(&[&b"O"[..], &7u32.to_be_bytes()].concat()).unwrap(), Some(vec![3; 100]));
    let after = kv.cpu().unwrap();
    assert!(
        after.flush_ns > before.flush_ns && after.compaction_ns > before.compaction_ns,
        "{before:?} {after:?}"
    );
}
