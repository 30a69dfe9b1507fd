//! Coupled values: arithmetic over other axes.

use std::collections::BTreeMap;
use std::sync::Arc;

use exmex::{Express, FlatExVal, Val};

/// An expression over axes and figures of the machine, such as `100 * osds`, `jobs max 4` or `4 if osds > 2 else 1`.
#[derive(Clone, Debug)]
pub struct Expr {
    /// As it was written.
    pub(crate) text: String,
    /// Tens of kilobytes: shared by the points that need it.
    parsed: Arc<FlatExVal<i64, f64>>,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.text == other.text
    }
}

impl Expr {
    /// Parses it; the error says what is wrong in one line.
    pub fn parse(text: &str) -> Result<Expr, String> {
        // Operators that are not what they seem: an error inside a comparison silently makes it false.
        if let Some(word) = ["%", "&&", "||"].into_iter().find(|word| text.contains(word)) {
            return Err(format!(
                "there is no `{word}`: write conditions as a list, alternatives as several [[exclude]], and \
                 `osds / 2 > floor(osds / 2)` for odd"
            ));
        }
        let parsed = exmex::parse_val::<i64, f64>(text).map_err(|e| e.msg().to_owned())?;
        Ok(Expr { text: text.to_owned(), parsed: Arc::new(parsed) })
    }

    /// Names that it needs.
    pub fn names(&self) -> &[String] {
        self.parsed.var_names()
    }

    /// Its value as a number. `known` must have every name; the error names the one that is missing.
    pub fn number(&self, known: &BTreeMap<String, f64>) -> Result<f64, String> {
        let value = match self.eval(known)? {
            Val::Float(value) => value,
            Val::Int(value) => value as f64,
            other => return Err(format!("`{}` is {other:?}, not a number", self.text)),
        };
        if value.is_finite() { Ok(value) } else { Err(format!("`{}` is {value}", self.text)) }
    }

    /// Its value as a condition.
    pub fn holds(&self, known: &BTreeMap<String, f64>) -> Result<bool, String> {
        match self.eval(known)? {
            Val::Bool(value) => Ok(value),
            other => Err(format!(
                "`{}` is {other:?}; a condition compares, as in `osds * reactors > 8`",
                self.text
            )),
        }
    }

    fn eval(&self, known: &BTreeMap<String, f64>) -> Result<Val<i64, f64>, String> {
        let value = |name: &String| known.get(name).map(|v| Val::Float(*v)).ok_or_else(|| name.clone());
        let values: Result<Vec<_>, String> = self.names().iter().map(value).collect();
        let values = values
            .map_err(|name| format!("`{}`: no axis with a number is named `{name}` here", self.text))?;
        match self.parsed.eval(&values).map_err(|e| e.msg().to_owned())? {
            Val::Error(e) => Err(format!("`{}`: {}", self.text, e.msg())),
            value => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> BTreeMap<String, f64> {
        [("osds", 3.0), ("pool_size", 2.0), ("reactors", 4.0)].map(|(n, v)| (n.to_owned(), v)).into()
    }

    #[test]
    fn arithmetic_over_axes() {
        for (text, value) in [
            ("100 * osds", 300.0),
            ("100 * osds / pool_size", 150.0),
            ("osds", 3.0),
            ("7", 7.0),
            ("osds * reactors min 8", 8.0),
            ("2 if osds > 2 else 1", 2.0),
            ("2 if osds > 3 else 1", 1.0),
            ("ceil(osds / 2)", 2.0),
            ("0.5 * reactors", 2.0),
        ] {
            assert_eq!(Expr::parse(text).unwrap().number(&known()), Ok(value), "{text}");
        }
    }

    #[test]
    fn conditions() {
        assert_eq!(Expr::parse("osds * reactors > 8").unwrap().holds(&known()), Ok(true));
        assert_eq!(
            Expr::parse("osds / pool_size > floor(osds / pool_size)").unwrap().holds(&known()),
            Ok(true)
        );
        assert_eq!(Expr::parse("osds == 1").unwrap().holds(&known()), Ok(false));
        assert!(Expr::parse("osds").unwrap().holds(&known()).unwrap_err().contains("condition"));
    }

    #[test]
    fn what_can_not_be_computed_is_named() {
        assert!(Expr::parse("100 * (osds").is_err());
        for word in ["osds % 2 > 0", "osds > 1 && reactors > 1", "osds > 1 || reactors > 1"] {
            assert!(Expr::parse(word).unwrap_err().contains("floor"), "{word}");
        }
        assert!(Expr::parse("100 * disks").unwrap().number(&known()).unwrap_err().contains("`disks`"));
        assert!(Expr::parse("1.0 / 0.0").unwrap().number(&known()).is_err());
    }
}
