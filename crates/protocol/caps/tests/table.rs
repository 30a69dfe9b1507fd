//! Compares the verdicts and the grammar with those of a real Ceph 16.2.15, which `make_table.py` wrote down.

use std::collections::BTreeMap;

use carmine_caps::{Args, MethodNeed, MonCaps, MonRequest, Need, OsdCaps, Tags, Target, Verdict};

const VERDICTS: &str = include_str!("verdicts.tsv");
const MON_VERDICTS: &str = include_str!("mon_verdicts.tsv");
const METHODS: &str = include_str!("methods.tsv");
const TEXTS: &str = include_str!("texts.tsv");

/// The one class of those in the table that is not among those that `x` covers.
const UNLISTED: &str = "numops";

/// Lines of a file that begin with a word, as the fields after it.
fn lines<'a>(text: &'a str, word: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row[0] == word).map(|row| row[1..].to_vec()).collect()
}

/// Names and caps of the keys; a text that cannot be parsed grants nothing.
fn keys() -> Vec<(&'static str, OsdCaps)> {
    let rows = lines(VERDICTS, "key").into_iter();
    rows.map(|row| (row[0], OsdCaps::parse(row[1]).unwrap_or_default())).collect()
}

fn tags(pool: &str) -> Tags {
    let role = if pool == "a" { "main" } else { "second" };
    let mut tags = Tags::from([
        ("rbd".to_owned(), BTreeMap::new()),
        ("myapp".to_owned(), BTreeMap::from([("role".to_owned(), role.to_owned())])),
    ]);
    if pool == "b" {
        tags.insert("other".to_owned(), BTreeMap::new());
    }
    tags
}

/// What a request's words need; `None` if it calls what there is not, which is refused before caps are looked at.
fn need(words: &'static str) -> Option<Need<'static>> {
    let methods: BTreeMap<(&str, &str), &str> = METHODS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|row| ((row[0], row[1]), row[2]))
        .collect();
    let mut need = Need::default();
    for word in words.split(' ') {
        match word.split('.').collect::<Vec<_>>()[..] {
            [code] => need.add(u16::from_str_radix(code, 16).unwrap()),
            [_, class, method] => {
                let flags = methods.get(&(class, method))?;
                let (reads, writes) = (flags.contains('r'), flags.contains('w'));
                let is_listed = class != UNLISTED;
                need.methods.push(MethodNeed { class, method, reads, writes, is_listed });
            }
            _ => panic!("{words}"),
        }
    }
    Some(need)
}

#[test]
fn every_verdict_is_that_of_a_real_osd() {
    let (keys, mut pairs, mut refused, mut wrong) = (keys(), 0, 0, Vec::new());
    for row in lines(VERDICTS, "row").iter().filter(|row| row[0] != "-") {
        let [pool, namespace, name, locator, words, verdicts, ..] = row[..] else { panic!("{row:?}") };
        let Some(need) = need(words) else { continue };
        let tags = tags(pool);
        let target = Target {
            pool,
            namespace: if namespace == "@" { b"\x01" } else { namespace.as_bytes() },
            object: match words {
                "1505" => b"",
                _ if locator.is_empty() => name.as_bytes(),
                _ => locator.as_bytes(),
            },
            tags: &tags,
            client: "127.0.0.1".parse().ok(),
        };
        assert_eq!(verdicts.len(), keys.len());
        for ((key, caps), verdict) in keys.iter().zip(verdicts.chars()) {
            pairs += 1;
            refused += usize::from(verdict == 'E');
            if caps.allow(&target, &need) == (verdict == 'E') {
                wrong.push(format!(
                    "{key} ({caps}): {words} of {pool}/{namespace}/{name}/{locator}: {verdict}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {pairs} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(pairs > 10_000 && refused > pairs / 3, "{pairs} pairs, {refused} refused");
}

#[test]
fn snapshots_are_allowed_to_whom_a_real_monitor_allows_them() {
    let rows = lines(VERDICTS, "row");
    let row = rows.iter().find(|row| row[4] == "snap-create").expect("a row for snapshots");
    for ((key, caps), verdict) in keys().iter().zip(row[5].chars()) {
        assert_eq!(caps.allow_snapshots("a"), verdict == '.', "{key}: {caps}");
    }
}

/// A verdict that is said to hold for all objects does, also beside grants for some of them.
#[test]
fn a_verdict_for_all_objects_holds_for_all() {
    let mut held = 0;
    for (key, caps) in keys() {
        for words in ["1201", "2201", "1202 2201"] {
            let (need, tags) = (need(words).unwrap(), tags("a"));
            let about = |object| Target { pool: "a", namespace: b"", object, tags: &tags, client: None };
            let names: [&[u8]; 4] = [b"obj", b"pre_obj", b"rbd_info", b""];
            let verdicts = names.map(|name| caps.verdict(&about(name), &need));
            if verdicts.contains(&Verdict::AllowedForAll) {
                held += 1;
                assert!(!verdicts.contains(&Verdict::Refused), "{key}: {words}: {verdicts:?}");
            }
        }
    }
    assert!(held > 20);
}

#[test]
fn every_verdict_is_that_of_a_real_monitor() {
    let (mut pairs, mut refused, mut wrong) = (0, 0, Vec::new());
    for row in lines(MON_VERDICTS, "row") {
        let [service, mode, command, words, verdicts] = row[..] else { panic!("{row:?}") };
        for (key, verdict) in lines(MON_VERDICTS, "key").iter().zip(verdicts.chars()) {
            let [entity, text] = key[..] else { panic!("{key:?}") };
            let words = words.replace("ENTITY", entity);
            let args = words.split(' ').filter_map(|word| word.split_once('='));
            let args: Args = args.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let has = |letter| mode.contains(letter);
            let request = MonRequest {
                entity,
                service,
                command,
                args: &args,
                read: has('r'),
                write: has('w'),
                execute: has('x'),
                client: "127.0.0.1".parse().ok(),
            };
            pairs += 1;
            refused += usize::from(verdict == 'E');
            if MonCaps::parse(text).expect(text).allow(&request) == (verdict == 'E') {
                wrong.push(format!("{text}: {service} {mode} {command} {words}: {verdict}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {pairs} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(pairs > 1000 && refused > pairs / 3, "{pairs} pairs, {refused} refused");
}

#[test]
fn the_same_texts_can_be_parsed() {
    let mut wrong = Vec::new();
    let of = |kind| lines(TEXTS, kind).into_iter().map(move |row| (kind, row));
    let all: Vec<_> = of("osd").chain(of("mon")).collect();
    assert!(all.len() > 200);
    for (kind, row) in all {
        let text = unquoted(row[1]);
        let parsed = match kind {
            "osd" => OsdCaps::parse(&text).map(|caps| caps.to_string()),
            _ => MonCaps::parse(&text).map(|caps| caps.to_string()),
        };
        if parsed.is_ok() != (row[0] == "yes") {
            wrong.push(format!("{kind} {}: Ceph {}, here {parsed:?}", row[1], row[0]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A JSON string.
fn unquoted(json: &str) -> String {
    let mut chars = json.trim_matches('"').chars();
    if json.ends_with("\\\"\"") {
        chars = json[1..json.len() - 1].chars();
    }
    let mut text = String::new();
    while let Some(c) = chars.next() {
        text.push(match (c, chars.clone().next()) {
            ('\\', Some('u')) => {
                let code: String = chars.by_ref().skip(1).take(4).collect();
                char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap()
            }
            ('\\', Some(next)) => {
                chars.next();
                match next {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'f' => '\x0c',
                    other => other,
                }
            }
            _ => c,
        });
    }
    text
}
