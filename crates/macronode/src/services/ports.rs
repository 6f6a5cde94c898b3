//! What services of one node offer each other, by type: the binary joins them, so that none knows another's crate.

use std::any::{Any, TypeId};
use std::collections::HashMap;

/// At most one value of each type, put there by services in start order.
#[derive(Default)]
pub struct Ports(HashMap<TypeId, Box<dyn Any>>);

impl Ports {
    /// Offers a value to the services that are installed later; the last offer of a type counts.
    pub fn offer<T: Clone + 'static>(&mut self, port: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(port));
    }

    /// What a service installed earlier has offered; none if the node runs no such service.
    pub fn find<T: Clone + 'static>(&self) -> Option<T> {
        self.0.get(&TypeId::of::<T>()).and_then(|port| port.downcast_ref::<T>()).cloned()
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ports").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    trait Greets {
        fn greet(&self) -> &'static str;
    }

    struct English;

    impl Greets for English {
        fn greet(&self) -> &'static str {
            "hello"
        }
    }

    #[test]
    fn a_port_is_found_by_its_type_alone() {
        let mut ports = Ports::default();
        assert!(ports.find::<Arc<dyn Greets>>().is_none());
        ports.offer::<Arc<dyn Greets>>(Arc::new(English));
        assert_eq!(ports.find::<Arc<dyn Greets>>().map(|port| port.greet()), Some("hello"));
        assert!(ports.find::<Arc<English>>().is_none(), "the trait was offered, not what is behind it");
    }
}
