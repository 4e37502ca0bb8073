//! Upstream's command line (contract CFG-50 to CFG-54): flags without a command, in the manner of Go, with
//! one dash or two. A DaemonSet that passes them keeps working when its image is swapped.

use std::ffi::{OsStr, OsString};

use clap::ValueEnum;

use crate::config::GoDuration;

/// What becomes of one of upstream's flags.
#[derive(Clone, Copy)]
enum Meaning {
    /// We have it too.
    Same,
    /// klog's verbosity.
    Verbosity,
    /// A period of upstream's polling.
    Period,
    /// klog's, with a value.
    Log,
    /// klog's, a switch, which takes a value only behind `=`.
    LogSwitch,
}

const FLAGS: [(&str, Meaning); 19] = [
    ("listen-address", Meaning::Same),
    ("metrics-path", Meaning::Same),
    ("discovery-period", Meaning::Period),
    ("config-sync-period", Meaning::Period),
    ("v", Meaning::Verbosity),
    ("vmodule", Meaning::Log),
    ("logtostderr", Meaning::LogSwitch),
    ("alsologtostderr", Meaning::LogSwitch),
    ("alsologtostderrthreshold", Meaning::Log),
    ("stderrthreshold", Meaning::Log),
    ("legacy_stderr_threshold_behavior", Meaning::LogSwitch),
    ("log_dir", Meaning::Log),
    ("log_file", Meaning::Log),
    ("log_file_max_size", Meaning::Log),
    ("log_backtrace_at", Meaning::Log),
    ("add_dir_header", Meaning::LogSwitch),
    ("skip_headers", Meaning::LogSwitch),
    ("skip_log_headers", Meaning::LogSwitch),
    ("one_output", Meaning::LogSwitch),
];

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Verbosity {
    /// What happens to volumes, and what is wrong.
    #[default]
    Info,
    /// Why, too.
    Debug,
    /// Everything.
    Trace,
}

impl Verbosity {
    /// What is nearest to a level of klog, where 4 is said to be for debugging.
    fn of_klog(level: i32) -> Self {
        match level {
            ..4 => Self::Info,
            4..8 => Self::Debug,
            8.. => Self::Trace,
        }
    }

    /// Its name, as in RUST_LOG.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A command line in our own form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Translated {
    /// The program, `run` and its flags.
    pub(super) args: Vec<OsString>,
    /// Flags that were taken and change nothing, and why.
    pub(super) idle: Vec<String>,
}

/// Whether the command line is upstream's: it has no command, for which our own is `run`.
pub(super) fn is_upstreams(args: &[OsString]) -> bool {
    let ours = ["-h", "--help", "-V", "--version"];
    match args.get(1) {
        None => true,
        Some(first) => {
            first.as_encoded_bytes().starts_with(b"-") && !ours.iter().any(|flag| first == flag)
        }
    }
}

/// Puts upstream's flags into our form; others pass as they are.
///
/// # Errors
/// A value that is missing or that the flag can't have.
pub(super) fn translate(args: &[OsString]) -> Result<Translated, String> {
    let program = args.first().cloned().unwrap_or_else(|| "provisor".into());
    let mut to = Translated {
        args: vec![program, "run".into()],
        idle: Vec::new(),
    };
    let mut rest = args.iter().skip(1);
    while let Some(arg) = rest.next() {
        let Some((name, meaning, value)) = arg.to_str().and_then(known) else {
            to.args.push(arg.clone());
            continue;
        };
        let mut value = || match value {
            Some(value) => Ok(value.to_owned()),
            None => {
                let next = rest.next().map(OsString::as_os_str).and_then(OsStr::to_str);
                next.map(str::to_owned)
                    .ok_or_else(|| format!("--{name} needs a value"))
            }
        };
        let idle = |why: &str| format!("--{name} changes nothing: {why}");
        match meaning {
            Meaning::Same => to.args.push(format!("--{name}={}", value()?).into()),
            Meaning::Verbosity => {
                let level = value()?;
                let level: i32 = level
                    .parse()
                    .map_err(|_| format!("--v={level}: not a whole number"))?;
                let level = Verbosity::of_klog(level).as_str();
                to.args.push(format!("--verbosity={level}").into());
            }
            Meaning::Period => {
                let period = value()?;
                period
                    .parse::<GoDuration>()
                    .map_err(|why| format!("--{name}: {why}"))?;
                to.idle.push(idle("nothing is polled"));
            }
            Meaning::Log => {
                value()?;
                to.idle
                    .push(idle("the log goes to stderr; see --verbosity"));
            }
            Meaning::LogSwitch => to.idle.push(idle("the log goes to stderr")),
        }
    }
    Ok(to)
}

/// One of upstream's flags, and its value if it is in the same word.
fn known(arg: &str) -> Option<(&'static str, Meaning, Option<&str>)> {
    let flag = arg.strip_prefix('-')?;
    let flag = flag.strip_prefix('-').unwrap_or(flag);
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (flag, None),
    };
    let (name, meaning) = FLAGS.iter().find(|(known, _)| *known == name)?;
    Some((name, *meaning, value))
}
