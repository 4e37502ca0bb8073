//! The command line, ours and upstream's.

use super::*;
use rstest::rstest;

fn read(args: &[&str]) -> Result<Args, clap::Error> {
    let words = std::iter::once("provisor").chain(args.iter().copied());
    Args::read(words.map(OsString::from))
}

fn run(args: &[&str]) -> RunArgs {
    match read(args).map(|args| args.command) {
        Ok(Command::Run(run)) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[rstest]
#[case::ours(&["run"])]
#[case::upstreams(&[])]
fn cfg_01_50_51_run_has_upstreams_defaults(#[case] args: &[&str]) {
    let run = run(args);
    assert_eq!(run.listen_address, ":8080");
    assert_eq!(run.metrics_path, "/metrics");
    assert_eq!(
        run.node.config_dir.to_str(),
        Some("/etc/provisioner/config")
    );
    assert_eq!(run.verbosity, Verbosity::Info);
    assert_eq!(run.idle_flags, [""; 0]);
}

#[rstest]
#[case::one_dash(&["-listen-address=:9", "-metrics-path=/m"])]
#[case::two_dashes(&["--listen-address=:9", "--metrics-path=/m"])]
#[case::two_words(&["-listen-address", ":9", "--metrics-path", "/m"])]
#[case::ours(&["run", "--listen-address=:9", "--metrics-path=/m"])]
fn cfg_50_51_address_and_path(#[case] args: &[&str]) {
    let run = run(args);
    assert_eq!(
        (run.listen_address.as_str(), run.metrics_path.as_str()),
        (":9", "/m")
    );
}

#[rstest]
#[case("0", Some(Duration::ZERO))]
#[case("1m30s", Some(Duration::from_secs(90)))]
#[case("-5s", None)]
#[case("5", None)]
fn a_spread_is_a_duration(#[case] text: &str, #[case] want: Option<Duration>) {
    let flag = format!("--start-spread={text}");
    let read = read(&["run", &flag]).map(|args| match args.command {
        Command::Run(run) => run.start_spread,
        other => panic!("{other:?}"),
    });
    assert_eq!(read.ok(), want);
}

#[rstest]
#[case("-discovery-period=10s", true)]
#[case("--discovery-period=1m0s", true)]
#[case("--config-sync-period=5s", true)]
#[case("--discovery-period=10", false)]
#[case("--config-sync-period=", false)]
#[case("--discovery-period", false)]
fn cfg_52_53_periods_are_checked_and_change_nothing(#[case] flag: &str, #[case] good: bool) {
    let read = read(&[flag]);
    if good {
        let idle = run(&[flag]).idle_flags;
        assert!(idle.len() == 1 && idle[0].contains("polled"), "{idle:?}");
    } else {
        let error = read.expect_err("it is refused").to_string();
        assert!(error.contains("-period"), "{error}");
    }
}

#[rstest]
#[case(&["-v=0"], Verbosity::Info)]
#[case(&["--v=3"], Verbosity::Info)]
#[case(&["-v", "4"], Verbosity::Debug)]
#[case(&["--v=8"], Verbosity::Trace)]
#[case(&["--v=100"], Verbosity::Trace)]
#[case(&["run", "--verbosity=debug"], Verbosity::Debug)]
fn cfg_54_verbosity(#[case] args: &[&str], #[case] want: Verbosity) {
    assert_eq!(run(args).verbosity, want);
}

#[test]
fn cfg_54_klogs_other_flags_are_taken() {
    let all = [
        "--vmodule=a=4",
        "--logtostderr",
        "--alsologtostderr=true",
        "-alsologtostderrthreshold",
        "2",
        "--stderrthreshold=INFO",
        "--legacy_stderr_threshold_behavior=false",
        "--log_dir=/x",
        "--log_file=/x/y",
        "--log_file_max_size=1",
        "--log_backtrace_at=a.go:1",
        "--add_dir_header",
        "--skip_headers",
        "--skip_log_headers",
        "--one_output",
    ];
    // A switch does not take the next word.
    let args: Vec<&str> = all.into_iter().chain(["--listen-address", ":9"]).collect();
    let run = run(&args);
    assert_eq!(run.idle_flags.len(), 14, "{:?}", run.idle_flags);
    assert_eq!(run.listen_address, ":9");
}

#[rstest]
#[case::not_a_number(&["--v=high"], "whole number")]
#[case::no_value(&["-v"], "needs a value")]
#[case::unknown(&["--no-such-flag"], "--no-such-flag")]
#[case::a_word(&["--v=2", "word"], "word")]
#[case::no_command(&["walk"], "walk")]
fn what_is_wrong_is_said(#[case] args: &[&str], #[case] want: &str) {
    let error = read(args).expect_err("it is refused").to_string();
    assert!(error.contains(want), "{error}");
}

#[rstest]
#[case("--help", ErrorKind::DisplayHelp)]
#[case("-h", ErrorKind::DisplayHelp)]
#[case("--version", ErrorKind::DisplayVersion)]
fn help_is_for_the_whole(#[case] flag: &str, #[case] want: ErrorKind) {
    assert_eq!(read(&[flag]).expect_err("it is no command").kind(), want);
}
