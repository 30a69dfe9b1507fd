//! `blue` on block devices: loop devices, with the sectors of old drives and of new ones. Where none can be made (that takes
//! root) the reason is printed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{Kv, MemKv};
use carmine_testkit::LoopDevice;
use common::*;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Bytes of a sector: what O_DIRECT must be aligned to.
const SECTORS: [u32; 2] = [512, 4096];
const DEVICE_BYTES: u64 = 16 << 20;

/// Runs a test on a device of each kind, in a folder of its own.
fn on_devices(test: impl Fn(&Path, &LoopDevice)) {
    for sector_bytes in SECTORS {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let Some(device) = LoopDevice::new(folder.path(), DEVICE_BYTES, sector_bytes) else { return };
        test(folder.path(), &device);
    }
}

#[test]
fn devices_are_taken_whole_and_never_by_mistake() {
    on_devices(taken_whole);
}

fn taken_whole(folder: &Path, device: &LoopDevice) {
    let options = MkfsOptions { size_bytes: None, force: false, ..mkfs_options(0) };
    let make = async |shard: &carmine_reactor::Shard, kv: &Arc<dyn Kv>, options| {
        blue::mkfs(shard, device.path(), options, Arc::clone(kv), &mut |_, _| {})
            .await
            .map_err(|error| error.to_string())
    };
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    on_reactor(async |shard| {
        let label = make(&shard, &kv, options).await.unwrap();
        assert_eq!(label.size_bytes, DEVICE_BYTES);
        let (shared, store) = mount(&shard, device.path(), &kv).await;
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
        let too_large = MkfsOptions { size_bytes: Some(DEVICE_BYTES + (1 << 20)), force: true, ..options };
        let error = make(&shard, &other, too_large).await.unwrap_err();
        assert!(error.contains("less than"), "{error}");
        let (_, store) = mount(&shard, device.path(), &kv).await;
        assert_eq!(store.read(&oid(1), 5, 10_000).await.unwrap().to_vec(), noise(1, 10_000));
        store.umount().await.unwrap();
    });
    // With a file system, mounted and not.
    run("mkfs.ext4", &["-q", "-F", device.name()]);
    on_reactor(async |shard| {
        let other: Arc<dyn Kv> = Arc::new(MemKv::new());
        let error = make(&shard, &other, options).await.unwrap_err();
        assert!(error.contains("not blank"), "{error}");
        let place = folder.join("mounted");
        std::fs::create_dir(&place).unwrap();
        run("mount", &[device.name(), place.to_str().unwrap()]);
        let error = make(&shard, &other, MkfsOptions { force: true, ..options }).await;
        run("umount", &[place.to_str().unwrap()]);
        assert!(error.unwrap_err().contains("mounted"));
        make(&shard, &other, MkfsOptions { force: true, ..options }).await.unwrap();
    });
}

#[test]
fn a_device_forgets_what_it_had_without_being_written() {
    on_devices(|_, device| forgets(device));
}

fn forgets(device: &LoopDevice) {
    on_reactor(async |shard| {
        for (fill, is_written) in [(Fill::Fresh, false), (Fill::Zeros, true)] {
            std::fs::write(device.path(), vec![0xa5; DEVICE_BYTES as usize]).unwrap();
            let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
            let options = MkfsOptions { fill, ..mkfs_options(DEVICE_BYTES) };
            let mut seen = Vec::new();
            blue::mkfs(&shard, device.path(), options, Arc::clone(&kv), &mut |done, _| seen.push(done))
                .await
                .unwrap();
            assert_eq!(seen.last(), Some(&DEVICE_BYTES));
            let kept_bytes = device.kept_bytes().unwrap();
            assert_eq!(kept_bytes >= DEVICE_BYTES, is_written, "{fill:?}: {kept_bytes} bytes are kept");
            let (shared, store) = mount(&shard, device.path(), &kv).await;
            submit(&store, txn([write(&oid(1), 5, noise(1, 100_000))])).await.unwrap();
            assert_eq!(store.read(&oid(1), 5, 100_000).await.unwrap().to_vec(), noise(1, 100_000));
            clean(&shared, &shard).await;
            store.umount().await.unwrap();
        }
    });
}

#[test]
fn freed_space_is_discarded() {
    on_devices(|_, device| discarded(device));
}

/// The file below gets smaller by what was freed, and nothing else is touched.
fn discarded(device: &LoopDevice) {
    let kept_bytes = || device.kept_bytes().unwrap();
    on_reactor(async |shard| {
        let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
        // All of it is written: what the log writes later makes the file no larger.
        let written = MkfsOptions { fill: Fill::Zeros, ..mkfs_options(DEVICE_BYTES) };
        blue::mkfs(&shard, device.path(), written, Arc::clone(&kv), &mut |_, _| {}).await.unwrap();
        let options = MountOptions { discard: true, ..MountOptions::default() };
        let (_, store) = mount_with(&shard, device.path(), &kv, options).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 4 << 20))])).await.unwrap();
        submit(&store, txn([write(&oid(2), 0, noise(2, 8192))])).await.unwrap();
        let before = kept_bytes();
        submit(&store, txn([remove(&oid(1))])).await.unwrap();
        store.umount().await.unwrap();
        if store.stats().discards == 0 {
            return carmine_testkit::skip(format_args!(
                "the file system below {} takes no discards: put the target folder on ext4 or xfs",
                device.name()
            ));
        }
        assert_eq!(store.stats().discard_bytes, 4 << 20);
        assert!(kept_bytes() + (4 << 20) <= before, "{before}");
        drop(store);
        let (_, store) = mount(&shard, device.path(), &kv).await;
        assert_eq!(store.read(&oid(2), 0, 8192).await.unwrap().to_vec(), noise(2, 8192));
        store.umount().await.unwrap();
    });
}
