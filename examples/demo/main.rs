//! The whole life of a volume on this machine, printed as it happens; no cluster needed.
//!
//! The daemon is the real one, on a thread; the mounts and devices are real too. Only the API server
//! is the stand-in of the tests. Everything happens in namespaces of the demo's own, so that nothing
//! is seen outside and nothing stays: the program starts itself a second time within them, waits for
//! that, and removes the temporary directory. Run it by `cargo run --example demo`.

#[expect(
    dead_code,
    unused_imports,
    reason = "tests use more of the stand-in than the demo"
)]
#[path = "../../tests/it/support/apiserver.rs"]
mod apiserver;
mod disks;
mod life;
mod namespace;
mod node;
mod screen;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use provisor::error::Chain;
use tokio::signal::unix::{SignalKind, signal};

use namespace::Rights;

/// The whole demo takes seconds; whatever takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => outside(),
        [namespace::INSIDE, rights, dir] => inside(rights, Path::new(dir)).map(|()| 0),
        _ => Err(anyhow::anyhow!("the demo takes no arguments")),
    };
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            // Nothing is left to do when even this fails.
            let _ = writeln!(io::stderr(), "\nThe demo failed: {}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Makes the directory and the namespaces, and waits for the demo within them; its exit code.
fn outside() -> anyhow::Result<u8> {
    let dir = tempfile::Builder::new()
        .prefix("provisor-demo-")
        .tempdir()
        .context("can't make a temporary directory; TMPDIR may name another place for it")?;
    let rights = namespace::enter()?;
    let code = runtime()?.block_on(namespace::run_inside(rights, dir.path()))?;
    dir.close()
        .context("can't remove the temporary directory")?;
    Ok(code)
}

/// The demo itself.
fn inside(rights: &str, dir: &Path) -> anyhow::Result<()> {
    let rights = Rights::parse(rights)?;
    // Before any thread starts: a mount namespace belongs to a thread.
    namespace::settle(rights)?;
    log_if_asked();
    runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("can't listen for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("can't listen for signals")?;
        // Dropping the story undoes what it has made so far.
        let story = Box::pin(life::tell(rights, PathBuf::from(dir)));
        tokio::select! {
            result = tokio::time::timeout(LIMIT, story) => {
                result.with_context(|| format!("it did not end within {} s", LIMIT.as_secs()))?
            }
            _ = terminate.recv() => bail!("stopped by SIGTERM"),
            _ = interrupt.recv() => bail!("stopped by Ctrl-C"),
        }
    })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    built.context("can't start the runtime")
}

fn log_if_asked() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        // There is no other subscriber that this could be refused for.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .try_init();
    }
}
