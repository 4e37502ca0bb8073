//! Stands in for `provisor` where the image and the DaemonSet are tested and not the program: `standin run` answers every HTTP request on port
//! 8080 with what a container of that DaemonSet sees.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::{env, fs};

fn main() -> std::io::Result<()> {
    assert_eq!(env::args().nth(1).as_deref(), Some("run"), "the image's CMD or the DaemonSet's args");
    let listener = TcpListener::bind("0.0.0.0:8080")?;
    println!("listening");
    loop {
        let (mut stream, _) = listener.accept()?;
        let mut request = [0; 1024];
        let _ = stream.read(&mut request)?;
        let body = format!(
            "node={} host_pids={} config={:?} disks={:?}\n",
            env::var("MY_NODE_NAME").unwrap_or_default(),
            fs::read_to_string("/proc/1/comm").is_ok_and(|name| !name.starts_with("provisor")),
            fs::read_to_string("/etc/provisioner/config/storageClassMap").is_ok_and(|map| map.contains("fast-disks:")),
            fs::read_to_string("/proc/self/mounts")?.lines().filter(|line| line.contains("/mnt/fast-disks/")).count(),
        );
        // A probe that hangs up early is no reason to end.
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    }
}
