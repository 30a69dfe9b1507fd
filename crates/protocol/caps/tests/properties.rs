//! No text makes the parsers panic, and what they print means the same.

use carmine_caps::{MonCaps, OsdCaps};
use proptest::prelude::*;

/// Texts of words that the grammars have, put together at random.
fn texts() -> impl Strategy<Value = String> {
    let words = [
        "allow",
        "profile",
        "service",
        "command",
        "with",
        "prefix",
        "regex",
        "fsname",
        "pool",
        "namespace",
        "tag",
        "object_prefix",
        "network",
        "class",
        "class-read",
        "class-write",
        "r",
        "w",
        "x",
        "rw",
        "rwx",
        "all",
        "*",
        "=",
        "\"",
        "'",
        ",",
        ";",
        "\n",
        "10.0.0.0/8",
        "rbd",
        "osd",
        "a b",
        "\"a b\"",
        "'\"'",
        "\"'\"",
        "\"all\"",
        "\"*\"",
        "é",
    ];
    let word = proptest::sample::select(words.to_vec());
    let gap = proptest::sample::select(vec![" ", " ", " ", " ", "  ", "", "=", "\t"]);
    prop::collection::vec((word, gap), 0..14)
        .prop_map(|all| all.into_iter().flat_map(|(word, gap)| [word, gap]).collect::<String>())
}

/// Texts that are nearly always caps.
fn caps(of_osd: bool) -> impl Strategy<Value = String> {
    let word = || "[a-zA-Z0-9_./-]{1,6}|\"[^\"]{1,6}\"|'[^']{1,6}'";
    let network = || "( network [0-9a-f.:/]{1,9})?";
    let grant = if of_osd {
        prop_oneof![
            (
                "allow (r|w|x|rw|rwx|\\*|class-read|rw class-write)",
                "|( pool=[a-z]{1,3}| namespace=(\"[^\"]{0,5}\"|[a-z]{1,4})\\*?)",
                network()
            )
                .prop_map(|(a, b, c)| format!("{a}{b}{c}")),
            (word(), word(), "(r|rw|\\*)", network())
                .prop_map(|(a, b, c, d)| format!("allow {c} tag {a} {b}={b}{d}")),
            (word(), word()).prop_map(|(a, b)| format!("allow pool={b} class {a}")),
            (word(), word(), word()).prop_map(|(a, b, c)| format!("allow object_prefix {c} class {a} {b}")),
            (word(), word(), network()).prop_map(|(a, b, c)| format!("profile {a} pool={b}{c}")),
        ]
        .boxed()
    } else {
        prop_oneof![
            ("(r|w|rx|rwx|\\*|all)", "( fsname[ =][a-z]{1,3})?", network())
                .prop_map(|(a, b, c)| format!("allow {a}{c}{b}")),
            (word(), "(r|wx|\\*)", network()).prop_map(|(a, b, c)| format!("allow service {a} {b}{c}")),
            (word(), word(), word(), network())
                .prop_map(|(a, b, c, d)| format!("allow command {a} with {b}={c} {c} prefix {b}{d}")),
            (word(), word(), network())
                .prop_map(|(a, b, c)| format!("allow command {a} with {b} regex {b}{c}")),
            (word(), network()).prop_map(|(a, b)| format!("allow profile {a}{b}")),
        ]
        .boxed()
    };
    prop::collection::vec(grant, 1..4).prop_map(|all| all.join(", "))
}

fn check_osd(text: &str) -> bool {
    let Ok(caps) = OsdCaps::parse(text) else { return false };
    let printed = caps.to_string();
    assert_eq!(OsdCaps::parse(&printed), Ok(caps), "{text:?} is printed as {printed:?}");
    true
}

fn check_mon(text: &str) -> bool {
    let Ok(caps) = MonCaps::parse(text) else { return false };
    let printed = caps.to_string();
    assert_eq!(MonCaps::parse(&printed), Ok(caps), "{text:?} is printed as {printed:?}");
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn words_at_random_are_read_or_refused(text in texts()) {
        check_osd(&text);
        check_mon(&text);
    }

    #[test]
    fn characters_at_random_are_read_or_refused(text in ".{0,60}") {
        check_osd(&text);
        check_mon(&text);
    }

    #[test]
    fn what_is_printed_means_the_same(text in caps(true)) {
        prop_assert!(check_osd(&text), "{text:?} cannot be parsed");
    }

    #[test]
    fn what_is_printed_for_a_monitor_means_the_same(text in caps(false)) {
        prop_assert!(check_mon(&text), "{text:?} cannot be parsed");
    }
}
