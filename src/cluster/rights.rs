//! Whether we have the rights that are needed late: a volume that can't be wiped because nobody granted a
//! verb should not be news on the day of its release. Rights to list and watch need no question: without
//! them nothing is seen, and each watch says so.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{ApiError, Backoff, ClusterEvent, call};
use crate::serve::{ApiMethod, Metrics};

/// Something that we may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb of the rule.
    pub verb: &'static str,
    /// The resource, of the core API group.
    pub resource: &'static str,
    /// What does not happen without it.
    pub without: &'static str,
}

/// What upstream's rights (contract RBAC-01) may lack, and what may be mistyped.
const NEEDED: [Right; 3] = [
    Right {
        verb: "create",
        resource: "persistentvolumes",
        without: "no volume is offered",
    },
    Right {
        verb: "patch",
        resource: "persistentvolumes",
        without: "no volume of sig-storage-local-static-provisioner is adopted and no released volume \
                  is wiped",
    },
    Right {
        verb: "delete",
        resource: "persistentvolumes",
        without: "no released volume is offered again",
    },
];

/// What is missing is asked for again after so long at first, and at last.
const AGAIN: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(60));

/// Sends which rights are missing, and again when that changes, until none is or `cancel`.
pub async fn watch_rights(
    client: Client,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let watch = async {
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let mut known = Vec::new();
        loop {
            let retry_after = match missing(&client, &metrics).await {
                Ok(missing) => {
                    let is_complete = missing.is_empty();
                    if missing != known {
                        known.clone_from(&missing);
                        if tx.send(ClusterEvent::Rights(missing)).await.is_err() {
                            return;
                        }
                    }
                    if is_complete {
                        return;
                    }
                    None
                }
                Err(error) if error.is_retryable() => error.retry_after(),
                // Who may not ask finds out by trying.
                Err(error) => {
                    debug!(%error, "can't ask for our own rights");
                    return;
                }
            };
            tokio::time::sleep(backoff.after(retry_after)).await;
        }
    };
    cancel.run_until_cancelled(Box::pin(watch)).await;
}

async fn missing(client: &Client, metrics: &Metrics) -> Result<Vec<Right>, ApiError> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for right in NEEDED {
        let params = PostParams::default();
        let question = question(right);
        let answer = call(metrics, ApiMethod::Review, api.create(&params, &question)).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(right);
        }
    }
    Ok(missing)
}

fn question(right: Right) -> SelfSubjectAccessReview {
    let attributes = ResourceAttributes {
        verb: Some(right.verb.to_owned()),
        resource: Some(right.resource.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    SelfSubjectAccessReview {
        spec,
        ..SelfSubjectAccessReview::default()
    }
}
