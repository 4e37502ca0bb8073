//! The stand-in API server behaves like the real one, and misbehaves when it is told to.
//!
//! The scenarios take only a client. Each is a test against the stand-in, and `real::standin` runs all
//! of them against a real cluster. What only the stand-in can do is in `faults` and `handle`.

mod faults;
mod handle;
mod lists;
mod objects;
mod patches;
mod reclaim;
mod refusals;
mod scenario;
mod watches;

use crate::support::apiserver::ApiServer;

/// Makes a test of each scenario, and a list of all.
macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => {
        const SCENARIOS: &[(&str, scenario::Scenario)] = &[
            $($((stringify!($name), |client| Box::pin($module::$name(client))),)+)+
        ];

        mod standin {
            use super::{ApiServer, $($module),+};

            $($(
                #[tokio::test]
                async fn $name() {
                    let server = ApiServer::start();
                    $module::$name(server.client()).await;
                }
            )+)+
        }
    };
}

scenarios! {
    objects:
        a_created_volume_has_defaults
        a_name_is_taken_once
        generated_names_differ
        a_dry_run_stores_nothing
        quantities_are_canonical
        a_stale_update_conflicts
        an_unchanged_update_keeps_the_version
        a_deletion_checks_its_preconditions
        finalizers_hold_a_deleted_object
        an_object_without_finalizers_goes_at_once
        events_show_in_both_groups
        a_deleted_namespace_takes_its_claims_along;
    patches:
        a_spec_write_leaves_the_status
        a_status_write_leaves_the_spec
        a_merge_patch_checks_the_version
        a_json_patch_is_all_or_nothing
        a_json_patch_removes_what_it_has_tested
        a_strategic_patch_adds_finalizers
        an_applied_field_goes_when_it_is_not_applied;
    refusals:
        bad_volumes_are_refused
        bad_metadata_is_refused
        what_is_immutable_stays
        bad_bodies_are_refused
        bad_paths_are_refused
        bad_options_are_refused;
    lists:
        pages_show_one_version
        selectors_choose
        a_field_selector_knows_only_some_fields
        metadata_comes_alone_when_asked_for
        an_exact_list_shows_the_past
        a_version_of_the_future_times_out;
    watches:
        a_watch_goes_on_from_a_version
        a_selecting_watch_sees_objects_enter_and_leave
        a_streaming_list_ends_with_a_bookmark
        a_watch_ends_by_its_timeout
        a_watcher_of_metadata_follows_an_object
        streaming_options_must_fit;
    reclaim:
        a_volume_is_bound_and_released
        a_volume_without_provisioner_fails
        a_deleted_volume_stays_while_it_is_bound
        a_volume_whose_claim_is_cleared_is_available
        a_claim_of_a_vanished_volume_is_lost;
}

/// Runs all scenarios and names those that failed.
pub(crate) async fn failures(client: &kube::Client) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        // A task of its own, so that one failure does not hide the others.
        if tokio::spawn(scenario(client.clone())).await.is_err() {
            failed.push(*name);
        }
    }
    failed
}
