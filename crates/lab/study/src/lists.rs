//! Lists whose equal items are put together, in the order in which they first occur.

use std::collections::BTreeSet;

/// Each item once.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(items.into_iter().map(|item| (item, ()))).into_iter().map(|(item, _)| item).collect()
}

/// Each item once, with how often it occurs.
pub fn tally<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<(T, usize)> {
    let groups = grouped(items.into_iter().map(|item| (item, ())));
    groups.into_iter().map(|(item, times)| (item, times.len())).collect()
}

/// The values of each key.
pub fn grouped<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(held, _)| *held == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// The words that are not empty, with `between` between them.
pub fn joined<'a>(words: impl IntoIterator<Item = &'a str>, between: &str) -> String {
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(between)
}

/// The words that are not empty, each once and in alphabetical order, with `between` between them.
pub fn sorted(words: impl IntoIterator<Item = String>, between: &str) -> String {
    joined(words.into_iter().collect::<BTreeSet<_>>().iter().map(String::as_str), between)
}

/// The least and the largest of the values; infinity and minus infinity of none.
pub fn span(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    values.into_iter().fold(none, |(low, high), value| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_gives_the_order() {
        assert_eq!(distinct(["b", "a", "b"]), ["b", "a"]);
        assert_eq!(tally(["b", "a", "b"]), [("b", 2), ("a", 1)]);
        assert_eq!(grouped([("b", 1), ("a", 2), ("b", 3)]), [("b", vec![1, 3]), ("a", vec![2])]);
        assert_eq!(sorted(["b", "", "a", "b"].map(str::to_owned), "; "), "a; b");
        assert_eq!(span([2.0, 1.0, 3.0]), (1.0, 3.0));
    }
}
