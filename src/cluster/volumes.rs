//! PersistentVolumes: the watch over this node's own, and the calls that read and write one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DeserializeGuard, Request, Resource};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::follow::{Change, Target, follow};
use super::{ApiError, ClusterEvent, MANAGER, VolumeEvent, call, patch};
use crate::pv::{Cleaning, LABEL_NODE, Pv, WirePv, node_label};
use crate::serve::{ApiMethod, Metrics, WatchKind};
use crate::volume::Identity;

/// PersistentVolumes decoded at a time; a larger page costs memory that the allocator keeps.
const PAGE: u32 = 50;

/// Sends what happens to the PersistentVolumes that carry the label of `node_name`, until `cancel`.
pub async fn watch_volumes(
    client: Client,
    node_name: &str,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let target = Target {
        api: Api::<DeserializeGuard<WirePv>>::all(client),
        kind: WatchKind::PersistentVolumes,
        label_selector: Some(selector(node_name)),
        field_selector: None,
        page_size: PAGE,
    };
    let news = |change| {
        Some(ClusterEvent::Volumes(match change {
            Change::Listed(all) => VolumeEvent::Synced(all),
            Change::Applied(pv) => VolumeEvent::Applied(Box::new(pv)),
            Change::Deleted { name, uid } => VolumeEvent::Deleted { name, uid },
        }))
    };
    let watch = Box::pin(follow(target, metrics, Pv::try_from, news, tx));
    cancel.run_until_cancelled(watch).await;
}

fn selector(node_name: &str) -> String {
    format!("{LABEL_NODE}={}", node_label(node_name))
}

/// The outcome of [`Volumes::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there now, and this is what it looks like.
    New(Box<Pv>),
    /// There was one of that name before: ours from a call whose answer got lost, or anybody's.
    Exists,
}

/// The calls on PersistentVolumes. Each is one attempt with a deadline.
#[derive(Clone)]
pub struct Volumes {
    client: Client,
    api: Api<WirePv>,
    metrics: Arc<Metrics>,
}

impl Volumes {
    /// Calls through `client`, counted in `metrics`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Api::all(client.clone()),
            client,
            metrics,
        }
    }

    /// The live object, or `None` if there is none of that name.
    ///
    /// # Errors
    /// Any [`ApiError`] but [`ApiError::NotFound`].
    pub async fn get(&self, name: &str) -> Result<Option<Pv>, ApiError> {
        let wire = call(&self.metrics, ApiMethod::Get, self.api.get_opt(name)).await?;
        wire.map(kept).transpose()
    }

    /// All PersistentVolumes that carry the label of `node_name`, or of the whole cluster. For
    /// one-shot commands; an object that can't be read is an error here.
    ///
    /// # Errors
    /// Any [`ApiError`]; [`ApiError::Expired`] when the list took too long.
    pub async fn list(&self, node_name: Option<&str>) -> Result<Vec<Pv>, ApiError> {
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = node_name.map(selector);
        let mut all = Vec::new();
        loop {
            let page = call(&self.metrics, ApiMethod::List, self.api.list(&params)).await?;
            for wire in page.items {
                all.push(kept(wire)?);
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// Creates `manifest`, never overwriting one that exists.
    ///
    /// # Errors
    /// Any [`ApiError`] but [`ApiError::AlreadyExists`].
    pub async fn create(&self, manifest: &PersistentVolume) -> Result<Created, ApiError> {
        let body = serde_json::to_vec(manifest)
            .map_err(|e| ApiError::Invalid(format!("it can't be written as JSON: {e}")))?;
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        // The full type goes out, the thin one comes back, which `Api` can't express.
        let request = Request::new(WirePv::url_path(&(), None))
            .create(&params, body)
            .map_err(|e| ApiError::Invalid(e.to_string()))?;
        let answer = self.client.request::<WirePv>(request);
        match call(&self.metrics, ApiMethod::Create, answer).await {
            Ok(wire) => Ok(Created::New(Box::new(kept(wire)?))),
            Err(ApiError::AlreadyExists(_)) => Ok(Created::Exists),
            Err(error) => Err(error),
        }
    }

    /// Writes the cleaning state on `pv`; without `keep_finalizer` our protection ends with it.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the object is not exactly `pv` any more, or any other.
    pub async fn mark(
        &self,
        pv: &Pv,
        cleaning: &Cleaning,
        keep_finalizer: bool,
    ) -> Result<Pv, ApiError> {
        self.patch(pv, patch::mark(pv, cleaning, keep_finalizer))
            .await
    }

    /// Makes `pv` one of ours: the label that the watch selects, the record, and our protection
    /// unless it is being deleted.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the object is not exactly `pv` any more, or any other.
    pub async fn adopt(
        &self,
        pv: &Pv,
        identity: &Identity,
        node_label: &str,
    ) -> Result<Pv, ApiError> {
        self.patch(pv, patch::adopt(pv, identity, node_label)).await
    }

    /// Puts the label on `pv` and nothing else: its node's daemon sees it from then on and does the
    /// rest.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the object is not exactly `pv` any more, or any other.
    pub async fn label(&self, pv: &Pv, node_label: &str) -> Result<Pv, ApiError> {
        self.patch(pv, patch::label(pv, node_label)).await
    }

    /// Ends our protection of `pv` and changes nothing else. That it is gone is as good.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the object is not exactly `pv` any more, or any other but
    /// [`ApiError::NotFound`].
    pub async fn let_go(&self, pv: &Pv) -> Result<(), ApiError> {
        match self.patch(pv, patch::let_go(pv)).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the very object that was decided on. That it is gone is as good.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the object has another UID or version, or any other but
    /// [`ApiError::NotFound`].
    pub async fn delete(
        &self,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), ApiError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        });
        let request = self.api.delete(name, &params);
        match call(&self.metrics, ApiMethod::Delete, request).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn patch(&self, pv: &Pv, body: Value) -> Result<Pv, ApiError> {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = Patch::Merge(body);
        let request = self.api.patch(&pv.name, &params, &body);
        kept(call(&self.metrics, ApiMethod::Patch, request).await?)
    }
}

fn kept(wire: WirePv) -> Result<Pv, ApiError> {
    wire.try_into()
        .map_err(|e: crate::pv::MalformedPv| ApiError::Unreadable(e.to_string()))
}
