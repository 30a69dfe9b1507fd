//! The configuration of a point: a flat object, axis → value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Values of a point's axes, by the names that plans use. An axis that is absent had the default of `carmine up` or `bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub BTreeMap<String, Value>);

impl Config {
    /// The value of an axis.
    pub fn get(&self, axis: &str) -> Option<&Value> {
        self.0.get(axis)
    }

    /// The value as a whole number; `None` if absent or not one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.get(axis)?.as_u64()
    }

    /// The value as a number; `None` if absent or not one.
    pub fn float(&self, axis: &str) -> Option<f64> {
        self.get(axis)?.as_f64()
    }

    /// The value if it is text.
    pub fn text(&self, axis: &str) -> Option<&str> {
        self.get(axis)?.as_str()
    }

    /// The value as people write it: text without quotes, numbers as they are.
    pub fn show(&self, axis: &str) -> Option<String> {
        self.get(axis).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    /// Sets the value of an axis.
    pub fn set(&mut self, axis: &str, value: impl Into<Value>) {
        self.0.insert(axis.to_owned(), value.into());
    }

    /// Axes on which two configurations differ, in alphabetical order.
    pub fn differences<'a>(&'a self, other: &'a Config) -> Vec<&'a str> {
        let mut axes: Vec<&str> = self
            .0
            .keys()
            .chain(other.0.keys())
            .map(String::as_str)
            .filter(|a| self.get(a) != other.get(a))
            .collect();
        axes.sort_unstable();
        axes.dedup();
        axes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_kind() {
        let mut config = Config::default();
        config.set("osds", 3);
        config.set("store", "blue");
        config.set("rate_iops", 12.5);
        assert_eq!((config.number("osds"), config.text("store")), (Some(3), Some("blue")));
        assert_eq!((config.float("rate_iops"), config.number("store")), (Some(12.5), None));
        assert_eq!((config.show("store"), config.show("osds")), (Some("blue".into()), Some("3".into())));
    }

    #[test]
    fn differences_name_axes_of_either_side() {
        let (mut a, mut b) = (Config::default(), Config::default());
        a.set("osds", 1);
        b.set("osds", 1);
        a.set("balance", "osd");
        b.set("balance", "socket");
        b.set("pgs", 32);
        assert_eq!(a.differences(&b), ["balance", "pgs"]);
    }
}
