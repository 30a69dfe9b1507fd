//! A mailbox round trip between two spinning reactors: alone (latency) and 64 in flight (batched).
//! Expected: about 1 µs alone (two hops, two turns), well below 0.3 µs each in a batch.
#![allow(clippy::disallowed_methods)] // real time

use std::sync::mpsc;
use std::time::{Duration, Instant};

use carmine_reactor::{Group, Reactors, Shard, ShardId, sync::oneshot};
use criterion::{Criterion, criterion_group, criterion_main};

async fn round_trips(shard: &Shard, count: u64) {
    for _ in 0..count {
        shard.call(ShardId(1), async |_| ()).await;
    }
}

async fn measure(shard: Shard, iterations: u64, in_flight: u64) -> Duration {
    let begin = Instant::now();
    let mut done = Vec::new();
    for lane in 0..in_flight {
        let share = iterations / in_flight + u64::from(lane < iterations % in_flight);
        let (tell, told) = oneshot::channel();
        let own = shard.clone();
        shard.spawn(Group::Client, "hop", async move {
            round_trips(&own, share).await;
            let _ = tell.send(());
        });
        done.push(told);
    }
    for told in done {
        let _ = told.await;
    }
    begin.elapsed()
}

fn run(iterations: u64, in_flight: u64) -> Duration {
    let (tell, told) = mpsc::channel();
    let main = move |shard: Shard| {
        let tell = tell.clone();
        async move {
            if shard.id() == ShardId(0) {
                let _ = tell.send(measure(shard.clone(), iterations, in_flight).await);
                shard.stop();
            }
        }
    };
    let reactors = Reactors::start(carmine_benches::reactors(2), main).expect("two reactors start");
    let elapsed = told.recv_timeout(Duration::from_secs(60)).expect("the hops end");
    reactors.join().expect("the reactors end");
    elapsed
}

fn hop(c: &mut Criterion) {
    let mut group = c.benchmark_group("reactor/round trip");
    group.bench_function("1 in flight", |b| b.iter_custom(|n| run(n, 1)));
    group.bench_function("64 in flight", |b| b.iter_custom(|n| run(n, 64)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = hop
}
criterion_main!(benches);
