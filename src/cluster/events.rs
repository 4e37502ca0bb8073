//! Kubernetes Events: the words that an administrator sees with `kubectl describe`.
//!
//! The owner drops a note into a bounded queue and goes on; one task publishes. kube's `Recorder` is
//! not used: it merges events that differ only in their note, so that of two refused disks on a node
//! only the first would ever be named. Here the same note about the same object is published once in
//! ten minutes, and different notes are different Events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{ApiError, MANAGER, call};
use crate::serve::{ApiMethod, Metrics};
use crate::volume::ClassName;

mod recent;

use recent::Recent;

/// Events that may wait. A full queue means that the API server is slow; the rest is counted.
const QUEUE: usize = 256;
/// The API server's limit for a note, in bytes.
const NOTE_MAX: usize = 1024;
/// The API server's limit for the reason and the action, in characters.
const WORD_MAX: usize = 128;
/// Events of cluster-scoped objects must be in this namespace.
const NAMESPACE: &str = "default";
/// Between two Events, so that a node with hundreds of refusals does not flood the API server.
const PACE: Duration = Duration::from_millis(50);
/// What is still queued at the end is published within this time or not at all.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Whether somebody has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Good to know.
    Normal,
    /// Needs attention.
    Warning,
}

impl EventKind {
    /// The spelling of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An Event that is to be published.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Note {
    api_version: &'static str,
    object_kind: &'static str,
    name: String,
    uid: Option<String>,
    kind: EventKind,
    reason: String,
    text: String,
}

/// Takes Events without ever blocking.
#[derive(Clone)]
pub struct EventSink {
    queue: mpsc::Sender<Note>,
    recent: Arc<Mutex<Recent<Note>>>,
    metrics: Arc<Metrics>,
}

/// Publishes what an [`EventSink`] takes.
pub struct EventTask {
    queue: mpsc::Receiver<Note>,
    recent: Arc<Mutex<Recent<Note>>>,
    metrics: Arc<Metrics>,
    api: Api<Event>,
    instance: String,
}

impl EventSink {
    /// A sink and the task behind it. `instance` is the name of the Pod, or of the node.
    pub fn new(
        client: Client,
        instance: impl Into<String>,
        metrics: Arc<Metrics>,
    ) -> (Self, EventTask) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let recent = Arc::default();
        let sink = Self {
            queue: sender,
            recent: Arc::clone(&recent),
            metrics: Arc::clone(&metrics),
        };
        let task = EventTask {
            queue: receiver,
            recent,
            metrics,
            api: Api::namespaced(client, NAMESPACE),
            instance: instance.into(),
        };
        (sink, task)
    }

    /// An Event on a PersistentVolume.
    pub fn pv(&self, name: &str, uid: &str, kind: EventKind, reason: &str, note: &str) {
        self.take(
            "v1",
            "PersistentVolume",
            name,
            Some(uid),
            kind,
            reason,
            note,
        );
    }

    /// An Event on a Node.
    pub fn node(&self, name: &str, uid: &str, kind: EventKind, reason: &str, note: &str) {
        self.take("v1", "Node", name, Some(uid), kind, reason, note);
    }

    /// An Event on a StorageClass, which may not exist.
    pub fn class(&self, name: &ClassName, kind: EventKind, reason: &str, note: &str) {
        let api = "storage.k8s.io/v1";
        self.take(api, "StorageClass", name.as_str(), None, kind, reason, note);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the three callers are the interface; a struct here would be one more word"
    )]
    fn take(
        &self,
        api_version: &'static str,
        object_kind: &'static str,
        name: &str,
        uid: Option<&str>,
        kind: EventKind,
        reason: &str,
        text: &str,
    ) {
        let note = Note {
            api_version,
            object_kind,
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
            kind,
            reason: cut(reason, WORD_MAX).to_owned(),
            text: cut(text, NOTE_MAX).to_owned(),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.is_new(&note, Instant::now()) {
            return;
        }
        if let Err(full) = self.queue.try_send(note) {
            recent.forget(&full.into_inner());
            self.metrics.event_dropped();
        }
    }
}

impl EventTask {
    /// Publishes until `cancel`, then what is left in the queue for a moment longer.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut logged = None;
        cancel
            .run_until_cancelled(self.pump(&mut logged, PACE))
            .await;
        self.queue.close();
        let rest = self.pump(&mut logged, Duration::ZERO);
        if tokio::time::timeout(LAST_WORDS, rest).await.is_err() {
            tracing::warn!(left = self.queue.len(), "events were left unpublished");
        }
    }

    /// Publishes one note after the other until the queue is closed and empty.
    async fn pump(&mut self, logged: &mut Option<&'static str>, pace: Duration) {
        while let Some(note) = self.queue.recv().await {
            match self.publish(&note).await {
                Ok(()) => *logged = None,
                Err(error) => {
                    self.metrics.event_dropped();
                    // The owner says it again if it is still true.
                    let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
                    recent.forget(&note);
                    if *logged != Some(error.reason()) {
                        tracing::warn!(%error, reason = note.reason, "event not published");
                        *logged = Some(error.reason());
                    }
                }
            }
            tokio::time::sleep(pace).await;
        }
    }

    async fn publish(&self, note: &Note) -> Result<(), ApiError> {
        let event = event(note, &self.instance, SystemTime::now());
        let params = PostParams::default();
        let request = self.api.create(&params, &event);
        call(&self.metrics, ApiMethod::Event, request).await?;
        Ok(())
    }
}

/// The API object for `note`.
fn event(note: &Note, instance: &str, now: SystemTime) -> Event {
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Names are at most 253 bytes; the time keeps them apart.
    let name = format!("{}.{:x}", cut(&note.name, 220), since_epoch.as_nanos());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(
            Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH),
        )),
        type_: Some(note.kind.as_str().to_owned()),
        reason: Some(note.reason.clone()),
        // The API wants an action and nobody shows it.
        action: Some(note.reason.clone()),
        note: Some(note.text.clone()),
        reporting_controller: Some(MANAGER.to_owned()),
        reporting_instance: Some(cut(instance, WORD_MAX).to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(note.api_version.to_owned()),
            kind: Some(note.object_kind.to_owned()),
            name: Some(note.name.clone()),
            uid: note.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// The longest head of `text` of at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests;
