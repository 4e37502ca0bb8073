//! The command line as typed.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::config::DEFAULT_DIR;

/// Offers a node's local disks as PersistentVolumes and wipes them when they are released.
#[derive(Clone, Debug, Parser)]
#[command(name = "provisor", version, about, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run as the daemon of one node.
    Run(RunArgs),
    /// Print what the daemon would do now, and do nothing.
    Plan(PlanArgs),
    /// Label the volumes that sig-storage-local-static-provisioner made in the whole cluster, so that
    /// each node's daemon takes them over. Safe to stop and to run again.
    Adopt(AdoptArgs),
    /// Look at a configuration without a cluster.
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `provisor config`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print everything that is wrong or odd, with its file, line and key. Fails if anything is not in
    /// force as written.
    Check {
        /// Directory with the mounted ConfigMap: one file a key.
        #[arg(value_name = "DIR", default_value = DEFAULT_DIR)]
        dir: PathBuf,
    },
    /// Print the JSON schema (draft 2020-12) of the ConfigMap's data.
    Schema,
}

/// Where the daemon is and what it is told.
#[derive(Clone, Debug, ClapArgs)]
pub struct NodeArgs {
    /// Directory with the mounted ConfigMap: one file a key.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    pub config_dir: PathBuf,
    /// Name of the Node object.
    #[arg(long, value_name = "NAME", env = "MY_NODE_NAME")]
    pub node_name: Option<String>,
}

/// `provisor run`
#[derive(Clone, Debug, ClapArgs)]
pub struct RunArgs {
    /// Where and what.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Namespace of the Pod, as upstream has it; Events name it.
    #[arg(
        long,
        value_name = "NAME",
        env = "MY_NAMESPACE",
        default_value = "default"
    )]
    pub namespace: String,
    /// Address of /metrics, /healthz, /readyz and /status; empty for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub listen_address: String,
    /// Path of the metrics.
    #[arg(long, value_name = "PATH", default_value = "/metrics")]
    pub metrics_path: String,
    /// How log lines look. RUST_LOG chooses which there are.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// `provisor plan`
#[derive(Clone, Debug, ClapArgs)]
pub struct PlanArgs {
    /// Where and what.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Ask no API server: take every StorageClass for existing and no volume for offered.
    #[arg(long)]
    pub offline: bool,
    /// How the steps are printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// `provisor adopt`
#[derive(Clone, Debug, ClapArgs)]
pub struct AdoptArgs {
    /// Say what would be labelled and label nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One line a step.
    Text,
    /// A JSON array.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn cfg_01_50_51_run_has_upstreams_defaults() {
        let Command::Run(run) = Args::parse_from(["provisor", "run"]).command else {
            panic!()
        };
        assert_eq!(run.listen_address, ":8080");
        assert_eq!(run.metrics_path, "/metrics");
        assert_eq!(
            run.node.config_dir.to_str(),
            Some("/etc/provisioner/config")
        );
    }
}
