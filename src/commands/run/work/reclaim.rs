//! A reclaim, from the hold on the volume to the deletion of its PersistentVolume.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::mpsc;

use super::{CONFLICTS, Gauge, Outcome, Tools, Wiped, api};
use crate::clean::{self, Control, Live, Proof, Request};
use crate::cluster::ApiError;
use crate::commands::run::witness::NodeWitness;
use crate::config::Class;
use crate::plan::{Reclaim, Stage};
use crate::pv::{Cleaning, CleaningState, NodeFacts, Phase, Pv};
use crate::volume::{Reason, Refusal};

/// One reclaim: hold the volume, read the object live, record that the wipe begins, wipe, record that
/// it is proven and drop the finalizer, delete.
pub(super) struct Reclaimer {
    pub(super) tools: Arc<Tools>,
    pub(super) node: NodeFacts,
    pub(super) class: Class,
    pub(super) step: Reclaim,
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) progress: Arc<Gauge>,
}

impl Reclaimer {
    pub(super) async fn run(self) -> Result<Outcome, Refusal> {
        let (pv, wiped) = match self.step.stage {
            Stage::Delete => (self.live().await?, None),
            Stage::Wipe { resume_at } => {
                let (pv, proof) = self.wipe(resume_at).await?;
                let pv = self.record_proof(pv, &proof).await?;
                (pv, Some(wiped(&proof)))
            }
        };
        self.delete(pv).await?;
        Ok(Outcome::Reclaimed(wiped))
    }

    /// Hold, read, permit, record, wipe, in this order: each step makes the next one safe.
    async fn wipe(&self, resume_at: u64) -> Result<(Pv, Proof), Refusal> {
        let request = self.request();
        let held = blocking(move || clean::hold(request, &NodeWitness)).await?;
        let read_at = Instant::now();
        let pv = self.live().await?;
        let live = Live {
            pv: Some(pv.clone()),
            read_at,
        };
        let permit = blocking(move || held.permit(&live, &NodeWitness, Instant::now())).await?;
        let mut pv = self
            .mark(pv, CleaningState::Started, String::new(), resume_at)
            .await?;

        let (checkpoints_tx, mut checkpoints) = mpsc::unbounded_channel();
        let (cancel, gauge) = (Arc::clone(&self.cancel), Arc::clone(&self.progress));
        let cleaner = self.class.cleaner.clone();
        let wiping = blocking(move || {
            let control = Control {
                cancel: &cancel,
                progress: &|progress| gauge.set(progress),
                checkpoint: &|done_bytes| {
                    // Without a listener the wipe goes on, only without checkpoints.
                    let _ = checkpoints_tx.send(done_bytes);
                },
            };
            clean::wipe(permit, &cleaner, resume_at, &control)
        });
        tokio::pin!(wiping);
        loop {
            tokio::select! {
                // Cancel-safe: a checkpoint that is not taken stays in the channel.
                Some(done_bytes) = checkpoints.recv() => {
                    let started = CleaningState::Started;
                    // A checkpoint that can't be written costs a later process time, nothing else.
                    if let Ok(marked) = self.mark(pv.clone(), started, String::new(), done_bytes).await {
                        pv = marked;
                    }
                }
                proof = &mut wiping => return Ok((pv, proof?)),
            }
        }
    }

    fn request(&self) -> Request {
        Request {
            pv: self.step.pv.clone(),
            uid: self.step.uid.clone(),
            claim_uid: self.step.claim_uid.clone(),
            node: self.node.clone(),
            class: self.class.clone(),
            entry: self.step.entry.clone(),
            recorded: self.step.recorded.clone(),
        }
    }

    /// The object as the API server has it now, if it is still the one that was decided about.
    async fn live(&self) -> Result<Pv, Refusal> {
        let name = &self.step.pv;
        match self
            .tools
            .volumes
            .get(name)
            .await
            .map_err(|e| api("read", name, &e))?
        {
            None => Err(Refusal::new(Reason::PvGone, "the PersistentVolume is gone")),
            Some(pv) if pv.uid != self.step.uid => Err(Refusal::new(
                Reason::PvReplaced,
                "another PersistentVolume has its name now",
            )),
            Some(pv) if pv.phase != Phase::Released => Err(Refusal::new(
                Reason::NotReleased,
                format!("the PersistentVolume is {:?} now", pv.phase),
            )),
            Some(pv) if pv.claim_uid() != self.step.claim_uid.as_deref() => Err(Refusal::new(
                Reason::ClaimChanged,
                "the PersistentVolume has another claim now",
            )),
            Some(pv) => Ok(pv),
        }
    }

    /// Writes the cleaning state; on a conflict again over a fresh read.
    async fn mark(
        &self,
        mut pv: Pv,
        state: CleaningState,
        method: String,
        done_bytes: u64,
    ) -> Result<Pv, Refusal> {
        let cleaning = Cleaning {
            pv_uid: self.step.uid.clone(),
            claim_uid: self.step.claim_uid.clone(),
            state,
            method,
            done_bytes,
        };
        let keep_finalizer = state == CleaningState::Started;
        for _ in 0..CONFLICTS {
            match self
                .tools
                .volumes
                .mark(&pv, &cleaning, keep_finalizer)
                .await
            {
                Err(ApiError::Conflict(_)) => pv = self.live().await?,
                Err(error) => return Err(api("mark", &self.step.pv, &error)),
                Ok(pv) => return Ok(pv),
            }
        }
        Err(Refusal::new(
            Reason::ApiRefused,
            "somebody else keeps changing the PersistentVolume",
        ))
    }

    async fn record_proof(&self, pv: Pv, proof: &Proof) -> Result<Pv, Refusal> {
        self.mark(pv, CleaningState::Wiped, proof.method().to_owned(), 0)
            .await
    }

    /// Deletes the object, if it is still as it was when the proof was recorded.
    async fn delete(&self, mut pv: Pv) -> Result<(), Refusal> {
        for _ in 0..CONFLICTS {
            let wiped = pv
                .current_cleaning()
                .is_some_and(|c| c.state == CleaningState::Wiped);
            if !wiped {
                return Err(Refusal::new(
                    Reason::ClaimChanged,
                    "the proof of the wipe is gone",
                ));
            }
            match self
                .tools
                .volumes
                .delete(&pv.name, &pv.uid, &pv.resource_version)
                .await
            {
                Err(ApiError::Conflict(_)) => match self.live().await {
                    Err(refusal) if refusal.reason == Reason::PvGone => return Ok(()),
                    fresh => pv = fresh?,
                },
                Err(error) => return Err(api("delete", &pv.name, &error)),
                Ok(()) => return Ok(()),
            }
        }
        Err(Refusal::new(
            Reason::ApiRefused,
            "somebody else keeps changing the PersistentVolume",
        ))
    }
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::new(
            Reason::WipeFailed,
            "the worker thread ended early",
        )),
    }
}

fn wiped(proof: &Proof) -> Wiped {
    Wiped {
        method: proof.method().to_owned(),
        bytes: proof.bytes(),
        files: proof.files(),
        took: proof.duration(),
    }
}
