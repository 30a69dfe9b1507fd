//! The stage of an operation that a stack belongs to, recognised by the functions in it.

use carmine_load::stages::Stage;

/// Beginnings of the kernel's functions, with a space between them. A rule before another one wins, wherever in the stack its
/// function is: sending over loopback also receives.
const KERNEL: [(Stage, &str); 4] = [
    (Stage::Send, "io_send sock_sendmsg tcp_sendmsg"),
    (Stage::Receive, "io_recv tcp_recvmsg"),
    (
        Stage::Device,
        "io_read io_write io_fsync io_uring_cmd io_wq blk_ __blk_ blkdev_ submit_bio virtblk nvme_ iomap_ vfs_ ext4_ xfs_ \
         loop_",
    ),
    (Stage::Receive, "net_rx_action"),
];
/// Parts of the program's functions, with a space between them. The innermost function that has a rule decides, by the first
/// rule that it has.
const PROGRAM: [(Stage, &str); 8] = [
    (Stage::Replicas, "carmine_osd::pg::replica carmine_osd::repl carmine_osd::pg::repl ::backend::"),
    (
        Stage::Reply,
        "ClientOp::reply ::finish_read ::finish_write carmine_messenger::encode carmine_wire::osd_op::reply",
    ),
    (
        Stage::Log,
        "carmine_store::blue::log carmine_store::blue::meta carmine_store::blue::shard::logging carmine_store::kv \
         carmine_kv_rocks rocksdb:: carmine_reactor::alien",
    ),
    (Stage::Device, "carmine_store::blue::device"),
    (Stage::Store, "carmine_store::"),
    (Stage::Route, "carmine_osd::dispatch carmine_osd::shard carmine_osd::map carmine_crush::"),
    // A PG's own code is inlined into the function that polls it first.
    (Stage::Pg, "carmine_osd:: carmine_peering:: Shard::spawn_polled"),
    (Stage::Frame, "carmine_messenger:: carmine_wire::"),
];
/// Parts of the names of threads that do nothing but feed RocksDB, or belong to RocksDB.
const LOG_THREADS: [&str; 2] = ["rocksdb:", "-alien-"];

/// The stage of a stack: its thread's name, and its functions (`true`: the kernel's), the innermost first.
pub(super) fn stage(thread: &str, frames: &[(String, bool)]) -> Option<Stage> {
    let of_kernel = || frames.iter().filter(|(_, is_kernel)| *is_kernel).map(|(name, _)| &**name);
    let of_program = || frames.iter().filter(|(_, is_kernel)| !*is_kernel).map(|(name, _)| &**name);
    let begins =
        |starts: &str| of_kernel().any(|name| starts.split(' ').any(|start| name.starts_with(start)));
    let rule =
        |name: &str| PROGRAM.iter().find(|(_, parts)| parts.split(' ').any(|part| name.contains(part)));
    let by_kernel = KERNEL.iter().find(|(_, starts)| begins(starts)).map(|(stage, _)| *stage);
    let by_program = || of_program().find_map(rule).map(|(stage, _)| *stage);
    let by_thread = || LOG_THREADS.iter().any(|part| thread.contains(part)).then_some(Stage::Log);
    let by_reactor = || of_program().any(|name| name.contains("carmine_reactor::")).then_some(Stage::Reactor);
    by_kernel.or_else(by_program).or_else(by_thread).or_else(by_reactor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stacks as `perf script` gave them, the innermost function first; `k:` marks the kernel's.
    fn stage_of(thread: &str, stack: &str) -> Option<Stage> {
        let frame = |name: &str| match name.strip_prefix("k:") {
            Some(name) => (name.to_owned(), true),
            None => (name.to_owned(), false),
        };
        stage(thread, &stack.split(" < ").map(frame).collect::<Vec<_>>())
    }

    #[test]
    fn stacks_belong_to_stages() {
        let turn = "k:io_submit_sqes < syscall < carmine_reactor::driver::uring::Uring::turn < carmine_reactor::turn::run";
        for (stack, expected) in [
            ("k:tcp_v4_rcv < k:net_rx_action < k:tcp_sendmsg < k:io_sendmsg", Stage::Send),
            ("k:tcp_v4_rcv < k:net_rx_action < carmine_osd::pg::Pg::take", Stage::Receive),
            ("k:tcp_recvmsg_locked < k:io_recv", Stage::Receive),
            ("k:__blk_flush_plug < k:blk_finish_plug", Stage::Device),
            ("k:io_arm_poll", Stage::Reactor),
            (
                "_mi_page_malloc_zero < carmine_wire::osd_op::request::OsdRequest::decode < carmine_osd::dispatch::decode",
                Stage::Frame,
            ),
            (
                "<carmine_osd::dispatch::Incoming as carmine_messenger::message::Dispatcher>::on_message",
                Stage::Route,
            ),
            (
                "crc_fast::crc32 < carmine_types::crc32c::wide < carmine_store::blue::shard::read::plain_block",
                Stage::Store,
            ),
            ("carmine_store::blue::meta::index::sorted < carmine_store::blue::shard::submit", Stage::Log),
            (
                "carmine_metrics::histogram::Histogram::record_n < carmine_osd::pg::read::<impl carmine_osd::pg::Pg>::finish_read",
                Stage::Reply,
            ),
            (
                "carmine_osd::pg::log::PgLog::find < carmine_osd::pg::write::<impl carmine_osd::pg::Pg>::admit",
                Stage::Pg,
            ),
            (
                "carmine_reactor::shard::Shard::buf < carmine_store::blue::shard::read::read_blocks",
                Stage::Store,
            ),
        ] {
            assert_eq!(stage_of("osd.0-0", &format!("{stack} < {turn}")), Some(expected), "{stack}");
        }
        assert_eq!(
            stage_of("osd.0-alien-1", "k:futex_wait < syscall < crossbeam_channel::recv"),
            Some(Stage::Log)
        );
        assert_eq!(stage_of("iou-wrk-12", "k:schedule < k:io_wq_worker"), Some(Stage::Device));
        assert_eq!(stage_of("osd.0-0", "main"), None);
    }
}
