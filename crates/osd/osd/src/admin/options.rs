//! `config get|set|unset` and `injectargs`: options of this OSD that can change while it runs.

use carmine_reactor::ShardId;
use serde_json::{Value, json};

use crate::options::Values;
use crate::shard::OsdShard;

/// Answers `config get`.
pub(super) fn get(osd: &OsdShard, question: &Value) -> Result<Value, String> {
    let name = named(question)?;
    let value = osd.options.borrow().get(&name)?;
    Ok(json!({ name: value }))
}

/// Answers `config set`.
pub(super) async fn set(osd: &OsdShard, question: &Value) -> Result<Value, String> {
    let value = words(&question["val"]);
    if value.is_empty() {
        return Err("the parameter 'val' is missing".to_owned());
    }
    let told = change(osd, [(named(question)?, value)].into()).await?;
    Ok(json!({ "success": told }))
}

/// Answers `config unset`.
pub(super) async fn unset(osd: &OsdShard, question: &Value) -> Result<Value, String> {
    let name = named(question)?;
    let value = osd.shard.call(ShardId(0), {
        let name = name.clone();
        move |first| async move { OsdShard::on(&first).map(|osd| osd.unset_own_option(&name)) }
    });
    let value = value.await.unwrap_or_else(|| osd.options.borrow().get(&name))?;
    Ok(json!({ "success": format!("{name} = '{value}' ") }))
}

/// Answers `injectargs`.
pub(super) async fn inject(osd: &OsdShard, question: &Value) -> Result<Value, String> {
    let values = parse(&words(&question["injected_args"]))?;
    change(osd, values).await.map(Value::String)
}

/// The option that a question names.
fn named(question: &Value) -> Result<String, String> {
    question["var"].as_str().map(by_underscores).ok_or_else(|| "the parameter 'var' is missing".to_owned())
}

/// Dashes stand for underscores.
fn by_underscores(name: &str) -> String {
    name.replace('-', "_")
}

/// A word, or the words of a list.
fn words(value: &Value) -> String {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let texts = list
        .iter()
        .filter_map(|word| word.as_str().map(str::to_owned).or(word.as_u64().map(|n| n.to_string())));
    texts.collect::<Vec<_>>().join(" ")
}

/// `--name value --other-name=value`
fn parse(text: &str) -> Result<Values, String> {
    let mut words = text.split_whitespace();
    let mut values = Values::new();
    while let Some(word) = words.next() {
        let option = word
            .strip_prefix("--")
            .ok_or_else(|| format!("'{word}' is no option: write --NAME VALUE or --NAME=VALUE"))?;
        let (name, value) = match option.split_once('=') {
            Some(pair) => pair,
            None => (option, words.next().ok_or_else(|| format!("the option --{option} has no value"))?),
        };
        values.insert(by_underscores(name), value.to_owned());
    }
    Ok(values)
}

/// Changes options on all shards; returns their new values.
async fn change(osd: &OsdShard, values: Values) -> Result<String, String> {
    let told = values.iter().map(|(name, value)| format!("{name} = '{value}' ")).collect();
    let taken = osd.shard.call(ShardId(0), move |first| async move {
        OsdShard::on(&first).map_or(Ok(()), |osd| osd.set_own_options(&values))
    });
    taken.await.map(|()| told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_as_ceph_does() {
        let values = parse("--osd_max_backfills 3 --osd-scrub-min-interval=7").unwrap();
        assert_eq!(values["osd_max_backfills"], "3");
        assert_eq!(values["osd_scrub_min_interval"], "7");
        assert!(parse("osd_max_backfills 3").is_err() && parse("--osd_max_backfills").is_err());
        assert_eq!(words(&json!(["--a", "b c"])), "--a b c");
        assert_eq!(
            (words(&json!("x")), words(&json!(3)), words(&Value::Null)),
            ("x".into(), "3".into(), String::new())
        );
    }
}
