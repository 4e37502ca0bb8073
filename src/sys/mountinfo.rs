//! `/proc/*/mountinfo`, read as bytes: names need not be UTF-8, and one odd line must not hide the
//! others (proc_pid_mountinfo(5)).
