//! Listen addresses in Go's spelling, as upstream's `listen-address` takes them (contract CFG-50).

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use tokio::net::TcpListener;

/// A listen address that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{address:?} is not an address like \":8080\", \"127.0.0.1:8080\" or \"[::1]:8080\": {why}"
)]
pub struct AddressError {
    address: String,
    why: &'static str,
}

/// A host, none for all of the machine's addresses, and a port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listen<'a> {
    host: Option<&'a str>,
    port: u16,
}

/// Reads `[host]:port`.
pub(super) fn parse(address: &str) -> Result<Listen<'_>, AddressError> {
    let wrong = |why| AddressError {
        address: address.to_owned(),
        why,
    };
    let (host, port) = address
        .rsplit_once(':')
        .ok_or_else(|| wrong("there is no colon"))?;
    let port = port
        .parse()
        .map_err(|_| wrong("the port is not a number up to 65535"))?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .ok_or_else(|| wrong("a bracket is not closed"))?,
        None if host.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
        None => host,
    };
    Ok(Listen {
        host: Some(host).filter(|host| !host.is_empty()),
        port,
    })
}

/// Listens; on all addresses of both families where the machine has both.
pub(super) async fn bind(listen: Listen<'_>) -> std::io::Result<TcpListener> {
    let Listen { host, port } = listen;
    match host {
        Some(host) => TcpListener::bind((host, port)).await,
        None => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
            }
            other => other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfg_50_go_addresses_are_read() {
        for (address, host, port) in [
            (":8080", None, 8080),
            ("0.0.0.0:80", Some("0.0.0.0"), 80),
            ("127.0.0.1:0", Some("127.0.0.1"), 0),
            ("localhost:9090", Some("localhost"), 9090),
            ("[::1]:8080", Some("::1"), 8080),
            ("[::]:8080", Some("::"), 8080),
        ] {
            assert_eq!(parse(address), Ok(Listen { host, port }), "{address}");
        }
    }

    #[test]
    fn cfg_50_other_addresses_are_refused() {
        for address in [
            "",
            "8080",
            ":",
            ":http",
            ":70000",
            "::1:8080",
            "[::1:8080",
            "1.2.3.4",
        ] {
            assert!(parse(address).is_err(), "{address}");
        }
    }

    #[tokio::test]
    async fn every_address_means_both_families() {
        let listener = bind(parse(":0").unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connected = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        assert!(connected.is_ok(), "{connected:?}");
    }
}
