//! The reactor on strict systems: little locked memory and no capabilities, io_uring forbidden.
//! Each body runs in a process of its own, because a process cannot regain what it gives up.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real threads and time are the subject

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use carmine_reactor::{Chunk, Config, Group, Reactors, ShardId, block_on};

fn run_child(name: &str) {
    let exe = std::env::current_exe().expect("own path");
    let out = Command::new(exe)
        .args([name, "--exact", "--ignored", "--test-threads=1", "--nocapture"])
        .output()
        .expect("the child starts");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn it_runs_unprivileged_with_8_mib_of_locked_memory() {
    run_child("unprivileged_child");
}

#[test]
fn a_forbidden_ring_is_named_with_the_fix() {
    run_child("forbidden_child");
}

/// Drops all capabilities of this thread (and of those that it starts) and limits locked memory.
fn give_up() {
    let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
    // SAFETY: `limit` is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: version 3 of the call reads a header of two words and two sets of three words.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }, 0);
    let big = vec![1u8; 16 << 20];
    // SAFETY: the range is owned by `big`.
    let locked = unsafe { libc::mlock(big.as_ptr().cast(), big.len()) };
    assert_ne!(locked, 0, "16 MiB could be locked: the limit is not in force");
}

#[test]
#[ignore = "a child of it_runs_unprivileged_with_8_mib_of_locked_memory"]
fn unprivileged_child() {
    give_up();
    // A real OSD's shape: several shards, large rings, more buffers than may be locked.
    let config = Config {
        register_bytes: 96 << 20,
        ring_entries: 4096,
        arena_bytes_per_shard: 96 << 20,
        ..Config::unpinned("unpriv", 4)
    };
    let reactors = Reactors::start(config, |shard| async move {
        let l = shard.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("listen");
        let c = shard.connect(l.local_addr()).await.expect("connect");
        let (socket, _) = l.accept().await.expect("accept");
        let s = socket.into_stream(&shard);
        shard.spawn(Group::Client, "send", async move {
            let _ = c.send(vec![Chunk::Bytes(vec![1; 20_000])]).await;
        });
        let mut have = 0;
        while have < 20_000 {
            have += s.recv(shard.buf(4096), 0).await.0.expect("recv");
        }
        let hold: Vec<_> = (0..64).map(|_| shard.buf(1 << 20)).collect();
        assert_eq!(shard.stats().buf_fallbacks, 0);
        assert_eq!(shard.stats().registered_bytes, 0, "96 MiB cannot be pinned under this limit");
        drop(hold);
        for to in 0..shard.shards() {
            shard.call(ShardId(to), |s| async move { s.sleep(Duration::from_millis(1)).await }).await;
        }
        if shard.id() == ShardId(0) {
            shard.sleep(Duration::from_millis(50)).await;
            shard.stop();
        }
    })
    .expect("start");
    reactors.join().expect("join");
}

/// Makes `io_uring_setup` fail with EPERM, as container run-times do.
fn forbid_io_uring() {
    const SETUP: u32 = 425;
    let code = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let program = [
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SETUP),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

#[test]
#[ignore = "a child of a_forbidden_ring_is_named_with_the_fix"]
fn forbidden_child() {
    forbid_io_uring();
    let e = block_on(Config::unpinned("no", 1), async |_| ()).expect_err("no ring");
    let text = e.to_string();
    assert_eq!(e.kind(), std::io::ErrorKind::PermissionDenied);
    for word in ["io_uring_setup", "seccomp", "--security-opt", "kernel.io_uring_disabled"] {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    let e = Reactors::start(Config::unpinned("no", 2), |_| async {}).err().expect("no ring");
    assert!(e.to_string().contains("seccomp"), "{e}");
}
