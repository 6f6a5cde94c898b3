//! Services that are not to be asked: what a plane looks at before it passes a request on.

use ron_policy::NodeView;
use ron_types::{Error, Kind};

/// The services that have never been ready, are in a crash loop without serving, or failed. Mostly there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages(Vec<&'static str>);

impl Outages {
    pub(crate) fn of(view: &NodeView) -> Outages {
        Outages(view.services.iter().filter(|service| service.is_out).map(|service| service.name).collect())
    }

    /// The refusal of a request to this service, if it is not to be asked. Why it is not is for its operator to read.
    pub fn check(&self, service: &str) -> Result<(), Error> {
        if !self.0.is_empty() && self.0.contains(&service) {
            return Err(Error::new(Kind::Degraded, format!("{service} is not available now; /readyz says why")));
        }
        Ok(())
    }
}
