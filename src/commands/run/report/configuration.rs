//! Saying what is wrong in the configuration, and that another one is in force.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::Report;
use crate::config::{Config, Finding, Severity};

/// Reason of the Event about a configuration that is not in force as written.
const REFUSED: &str = "ConfigRefused";

impl Report {
    /// Another configuration is in force.
    pub(in crate::commands::run) fn reconfigured(&mut self, config: &Arc<Config>) {
        let old = std::mem::replace(&mut self.config, Arc::clone(config));
        let refused = config
            .findings
            .iter()
            .any(|f| f.severity == Severity::Error);
        self.metrics.reloaded(!refused);
        info!(
            classes = config.classes.len(),
            findings = config.findings.len(),
            "the configuration changed"
        );
        for name in config
            .classes
            .keys()
            .filter(|name| !old.classes.contains_key(*name))
        {
            info!(class = %name, "offering");
        }
        for name in old
            .classes
            .keys()
            .filter(|name| !config.classes.contains_key(*name))
        {
            info!(class = %name, "not offering any more; its volumes stay as they are");
        }
        self.findings(&old.findings);
    }

    /// Shows the findings of the configuration in force, and says those that are not among `known`.
    pub(super) fn findings(&mut self, known: &[Finding]) {
        let findings = &self.config.findings;
        self.metrics.observe_findings(findings);
        // A finding that only moved to another line is no news.
        let known: BTreeSet<_> = known.iter().map(|f| (&f.key, &f.text)).collect();
        for finding in findings
            .iter()
            .filter(|f| !known.contains(&(&f.key, &f.text)))
        {
            let (file, line, text) = (&finding.file, finding.line, &finding.text);
            if finding.severity == Severity::Warning {
                warn!(file, line, key = finding.key, "configuration: {text}");
                continue;
            }
            error!(file, line, key = finding.key, "configuration: {text}");
            self.say_of_node(REFUSED, &format!("ConfigMap: {finding}"));
        }
        self.show_findings();
    }

    /// What is wrong with the Pod comes before what is wrong with the configuration.
    pub(super) fn show_findings(&mut self) {
        let written = self.config.findings.iter().map(ToString::to_string);
        let lacks = self.lacks.iter().chain(&self.rights).cloned();
        self.base.findings = lacks.chain(written).collect();
    }
}
