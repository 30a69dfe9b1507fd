//! Servers that the dialling side refuses.

use super::common::{Recorder, both, client_config, server};
use carmine_messenger::{ConnectError, Target, connect};
use carmine_reactor::{Group, Shard};
use carmine_wire::{EntityAddr, EntityType};
use std::rc::Rc;
use std::time::Duration;

both!(wrong_peers, another_port_of_the_same_daemon, nobody_there, a_peer_that_says_nothing);

async fn dial(shard: &Shard, target: impl Into<Target>, expect: EntityType) -> ConnectError {
    connect(shard, target, expect, client_config(), Recorder::sink()).await.unwrap_err()
}

async fn wrong_peers(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |_| ()).await;
    let error = dial(&shard, server.addr, EntityType::MON).await;
    assert!(error.to_string().contains("is a osd, not a mon"), "{error}");
    let earlier = EntityAddr { nonce: 1, ..server.addr };
    let error = dial(&shard, earlier, EntityType::OSD).await;
    assert!(matches!(error, ConnectError::WrongAddress { .. }), "{error}");
    assert!(error.to_string().contains(&server.addr.to_string()), "{error}");
    let error = dial(&shard, EntityAddr::default(), EntityType::OSD).await;
    assert!(matches!(error, ConnectError::NoAddress(_)), "{error}");
}

async fn another_port_of_the_same_daemon(shard: Shard) {
    let public = EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 9);
    let server = server(&shard, Recorder::sink(), |config| config.addrs = public.into()).await;
    let port = server.addr.sock.unwrap().port();
    let target = Target::port_of(public, port);
    let conn = connect(&shard, target, EntityType::OSD, client_config(), Recorder::sink()).await.unwrap();
    assert_eq!(conn.peer().addr, public);
    let error = dial(&shard, server.addr, EntityType::OSD).await;
    assert!(matches!(error, ConnectError::WrongAddress { .. }), "{error}");
}

async fn nobody_there(shard: Shard) {
    let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr(), 1);
    drop(listener);
    let error = dial(&shard, addr, EntityType::OSD).await;
    assert!(matches!(error, ConnectError::Io { .. }), "{error}");
}

async fn a_peer_that_says_nothing(shard: Shard) {
    let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr(), 1);
    let task_shard = shard.clone();
    shard.spawn(Group::Admin, "mute", async move {
        let mut mute = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            mute.push(socket.into_stream(&task_shard));
        }
    });
    let mut config = carmine_messenger::ClientConfig::new(EntityType::CLIENT, "admin", 1);
    config.limits.handshake = Duration::from_millis(100);
    let error = connect(&shard, addr, EntityType::OSD, Rc::new(config), Recorder::sink()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
}
