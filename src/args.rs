//! The command line as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::{DEFAULT_DIR, GoDuration};

mod upstream;

pub use upstream::Verbosity;

/// Offers a node's local disks as PersistentVolumes and wipes them when they are released.
#[derive(Clone, Debug, Parser)]
#[command(name = "provisor", version, about, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Reads a command line. One without a command is taken for upstream's, and for `run`.
    ///
    /// # Errors
    /// What is wrong with it, or the help that it asks for.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = args.into_iter().collect();
        if !upstream::is_upstreams(&args) {
            return Self::try_parse_from(args);
        }
        let translated = upstream::translate(&args)
            .map_err(|why| Self::command().error(ErrorKind::ValueValidation, why))?;
        let mut read = Self::try_parse_from(translated.args)?;
        if let Command::Run(run) = &mut read.command {
            run.idle_flags = translated.idle;
        }
        Ok(read)
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run as the daemon of one node. So does a command line of sig-storage-local-static-provisioner, which
    /// has no command.
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
    /// Address of /metrics, /healthz, /readyz and /status; empty for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub listen_address: String,
    /// Path of the metrics.
    #[arg(long, value_name = "PATH", default_value = "/metrics")]
    pub metrics_path: String,
    /// The API server is asked for the first time after some random part of this, so that the daemons of a
    /// large cluster do not come all at once.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = GoDuration::read_wait)]
    pub start_spread: Duration,
    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Which log lines there are, unless RUST_LOG says so.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub verbosity: Verbosity,
    /// Upstream's flags that change nothing, and why.
    #[arg(skip)]
    pub idle_flags: Vec<String>,
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
mod tests;
