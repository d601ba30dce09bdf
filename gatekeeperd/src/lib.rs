//! gatekeeperd gives tasks a browser: one confined Chromium per session, driven over its debugging pipe, with cookies
//! that an operator granted, and an audit row before every action.
//!
//! | room | purpose |
//! |---|---|
//! | [`cdp`] | Chromium's debugging protocol over two pipes |
//! | [`browser`] | one confined Chromium: open, act, close |
//! | [`recording`] | screenshots on disk: off, transient, audit |
//! | [`task`] | the loop of screenshot, model and action |
//! | [`store`] | the tables, in SQLite or PostgreSQL |
//! | [`vault`] | tokens, grants, and cookies encrypted at rest |
//! | [`session`] | opens, drives, limits, closes and reaps sessions |
//! | [`page`] | the files of the operator's page |
//! | [`api`] | HTTP and MCP |
//! | [`cli`] | the command line |
//!
//! A room uses only rooms above it in this table; `scripts/module-order` checks it.

// They panic when what they print cannot be written, and a panic ends the daemon with every session.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod browser;
pub mod cdp;
pub mod cli;
pub mod page;
pub mod recording;
pub mod session;
pub mod store;
pub mod task;
pub mod vault;
