//! What is composed can be planned on.

use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::graph::PlannerOverrideContext;
use hive_router_query_planner::planner::Planner;
use hive_router_query_planner::planner::query_plan::QueryPlannerOptions;
use hive_router_query_planner::utils::cancellation::CancellationToken;
use hive_router_query_planner::utils::parsing::{safe_parse_operation, safe_parse_schema};
