//! The daemon: sessions, grants, credentials and its interfaces, with a real browser and both stores.

mod clients;
mod grants;
mod http;
mod killed;
mod secrets;
mod stores;
mod support;
