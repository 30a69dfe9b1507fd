//! Checks that the class `rbd`, on objects in memory, gives the answers of a real Ceph 16.2.15, recorded by
//! `tests/tests/python/rbd_class.py`, and that methods have the flags that the table of `carmine-caps` tells of.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_types::{ObjectId, UTime};
use carmine_wire::EntityAddr;

use super::{Caller, Handle, find};
use crate::pg::ObjectState;

const ANSWERS: &str = include_str!("../../../../../tests/tests/python/rbd_class.txt");

/// These need a snapshot in the pool, so only the test with real processes runs them.
const LAST_GROUP: &str = "# snapshot_sequences";

fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// `?` stands for any byte.
fn fits(ours: &[u8], theirs: &[u8]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a == b || *b == b'?')
}

fn caller() -> Caller {
    Caller { gid: 1, addr: EntityAddr::default(), random: [1, 2] }
}

/// Result and output of a call, as a client gets them.
fn call(state: &mut ObjectState<'_>, method: &str, input: &[u8]) -> (i64, Vec<u8>) {
    let Some(found) = find(b"rbd", method.as_bytes()) else { return (-95, Vec::new()) };
    if !found.writes && state.must_exist().is_err() {
        return (-2, Vec::new());
    }
    state.extra.get_or_insert_default().data.get_or_insert_default();
    match (found.run)(&mut Handle::new(state, caller()), input) {
        Ok(output) if found.writes => (0, output),
        Ok(output) => (output.len() as i64, output),
        Err(error) => (error.report().into(), Vec::new()),
    }
}

/// All keys of the omap.
fn keys(state: &mut ObjectState<'_>) -> Vec<String> {
    let all = Handle::new(state, caller()).omap_all(b"").unwrap();
    all.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
}

#[test]
fn the_class_rbd_answers_as_ceph_does() {
    let names: Vec<&str> = ANSWERS.lines().filter_map(|line| line.split(' ').next()).collect();
    let oids: BTreeMap<&str, Arc<ObjectId>> =
        names.iter().map(|name| (*name, Arc::new(ObjectId::head(1, b"", b"", name.as_bytes())))).collect();
    let mut objects: BTreeMap<&str, ObjectState<'_>> = oids
        .iter()
        .map(|(name, oid)| (*name, ObjectState::new(oid, None, UTime { sec: 1000, nsec: 0 })))
        .collect();
    let (mut calls, mut told) = (0, Vec::new());
    let mut listed: (&str, Vec<String>) = ("", Vec::new());
    for line in ANSWERS.lines().take_while(|line| *line != LAST_GROUP).filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let state = objects.get_mut(words[0]).unwrap();
        let ours = match words[1..] {
            ["is", ref runs @ ..] => {
                let runs = runs.iter().filter_map(|run| run.split_once('*'));
                let bytes: Vec<u8> =
                    runs.flat_map(|(byte, n)| unhex(byte).repeat(n.parse().unwrap())).collect();
                state.extra.get_or_insert_default().data.get_or_insert_default();
                Handle::new(state, caller()).write_full(bytes).unwrap();
                line.to_owned()
            }
            ["has", "nothing", ..] => {
                assert!(state.must_exist().is_err(), "{line}");
                line.to_owned()
            }
            ["has", key, "=", value] => {
                if listed.0 != words[0] || listed.1.is_empty() {
                    listed = (words[0], keys(state));
                }
                let next = listed.1.remove(0);
                let ours = state.known_value(key.as_bytes()).unwrap_or_default();
                assert_eq!(next, key, "the keys of {} differ", words[0]);
                if value == "?" || fits(&ours, &unhex(value)) { line.to_owned() } else { hex(&ours) }
            }
            ["has", ..] => {
                let data = state.extra.as_ref().and_then(|extra| extra.data.as_deref()).unwrap_or_default();
                let start = data.get(..64).unwrap_or(data);
                let shown = if start.is_empty() { String::new() } else { hex(start) };
                format!("{} has {} bytes: {shown}", words[0], data.len())
            }
            ["stat", "=", "-2"] => {
                if state.must_exist().is_err() {
                    line.to_owned()
                } else {
                    "there is an object".into()
                }
            }
            [method, input, "=", result, output] => {
                calls += 1;
                let (code, out) = call(state, method, &unhex(input));
                let same = code.to_string() == result && fits(&out, &unhex(output));
                if same { line.to_owned() } else { format!("{code} {}", hex(&out)) }
            }
            _ => panic!("{line}"),
        };
        if ours != line.trim_end() && ours.trim_end() != line.trim_end() {
            told.push(format!("{line}\n    here: {ours}"));
        }
    }
    assert!(calls > 400, "only {calls} calls");
    assert!(told.is_empty(), "{} answers differ:\n{}", told.len(), told.join("\n"));
}

#[test]
fn methods_read_and_write_as_ceph_says() {
    let table = include_str!("../../../../protocol/caps/tests/methods.tsv");
    let rows = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t'));
    let theirs: BTreeMap<(&str, &str), &str> =
        rows.map(|mut row| ((row.next().unwrap(), row.next().unwrap()), row.next().unwrap())).collect();
    let mut ours = 0;
    for class in super::CLASSES.split(' ') {
        for method in super::tables(class.as_bytes()).iter().copied().flatten() {
            ours += 1;
            let flags = [(method.reads, 'r'), (method.writes, 'w')];
            let flags: String =
                flags.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
            assert_eq!(theirs.get(&(class, method.name)), Some(&flags.as_str()), "{class}.{}", method.name);
        }
    }
    assert_eq!(ours, theirs.len());
}
