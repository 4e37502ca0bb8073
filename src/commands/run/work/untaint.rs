//! Taking the startup taint off the Node.

use std::sync::Arc;

use super::{CONFLICTS, Outcome, Tools};
use crate::cluster::ApiError;
use crate::plan::Untaint;
use crate::pv::NodeFacts;
use crate::volume::{Reason, Refusal};

/// Takes it off the very Node that was decided about. The watch may lag behind somebody else's change of
/// the taints, so a conflict is followed by a fresh read.
pub(super) async fn untaint(
    tools: Arc<Tools>,
    mut node: NodeFacts,
    step: Untaint,
) -> Result<Outcome, Refusal> {
    let mut conflict = String::new();
    for _ in 0..CONFLICTS {
        match tools.nodes.remove_taint(&node, &step.key).await {
            Ok(()) => return Ok(Outcome::Untainted),
            Err(ApiError::Conflict(why)) => conflict = why,
            Err(ApiError::NotFound(_)) => return Err(gone(&node.name)),
            Err(error) => return Err(refused(&node.name, &step.key, "patch", &error)),
        }
        let found = tools.nodes.find(&node.name).await;
        let found = found.map_err(|error| refused(&node.name, &step.key, "list", &error))?;
        node = found
            .filter(|now| now.uid == step.uid)
            .ok_or_else(|| gone(&node.name))?;
        if node.has_taint(&step.key) == Some(false) {
            return Ok(Outcome::Untainted);
        }
    }
    let error = ApiError::Conflict(conflict);
    Err(refused(&node.name, &step.key, "patch", &error))
}

/// The right to patch is for this alone and may well be missing, so that it is named.
fn refused(node: &str, key: &str, verb: &str, error: &ApiError) -> Refusal {
    let remedy = match error {
        ApiError::Forbidden(_) => {
            format!("; removeNodeNotReadyTaint needs the verb {verb} on nodes")
        }
        _ => String::new(),
    };
    Refusal::new(
        Reason::ApiRefused,
        format!("can't take the taint {key} off Node {node}: {error}{remedy}"),
    )
}

fn gone(node: &str) -> Refusal {
    Refusal::new(
        Reason::NodeUnknown,
        format!("Node {node} is gone, or another one by now"),
    )
}
