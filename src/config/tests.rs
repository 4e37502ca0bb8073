//! Whole ConfigMaps in, classes and findings out: one table for each row of the contract.

use rstest::rstest;

use super::*;

mod classes;
mod examples;
mod properties;
mod render;
mod schema;
mod settle;
mod top;

fn values(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
    keys.iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
}

fn config(keys: &[(&str, &str)]) -> Config {
    parse(&values(keys))
}

/// The configuration with one class `fast` that has these further settings.
fn class(settings: &str) -> Config {
    config(&[("storageClassMap", &class_text(settings))])
}

fn class_text(settings: &str) -> String {
    format!("fast:\n  hostDir: /mnt/f\n  mountDir: /mnt/f\n{settings}")
}

/// That class, which is in force and without a finding.
fn fast(settings: &str) -> Class {
    let mut config = class(settings);
    assert_eq!(config.findings, [], "{settings}");
    config
        .classes
        .remove(&ClassName::new("fast"))
        .expect("it is in force")
}

fn of(config: &Config, severity: Severity) -> Vec<&str> {
    let found = config
        .findings
        .iter()
        .filter(|finding| finding.severity == severity);
    found.map(|finding| finding.key.as_str()).collect()
}

fn errors(config: &Config) -> Vec<&str> {
    of(config, Severity::Error)
}

fn warnings(config: &Config) -> Vec<&str> {
    of(config, Severity::Warning)
}

fn names(config: &Config) -> Vec<&str> {
    config.classes.keys().map(ClassName::as_str).collect()
}
