//! The figures of running OSDs: metrics over HTTP, and the admin socket as Ceph's own tool speaks to it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Bed, UP, text};

const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

/// The body behind `http://ADDR/TARGET`.
fn get(addr: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(LIMIT).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{target}: {answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The answer of an admin socket to a command.
fn ask(path: &str, command: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(LIMIT).unwrap();
    stream.write_all(command.as_bytes()).unwrap();
    stream.write_all(b"\0").unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn json(answer: &str) -> Value {
    serde_json::from_str(answer).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

#[test]
fn metrics_and_admin_sockets() {
    let bed = Bed::new();
    bed.ok(&[UP, &["--reactors", "2", "--poll", "sleep"]].concat());
    bed.wait_for("the metrics' addresses", || {
        let status = bed.status();
        (0..2).all(|osd| status["osds"][osd]["http"].is_string())
    });
    let status = bed.status();
    let http = status["osds"][1]["http"].as_str().unwrap();
    assert!(bed.ok(&["status"]).contains(&format!("http://{http}/metrics")));
    let metrics = get(http, "/metrics");
    for shard in 0..2 {
        let series = format!("reactor_cpu_busy_ms{{osd=\"1\",shard=\"{shard}\"}} ");
        assert!(metrics.contains(&series), "{metrics}");
    }
    let chosen = json(&get(http, "/metrics.json?prefix=osd_pgs"));
    assert_eq!(chosen["metrics"].as_array().unwrap().len(), 1);

    let socket = status["osds"][0]["admin_socket"].as_str().unwrap();
    assert_eq!(ask(socket, "0"), "2");
    assert!(json(&ask(socket, r#"{"prefix": "status"}"#))["pgs"]["total"].as_u64().unwrap() > 0);
    assert_eq!(json(&ask(socket, "config show"))["poll"], "sleep");
    assert_eq!(json(&ask(socket, "dump_shards"))["shards"].as_array().unwrap().len(), 2);
    assert!(json(&ask(socket, "{broken"))["error"].as_str().unwrap().contains("bad JSON"));
    assert!(json(&ask(socket, "explode"))["error"].as_str().unwrap().contains("unknown command"));
    // The same over the cluster's protocol.
    let shown = bed.ok(&["admin", "--osd", "0", r#"{"prefix": "config show"}"#]);
    assert_eq!(json(&shown), json(&ask(socket, "config show")));
    // A tool that hangs up half way leaves the socket usable.
    UnixStream::connect(socket).unwrap().write_all(b"{\"pre").unwrap();
    assert!(json(&ask(socket, "version"))["version"].is_string());
    // Nor do tools that say nothing, however many there are.
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(socket).unwrap()).collect();
    let begin = std::time::Instant::now();
    assert!(json(&ask(socket, "version"))["version"].is_string());
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?} beside silent tools", begin.elapsed());
    drop(silent);
    let commit = json(&ask(socket, "git_version"))["git_version"].as_str().unwrap().to_owned();
    assert!(commit.trim_end_matches('+').bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
    assert!(
        bed.ok(&["version", "--verbose"]).lines().any(|l| l.starts_with("commit ") && l.contains(&commit))
    );

    bed.ok(&["down"]);
    assert!(!std::path::Path::new(socket).exists(), "the socket is left over");
    assert!(bed.status()["osds"][0]["http"].is_null());
}

/// Reads until `part` has come; all that came.
fn read_until(from: &mut impl Read, part: &str) -> String {
    let (mut all, mut bytes) = (String::new(), [0; 4096]);
    while !all.contains(part) {
        let n = from.read(&mut bytes).unwrap();
        assert!(n > 0, "no {part:?} in {all:?}");
        all.push_str(&text(&bytes[..n]));
    }
    all
}

/// `top` on a terminal that util-linux's `script` makes.
#[test]
fn top_gives_the_terminal_back() {
    let bed = Bed::new();
    bed.ok(UP);
    let once = bed.ok(&["top", "--once"]);
    assert!(once.contains("osd.1") && !once.contains("quits"), "{once}");
    let carmine = env!("CARGO_BIN_EXE_carmine");
    // A terminal of nobody has no size.
    let size = "stty cols 140 rows 30";
    let top = format!("{size}; exec timeout --foreground 60 {carmine} top --dir {}", bed.dir().display());
    let mut script = Command::new("script");
    script.args(["-qefc", &top, "/dev/null"]).env("TERM", "xterm");
    let mut script = match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return carmine_testkit::skip("`script` is missing: apt-get install bsdutils");
        }
        child => child.unwrap(),
    };
    let mut screen = script.stdout.take().unwrap();
    read_until(&mut screen, "quits");
    script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    // Out of the alternate screen, with a cursor.
    let mut end = String::new();
    screen.read_to_string(&mut end).unwrap();
    assert!(end.contains("\x1b[?1049l") && end.contains("\x1b[?25h"), "{end:?}");
    assert!(script.wait().unwrap().success());
}

/// Debian's `ceph`, where it is installed.
#[test]
fn the_stock_tool_asks_the_admin_socket() {
    let bed = Bed::new();
    bed.ok(UP);
    let conf = bed.dir().join("ceph.conf");
    let ceph = |args: &[&str]| Command::new("ceph").arg("-c").arg(&conf).args(args).output();
    let dump = match ceph(&["daemon", "osd.0", "dump_metrics"]) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return carmine_testkit::skip("`ceph` is missing: apt-get install ceph-common");
        }
        out => out.unwrap(),
    };
    assert!(dump.status.success(), "{}", text(&dump.stderr));
    let dump = json(&text(&dump.stdout));
    let metrics = dump["metrics"].as_array().unwrap();
    assert!(metrics.iter().any(|m| m["reactor_utilization"]["shard"] == "0"), "{dump}");
    let socket = bed.dir().join("osd.1.asok");
    let shown = ceph(&["--admin-daemon", socket.to_str().unwrap(), "config", "show"]).unwrap();
    assert_eq!(json(&text(&shown.stdout))["osd"], 1, "{}", text(&shown.stderr));
    let unknown = ceph(&["daemon", "osd.0", "explode"]).unwrap();
    assert!(!unknown.status.success());
}
