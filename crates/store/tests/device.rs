//! `blue` on block devices. Needs root and makes loop devices, so it runs only when asked:
//! `CARMINE_LOOP_TEST=1 cargo test -p carmine-store --test device`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use carmine_store::blue::{self, MkfsOptions, MountOptions};
use carmine_store::{Kv, MemKv, TxnOp};
use common::*;

/// A loop device on a file; gone when dropped.
struct Loop(PathBuf);

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Loop {
    fn new(folder: &Path) -> Loop {
        let file = folder.join("backing");
        std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
        Loop(PathBuf::from(run("losetup", &["-f", "--show", file.to_str().unwrap()])))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", self.name()]).status();
    }
}

#[test]
fn devices_are_taken_whole_and_never_by_mistake() {
    if std::env::var_os("CARMINE_LOOP_TEST").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = Loop::new(folder.path());
    let options = MkfsOptions { size_bytes: None, force: false, ..mkfs_options(0) };
    let make = async |shard: &carmine_reactor::Shard, kv: &Arc<dyn Kv>, options| {
        blue::mkfs(shard, &device.0, options, Arc::clone(kv), &mut |_, _| {})
            .await
            .map_err(|error| error.to_string())
    };
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    on_reactor(async |shard| {
        let label = make(&shard, &kv, options).await.unwrap();
        assert_eq!(label.size_bytes, 16 << 20);
        let (shared, store) = mount(&shard, &device.0, &kv).await;
        submit(&store, txn([write(&oid(1), 5, noise(1, 10_000))])).await.unwrap();
        assert_eq!(store.read(&oid(1), 5, 10_000).await.unwrap().to_vec(), noise(1, 10_000));
        clean(&shared, &shard).await;
        // In use by this store: not even by force.
        let other: Arc<dyn Kv> = Arc::new(MemKv::new());
        let error = make(&shard, &other, MkfsOptions { force: true, ..options }).await.unwrap_err();
        assert!(error.contains("in use"), "{error}");
        store.umount().await.unwrap();
        drop((shared, store));
        let error = make(&shard, &other, options).await.unwrap_err();
        assert!(error.contains("not blank"), "{error}");
        let too_large = MkfsOptions { size_bytes: Some(17 << 20), force: true, ..options };
        let error = make(&shard, &other, too_large).await.unwrap_err();
        assert!(error.contains("less than"), "{error}");
        let (_, store) = mount(&shard, &device.0, &kv).await;
        assert_eq!(store.read(&oid(1), 5, 10_000).await.unwrap().to_vec(), noise(1, 10_000));
        store.umount().await.unwrap();
    });
    // With a file system, mounted and not.
    run("mkfs.ext4", &["-q", "-F", device.name()]);
    on_reactor(async |shard| {
        let other: Arc<dyn Kv> = Arc::new(MemKv::new());
        let error = make(&shard, &other, options).await.unwrap_err();
        assert!(error.contains("not blank"), "{error}");
        let place = folder.path().join("mounted");
        std::fs::create_dir(&place).unwrap();
        run("mount", &[device.name(), place.to_str().unwrap()]);
        let error = make(&shard, &other, MkfsOptions { force: true, ..options }).await;
        run("umount", &[place.to_str().unwrap()]);
        assert!(error.unwrap_err().contains("mounted"));
        make(&shard, &other, MkfsOptions { force: true, ..options }).await.unwrap();
    });
}

#[test]
fn freed_space_is_discarded() {
    use std::os::unix::fs::MetadataExt as _;
    if std::env::var_os("CARMINE_LOOP_TEST").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = Loop::new(folder.path());
    let kept_bytes = || std::fs::metadata(folder.path().join("backing")).unwrap().blocks() * 512;
    on_reactor(async |shard| {
        let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
        mkfs(&shard, &device.0, &kv, 16 << 20).await;
        let options = MountOptions { discard: true, ..MountOptions::default() };
        let (_, store) = mount_with(&shard, &device.0, &kv, options).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 4 << 20))])).await.unwrap();
        submit(&store, txn([write(&oid(2), 0, noise(2, 8192))])).await.unwrap();
        let before = kept_bytes();
        submit(&store, txn([TxnOp::Remove { oid: oid(1) }])).await.unwrap();
        store.umount().await.unwrap();
        assert_eq!(store.stats().discard_bytes, 4 << 20);
        assert!(kept_bytes() + (4 << 20) <= before, "{before}");
        drop(store);
        let (_, store) = mount(&shard, &device.0, &kv).await;
        assert_eq!(store.read(&oid(2), 0, 8192).await.unwrap().to_vec(), noise(2, 8192));
        store.umount().await.unwrap();
    });
}
