//! The scenarios against the stand-in.

use crate::scenarios::tests_of_scenarios;
use crate::support::site::World;

tests_of_scenarios!(World::stand_in());
