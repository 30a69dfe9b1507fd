//! put, stat, read, ls and remove through the crate `rados`: `carmine-foreign CEPH.CONF POOL`. Ends with an error as soon as something
//! is not as it should be.

use bytes::Bytes;

/// Sizes around the borders of blocks and segments.
const SIZES: [usize; 5] = [0, 1, 4095, 65_536, (4 << 20) + 17];

type Failure = Box<dyn std::error::Error>;

fn check(is_right: bool, what: impl Into<String>) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(what.into().into()) }
}

fn data(size: usize) -> Bytes {
    (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect::<Vec<u8>>().into()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(conf), Some(pool)) = (args.next(), args.next()) else {
        return Err("usage: carmine-foreign CEPH.CONF POOL".into());
    };
    let client = rados::connect(conf).await?;
    let io = client.open_pool(&pool).await?;
    for size in SIZES {
        let name = format!("foreign-{size}");
        io.write_full(&name, data(size)).await?;
        let stat = io.stat(&name).await?;
        check(stat.size == size as u64, format!("{name} has {} bytes by stat", stat.size))?;
        let back = io.read(&name, 0, size as u64 + 1).await?;
        check(back.data == data(size), format!("{name} came back different"))?;
    }
    println!("ok put, stat, read: {SIZES:?} bytes");
    let mut listed = io.ls().await?;
    listed.sort();
    let mut wanted: Vec<String> = SIZES.map(|size| format!("foreign-{size}")).to_vec();
    wanted.sort();
    check(listed == wanted, format!("ls shows {listed:?}, not {wanted:?}"))?;
    println!("ok ls");
    io.append("foreign-1", Bytes::from_static(b"more")).await?;
    check(io.stat("foreign-1").await?.size == 5, "append did not make 5 bytes")?;
    for name in &wanted {
        io.remove(name).await?;
    }
    check(io.stat("foreign-0").await.is_err(), "a removed object can still be seen")?;
    check(io.ls().await?.is_empty(), "something is left behind")?;
    println!("ok append, remove");
    client.shutdown().await?;
    Ok(())
}
