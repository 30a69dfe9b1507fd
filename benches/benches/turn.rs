//! An empty reactor turn: one task that waits for the next turn, so that each turn reaps nothing, runs one task and enters once.
//! Expected: below 1 µs, nearly all of it the system call.
#![allow(clippy::disallowed_methods)] // real time

use std::time::{Duration, Instant};

use carmine_reactor::block_on;
use criterion::{Criterion, criterion_group, criterion_main};

fn turns(iterations: u64) -> Duration {
    block_on(carmine_benches::reactors(1), async move |shard| {
        let before = shard.stats().turns;
        let begin = Instant::now();
        while shard.stats().turns - before < iterations {
            for _ in 0..64 {
                shard.next_turn().await;
            }
        }
        let turns = shard.stats().turns - before;
        // The loop overshoots by up to 64 turns: scale to what criterion asked for.
        begin.elapsed().mul_f64(iterations as f64 / turns as f64)
    })
    .expect("a reactor starts")
}

fn turn(c: &mut Criterion) {
    c.bench_function("reactor/empty turn", |b| b.iter_custom(turns));
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = turn
}
criterion_main!(benches);
