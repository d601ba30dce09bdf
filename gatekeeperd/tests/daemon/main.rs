//! The daemon: sessions, grants, credentials and its interfaces, with a real browser and both stores.

mod answers;
mod attacks;
mod clients;
mod crowds;
mod failing;
mod grants;
mod http;
mod killed;
mod leftovers;
mod opening;
mod refresh;
mod secrets;
mod stores;
mod support;
mod tasks;
mod unit;
mod watching;
