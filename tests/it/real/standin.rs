//! What the stand-in is tested by holds for a real API server too.

use super::cluster;
use crate::standin::failures;

#[tokio::test]
async fn the_real_server_passes_the_stand_ins_scenarios() {
    let mut access = cluster::world().access().await;
    // kube's own retries would take minutes over the refusals that are wanted here.
    access.default_retry = false;
    let client = kube::Client::try_from(access).expect("the kubeconfig is whole");
    let failed = failures(&client).await;
    assert!(
        failed.is_empty(),
        "these differ on the real server: {failed:?}"
    );
}
