//! Recorded grids, and the rules that every grid keeps. `UPDATE_GOLDEN=1` rewrites the files: read the
//! difference before it is committed.
#![allow(clippy::disallowed_methods, reason = "reads and writes golden files")]

use carmine_topology::{ClientCpus, Grid, PlanRequest, Strategy, Topology};

const STRATEGIES: [Strategy; 4] = [Strategy::Default, Strategy::Osd, Strategy::Socket, Strategy::L3];

fn check(name: &str, shape: &str, request: &PlanRequest) {
    let grid = Grid::plan(&Topology::from_short(shape).unwrap(), request).unwrap();
    let text = grid.render();
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{path} differs (UPDATE_GOLDEN=1 rewrites it)");
    let json = serde_json::to_string(&grid).unwrap();
    assert_eq!(serde_json::from_str::<Grid>(&json).unwrap(), grid);
}

#[test]
fn eight_osds_on_two_sockets() {
    for reactors in [5, 6] {
        for strategy in STRATEGIES {
            let request = PlanRequest {
                osds: 8,
                reactors,
                strategy,
                client_cpus: Some(ClientCpus::Count(8)),
                pgs: 128,
                size: 3,
                ..PlanRequest::default()
            };
            check(&format!("2x28x2_8x{reactors}_{strategy}"), "2x28x2", &request);
        }
    }
}

#[test]
fn sixteen_osds_on_eight_l3_groups() {
    for strategy in STRATEGIES {
        let request = PlanRequest {
            osds: 16,
            reactors: 2,
            strategy,
            client_cpus: Some(ClientCpus::Count(8)),
            pgs: 512,
            size: 3,
            ..PlanRequest::default()
        };
        check(&format!("1x8x8x2_16x2_{strategy}"), "1x8x8x2", &request);
    }
}

/// Four OSDs on each node, as their drives; consecutive CPUs leave half of them on the other node.
#[test]
fn eight_osds_beside_eight_drives() {
    for strategy in [Strategy::Default, Strategy::Drive] {
        let request = PlanRequest {
            osds: 8,
            reactors: 4,
            strategy,
            drives: (0..8).map(|n| format!("nvme{n}n1")).collect(),
            pgs: 1024,
            size: 3,
            ..PlanRequest::default()
        };
        check(&format!("2x64x2_8_drives_{strategy}"), "2x64x2:l3=8:drives=8:eth0@node0/0-3", &request);
    }
}

/// One queue for all CPUs, and a drive of which the machine does not know.
#[test]
fn drives_with_interrupts() {
    let request = PlanRequest {
        osds: 3,
        client_cpus: Some(ClientCpus::Count(1)),
        drives: ["sda", "sdb", "md0"].map(str::to_owned).to_vec(),
        ..PlanRequest::default()
    };
    check("2x2x1_interrupts", "2x2x1:sda@node0/0:sdb@node1/0,3", &request);
}

#[test]
fn given_lists() {
    let request = PlanRequest {
        osds: 2,
        reactors: 3,
        cpus: Some("0-5".parse().unwrap()),
        client_cpus: Some("56-63".parse().unwrap()),
        alien_cpus: Some("28-31".parse().unwrap()),
        ..PlanRequest::default()
    };
    check("2x28x2_given", "2x28x2", &request);
}

#[test]
fn overprovisioned_small_machine() {
    let request = PlanRequest { osds: 3, overprovisioned: true, pgs: 32, size: 3, ..PlanRequest::default() };
    check("1x2x1_3x1_overprovisioned", "1x2x1", &request);
}

/// Three CPUs for an OSD of two reactors leave one to its aliens; one for two makes the reactors share it.
#[test]
fn cpusets() {
    let request = PlanRequest {
        osds: 2,
        reactors: 2,
        cpus_per_osd: Some(3),
        client_cpus: Some(ClientCpus::Count(2)),
        pgs: 64,
        ..PlanRequest::default()
    };
    check("1x8x2_cpuset3", "1x8x2", &request);
    let request = PlanRequest { cpus_per_osd: Some(1), overprovisioned: true, ..request };
    check("1x8x2_cpuset1", "1x8x2", &request);
}

/// The slices of a host that also runs other things: system, OSD, and the rest for its neighbours.
#[test]
fn slices_by_name() {
    let request = PlanRequest {
        reactors: 2,
        strategy: Strategy::None,
        cpus: Some("4-5".parse().unwrap()),
        system_cpus: Some("0-1".parse().unwrap()),
        client_cpus: Some("2-3".parse().unwrap()),
        neighbour_cpus: Some("6-31".parse().unwrap()),
        ..PlanRequest::default()
    };
    check("1x16x2_4+2+26", "1x16x2", &request);
    let no_limit = PlanRequest { cpus: None, neighbour_cpus: None, ..request };
    check("1x16x2_no_limit", "1x16x2", &no_limit);
}
