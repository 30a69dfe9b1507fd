//! Studies: a plan file becomes points, the points are run in a fair order, the results are archived.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "studies run outside the reactors: they deal in files, processes and wall-clock limits"
)]

pub mod answer;
pub mod archive;
pub mod commands;
pub mod compare;
pub mod expand;
pub mod needs;
pub mod plan;
pub mod run;
pub mod scaling;

/// Items by their keys, keys and items in the order in which they first come.
pub fn grouped<K: PartialEq, V>(items: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, items)) => items.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}
