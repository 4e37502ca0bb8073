//! The scenarios against a real control plane.

use super::cluster;
use crate::scenarios::tests_of_scenarios;

tests_of_scenarios!(cluster::world());
