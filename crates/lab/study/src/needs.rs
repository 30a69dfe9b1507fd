//! The needs of a sweep, checked against the machine before it starts: a sweep that ends in its tenth hour with a full disk has
//! measured nothing.

use std::time::Duration;

use crate::expand::{Expansion, show_duration};

/// A named device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    /// `None` if it can't be opened, or is not a block device.
    pub size_bytes: Option<u64>,
    pub is_blank: bool,
}

/// The machine's room, memory, time and devices; `None`: not known, or without a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    pub disk_bytes: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub time: Option<Duration>,
    pub devices: Vec<Device>,
    /// Load hosts that are named.
    pub load_hosts: u64,
    /// Data on the devices may be overwritten.
    pub may_wipe: bool,
}

/// The smallest device on which `carmine up` makes a store.
const DEVICE_MIN_BYTES: u64 = 1 << 30;

/// Everything of which there is not enough, with figures and what to lower; empty if the sweep can start.
pub fn shortages(expansion: &Expansion, have: &Have) -> Vec<String> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let lacks = |need: u64, have: Option<u64>| have.filter(|have| *have < need);
    let mut all = Vec::new();
    if let Some(free) = lacks(expansion.disk_bytes, have.disk_bytes) {
        all.push(format!(
            "disk: the stores of all layouts together take {} MiB, {} MiB are free; lower osd_size_bytes (--set \
             osd_size_bytes=1G) or osds, or name a folder on another drive with --layouts",
            mib(expansion.disk_bytes),
            mib(free)
        ));
    }
    if let Some(free) = lacks(expansion.memory_bytes, have.memory_bytes) {
        all.push(format!(
            "memory: the largest point takes {} MiB, {} MiB are available; lower osd_memory_bytes or osds, or with the store \
             cyan size_bytes",
            mib(expansion.memory_bytes),
            mib(free)
        ));
    }
    let hosts = expansion.points.iter().filter_map(|planned| planned.point.config.number("load_hosts")).max();
    if let Some(need) = hosts.filter(|need| *need > have.load_hosts) {
        all.push(format!(
            "load hosts: the plan takes {need}, --load-hosts names {}; start `carmine load` on more hosts, and name them",
            have.load_hosts
        ));
    }
    if let Some(time) = have.time.filter(|time| *time < expansion.estimate) {
        all.push(format!(
            "time: {} points take about {}, --deadline allows {}; lower --runtime or --repeats, or take fewer values of an \
             axis with --set",
            expansion.points.len(),
            show_duration(expansion.estimate),
            show_duration(time)
        ));
    }
    all.extend(have.devices.iter().filter_map(|device| {
        let Device { name, size_bytes, is_blank } = device;
        match size_bytes {
            None => Some(format!("device {name}: it can't be opened as a block device; check its name and your permissions")),
            Some(size) if *size < DEVICE_MIN_BYTES => {
                Some(format!("device {name}: it has {} MiB, a store takes {} at least", mib(*size), mib(DEVICE_MIN_BYTES)))
            }
            Some(_) if !is_blank && !have.may_wipe => {
                Some(format!("device {name}: it is not blank; name another, or take --force-wipe, which destroys what is on it"))
            }
            Some(_) => None,
        }
    }));
    all
}
