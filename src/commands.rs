//! One module a command; `run` is the only place where all parts of the house meet.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::args::{Args, Command, LogFormat, Verbosity};
use crate::error::Chain;

pub mod adopt;
pub mod config;
pub mod plan;
pub mod run;

/// How long a worker that is stuck in the kernel may keep the process from ending.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// What the kubelet shows in `kubectl describe pod` of a container that ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Runs the command and says how it ended.
pub fn main(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("can't start the runtime")),
    };
    let result = runtime.block_on(async {
        match args.command {
            Command::Run(args) => {
                log(args.log_format, args.verbosity);
                Box::pin(run::main(args)).await
            }
            Command::Config(command) => config::main(&command),
            Command::Adopt(args) => {
                log_quietly();
                Box::pin(adopt::main(args)).await
            }
            Command::Plan(args) => {
                log_quietly();
                Box::pin(plan::main(args)).await
            }
        }
    });
    // A probe of a dead filesystem can't be interrupted; it must not keep the process.
    runtime.shutdown_timeout(EXIT_GRACE);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let text = format!("error: {}\n", Chain(error.as_ref()));
    // Nothing is left to do if even this fails.
    let _ = io::stderr().write_all(text.as_bytes());
    if std::path::Path::new(TERMINATION_LOG).exists() {
        let _ = std::fs::write(TERMINATION_LOG, &text);
    }
    ExitCode::FAILURE
}

/// kube logs each failed connection and each cut stream by itself; we say it once, with what failed.
const OTHERS: &str = "kube_client=error,kube_client::client::builder=off";

fn filter(default: &str) -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default))
}

fn log(format: LogFormat, verbosity: Verbosity) {
    let ours = match verbosity {
        Verbosity::Info => "info".to_owned(),
        // What else speaks at these levels is of no use to anybody here.
        more => format!("info,provisor={}", more.as_str()),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&format!("{ours},{OTHERS}")))
        .with_target(false)
        .with_writer(io::stderr);
    // A second subscriber in one process (tests) is refused, and the first goes on.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

fn log_quietly() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter("warn,kube_client::client::builder=off"))
        .with_target(false)
        .with_writer(io::stderr)
        .with_ansi(false)
        .try_init();
}
