//! Refusals as the API server words them: an HTTP code and a `Status` object.

use serde_json::{Value, json};

use super::resource::Resource;

/// A request that is refused.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The HTTP status code.
    pub(super) code: u16,
    /// The machine-readable reason; empty where the real server has none.
    reason: &'static str,
    message: String,
    details: Option<Value>,
    retry_after_secs: Option<u32>,
    /// The `metadata.continue` of an expired list.
    resume: Option<String>,
}

/// One field that is wrong, as a `Status` lists it under `details.causes`.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        Self::new(
            "FieldValueRequired",
            field,
            format!("Required value{colon}{why}"),
        )
    }

    pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<_> = allowed.iter().map(|word| format!("{word:?}")).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self {
            reason,
            field: field.into(),
            message,
        }
    }
}

impl Failure {
    /// A refusal with nothing but a code, a reason and words.
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let (details, retry_after_secs, resume) = (None, None, None);
        Self {
            code,
            reason,
            message: message.into(),
            details,
            retry_after_secs,
            resume,
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified_plural());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", message)
        }
    }

    pub(super) fn wrong_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self {
            details: Some(json!({})),
            ..Self::new(405, "MethodNotAllowed", message)
        }
    }

    pub(super) fn already_exists(resource: &Resource, name: &str, is_deleted: bool) -> Self {
        let prefix = if is_deleted {
            "object is being deleted: "
        } else {
            ""
        };
        let message = format!(
            "{prefix}{} {name:?} already exists",
            resource.qualified_plural()
        );
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(super) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let plural = resource.qualified_plural();
        let message = format!("Operation cannot be fulfilled on {plural} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    pub(super) fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; \
                   please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// A precondition of a DELETE that does not hold; the real server names the kind here.
    pub(super) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = resource.qualified_kind();
        let message = format!("Operation cannot be fulfilled on {kind} {name:?}: {why}");
        let details = json!({"name": name, "kind": resource.kind});
        Self {
            details: Some(details),
            ..Self::new(409, "Conflict", message)
        }
    }

    pub(super) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(
            &resource.qualified_kind(),
            resource.group,
            resource.kind,
            name,
            causes,
        )
    }

    /// Options in the query that do not fit together.
    pub(super) fn invalid_options(kind: &str, cause: &Cause) -> Self {
        let qualified = format!("{kind}.meta.k8s.io");
        let causes = std::slice::from_ref(cause);
        Self::invalid_kind(&qualified, "meta.k8s.io", kind, "", causes)
    }

    /// The patch can't be applied to the object.
    pub(super) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self {
            details: Some(json!({})),
            ..Self::new(422, "Invalid", message)
        }
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The client has seen a version that this server has not reached.
    pub(super) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = json!({
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        });
        let details = json!({"causes": [cause], "retryAfterSeconds": 1});
        Self {
            details: Some(details),
            ..Self::new(504, "Timeout", message)
        }
        .retry_after(1)
    }

    /// With a time to wait before the next try.
    pub(super) fn retry_after(self, secs: u32) -> Self {
        Self {
            retry_after_secs: Some(secs),
            ..self
        }
    }

    /// With a token by which an expired list can go on.
    pub(super) fn with_resume(self, token: String) -> Self {
        Self {
            resume: Some(token),
            ..self
        }
    }

    /// Seconds for the `Retry-After` header.
    pub(super) fn retry_after_secs(&self) -> Option<u32> {
        self.retry_after_secs
    }

    /// The `Status` object.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(resume) = &self.resume {
            status["metadata"]["continue"] = json!(resume);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        let mut details = json!({"name": name, "kind": resource.plural});
        if !resource.group.is_empty() {
            details["group"] = json!(resource.group);
        }
        Self {
            details: Some(details),
            ..self
        }
    }

    fn invalid_kind(
        qualified: &str,
        group: &str,
        kind: &str,
        name: &str,
        causes: &[Cause],
    ) -> Self {
        let words: Vec<_> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let words = match words.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<_> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        let mut details = json!({"kind": kind, "causes": causes});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        let message = format!("{qualified} {name:?} is invalid: {words}");
        Self {
            details: Some(details),
            ..Self::new(422, "Invalid", message)
        }
    }
}
