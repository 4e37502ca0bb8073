use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

struct Running {
    address: SocketAddr,
    health: Arc<Health>,
    status: watch::Sender<Arc<Status>>,
    cancel: CancellationToken,
}

async fn start(metrics_path: &str) -> Running {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let (sender, receiver) = watch::channel(Arc::default());
    let running = Running {
        address,
        health: Arc::default(),
        status: sender,
        cancel: CancellationToken::new(),
    };
    let state = State {
        metrics: Arc::new(Metrics::new("test")),
        metrics_path: metrics_path.into(),
        health: Arc::clone(&running.health),
        status: receiver,
    };
    tokio::spawn(server.serve(state, running.cancel.clone()));
    running
}

impl Running {
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Status code and body.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let answer = self
            .raw(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    }
}

#[tokio::test]
async fn metrics_are_served_where_the_configuration_says() {
    let running = start("/m").await;
    let (code, body) = running.ask("GET", "/m").await;
    assert_eq!(code, 200);
    assert!(body.contains("# TYPE provisor_build_info gauge"));
    assert_eq!(running.ask("GET", "/metrics").await.0, 404);
}

#[tokio::test]
async fn http_02_ready_only_after_the_first_pass() {
    let running = start("/metrics").await;
    for path in ["/ready", "/readyz", "/ready/DiscovererReadyzCheck"] {
        let (code, body) = running.ask("GET", path).await;
        assert_eq!(code, 500);
        assert!(body.contains("PersistentVolumes"), "{body}");
    }
    for gate in [Gate::Volumes, Gate::Classes, Gate::Node, Gate::FirstPass] {
        assert_eq!(running.ask("GET", "/ready").await.0, 500);
        running.health.pass(gate);
    }
    for path in ["/ready", "/readyz", "/ready/DiscovererReadyzCheck"] {
        assert_eq!(running.ask("GET", path).await, (200, "ok".into()), "{path}");
    }
    let (_, body) = running.ask("GET", "/ready?verbose").await;
    assert!(body.starts_with("[+]DiscovererReadyzCheck ok\n"));
}

#[tokio::test]
async fn alive_while_the_loop_turns() {
    let running = start("/metrics").await;
    running.health.beat();
    for path in ["/healthz", "/livez"] {
        assert_eq!(running.ask("GET", path).await, (200, "ok".into()), "{path}");
    }
}

#[tokio::test]
async fn the_last_snapshot_is_shown() {
    let running = start("/metrics").await;
    let status = Status {
        node: "n7".into(),
        ..Status::default()
    };
    running.status.send_replace(Arc::new(status));
    let (code, body) = running.ask("GET", "/status").await;
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, value["node"].as_str()), (200, Some("n7")));
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let running = start("/metrics").await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(running.ask(method, "/status").await.0, 405, "{method}");
    }
    assert_eq!(running.ask("HEAD", "/healthz").await, (200, String::new()));
    for path in ["/", "/status/", "/../etc/passwd", "/ready/Other"] {
        assert_eq!(running.ask("GET", path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn nonsense_is_an_error_and_no_harm() {
    let running = start("/metrics").await;
    assert!(running.raw("nonsense\r\n\r\n").await.contains("400"));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * REQUEST_MAX));
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    // The server may hang up before it has read everything.
    let _ = stream.write_all(long.as_bytes()).await;
    drop(stream);
    assert_eq!(running.ask("GET", "/healthz").await.0, 200);
}

#[tokio::test]
async fn idle_clients_do_not_keep_others_out_for_long() {
    let running = start("/metrics").await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(running.address).await.unwrap());
    }
    let asked = tokio::time::timeout(2 * HEADER_DEADLINE, running.ask("GET", "/healthz"));
    assert_eq!(asked.await.unwrap().0, 200);
}

#[tokio::test]
async fn the_port_is_free_after_the_end() {
    let running = start("/metrics").await;
    running.cancel.cancel();
    let free = async {
        while Server::bind(&running.address.to_string()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), free)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let running = start("/metrics").await;
    let address = running.address.to_string();
    let error = Server::bind(&address).await.err().unwrap();
    assert!(error.to_string().contains(&address));
    assert!(Server::bind("8080").await.is_err());
}
