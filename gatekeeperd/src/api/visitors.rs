//! Who is connected. Every process of this machine can connect, and only those with a token are known. Strangers must not
//! keep the others out: when all places are taken, the oldest stranger loses its place. Neither may one tenant: each has a
//! share of the places.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// The most connections at once, and those of one tenant.
pub const MOST: usize = 512;
const MOST_OF_TENANT: usize = 128;

#[derive(Default)]
pub struct Visitors(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The oldest first.
    strangers: VecDeque<Arc<Visitor>>,
    tenants: HashMap<String, usize>,
}

/// One connection.
#[derive(Default)]
pub struct Visitor {
    tenant: OnceLock<String>,
    leave: Notify,
}

/// A connection's place. Dropped with the connection.
pub struct Place {
    visitors: Arc<Visitors>,
    pub visitor: Arc<Visitor>,
}

/// What a request carries of its connection.
#[derive(Clone)]
pub struct Met(Arc<Place>);

impl Visitors {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(self: &Arc<Visitors>) -> Place {
        let visitor = Arc::<Visitor>::default();
        self.table().strangers.push_back(Arc::clone(&visitor));
        Place { visitors: Arc::clone(self), visitor }
    }

    /// Asks the stranger that has been here for the longest time to leave.
    pub fn make_room(&self) {
        if let Some(oldest) = self.table().strangers.pop_front() {
            oldest.leave.notify_one();
        }
    }
}

impl Visitor {
    /// Waits until the visitor has to leave.
    pub async fn leaves(&self) {
        self.leave.notified().await;
    }
}

impl Met {
    pub fn new(place: Place) -> Met {
        Met(Arc::new(place))
    }

    pub fn visitor(&self) -> &Visitor {
        &self.0.visitor
    }

    /// A request on this connection had a token of this tenant. False if the tenant has too many connections.
    pub fn known(&self, tenant: &str) -> bool {
        let Place { visitors, visitor } = &*self.0;
        let mut table = visitors.table();
        if visitor.tenant.get().is_some() {
            return true;
        }
        let count = table.tenants.entry(tenant.to_owned()).or_default();
        if *count >= MOST_OF_TENANT {
            return false;
        }
        *count += 1;
        table.strangers.retain(|stranger| !Arc::ptr_eq(stranger, visitor));
        visitor.tenant.set(tenant.to_owned()).is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.visitors.table();
        match self.visitor.tenant.get() {
            None => table.strangers.retain(|stranger| !Arc::ptr_eq(stranger, &self.visitor)),
            Some(tenant) => {
                if let Some(count) = table.tenants.get_mut(tenant) {
                    *count -= 1;
                    if *count == 0 {
                        table.tenants.remove(tenant);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room_and_those_with_a_token_stay() {
        let visitors = Arc::<Visitors>::default();
        let all: Vec<Met> = (0..4).map(|_| Met::new(visitors.enter())).collect();
        assert!(all[0].known("alice") && all[0].known("alice"));
        let left = || all.iter().map(|met| met.visitor()).map(|visitor| ready(visitor.leaves())).collect::<Vec<_>>();
        visitors.make_room();
        assert_eq!(left(), [false, true, false, false]);
        visitors.make_room();
        assert_eq!(left(), [false, false, true, false]);
        visitors.make_room();
        visitors.make_room();
        assert_eq!(left(), [false, false, false, true], "nobody is left who could");
        drop(all);
        assert!(visitors.table().tenants.is_empty() && visitors.table().strangers.is_empty());
    }

    #[test]
    fn a_tenant_has_its_share() {
        let visitors = Arc::<Visitors>::default();
        let mut all: Vec<Met> = (0..MOST_OF_TENANT).map(|_| Met::new(visitors.enter())).collect();
        assert!(all.iter().all(|met| met.known("alice")));
        let more = Met::new(visitors.enter());
        assert!(!more.known("alice"), "that is all");
        all.pop();
        assert!(more.known("alice") && Met::new(visitors.enter()).known("bob"));
    }

    fn ready(future: impl Future<Output = ()>) -> bool {
        futures_util::FutureExt::now_or_never(future).is_some()
    }
}
