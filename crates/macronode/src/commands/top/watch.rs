//! Looks at a node and at each of its panes, and keeps what was seen last.

use std::sync::Arc;

use super::node::{NodeClients, NodeSample, NodeView};
use super::pane::{Looked, Pane, PaneView};
use crate::errors::Failure;

/// Asks one node again and again.
pub struct Watcher {
    clients: NodeClients,
    panes: Vec<Box<dyn Pane>>,
}

/// Contents of the screen: the node as a whole and the panes of the services it runs.
#[derive(Clone, Default)]
pub struct TopView {
    /// Numbers of the node as a whole.
    pub node: NodeView,
    /// Reason why the numbers of the node are not fresh; none if they are.
    pub trouble: Option<String>,
    /// Panes in the order of the list of services.
    pub panes: Vec<ShownPane>,
}

/// One pane with its last good numbers.
#[derive(Clone)]
pub struct ShownPane {
    /// Name of the service.
    pub service: &'static str,
    /// Numbers of the last look that succeeded; none before the first.
    pub view: Option<Arc<dyn PaneView>>,
    /// Reason why the numbers are not fresh; none if they are.
    pub trouble: Option<String>,
}

/// One look: the node as a whole, and each pane of a service it runs.
pub struct Look {
    sample: NodeSample,
    panes: Vec<(&'static str, Looked)>,
}

impl Watcher {
    /// A watcher of one node with these panes.
    pub fn new(clients: NodeClients, panes: Vec<Box<dyn Pane>>) -> Watcher {
        Watcher { clients, panes }
    }

    /// The address that is asked.
    pub fn address(&self) -> &str {
        self.clients.address()
    }

    /// Asks about the node as a whole, then for each pane whose service it runs.
    pub async fn look(&mut self) -> Result<Look, Failure> {
        match self.clients.look().await {
            Ok(sample) => Ok(self.look_at_panes(sample).await),
            Err(failure) => {
                self.panes.iter_mut().for_each(|pane| pane.forget());
                Err(failure)
            }
        }
    }

    async fn look_at_panes(&mut self, sample: NodeSample) -> Look {
        let mut looks = Vec::new();
        for pane in &mut self.panes {
            if !sample.services.iter().any(|name| name == pane.service()) {
                continue;
            }
            let looked = pane.look(&mut self.clients, &sample).await;
            if looked.is_err() {
                pane.forget();
            }
            looks.push((pane.service(), looked));
        }
        Look { sample, panes: looks }
    }
}

impl Look {
    /// Turns a pane that failed into a failure of the whole look, for output that nobody watches.
    pub fn complete(self) -> Result<Look, Failure> {
        match self.panes.iter().find_map(|(_, looked)| looked.as_ref().err()) {
            Some(failure) => Err(failure.clone()),
            None => Ok(self),
        }
    }
}

impl TopView {
    /// Takes over a look. Numbers that could not be asked for again stay, beside the reason.
    pub fn take(&mut self, address: &str, looked: Result<Look, Failure>) {
        match looked {
            Ok(Look { sample, panes }) => {
                self.node = NodeView::of(address, &sample);
                self.trouble = None;
                self.panes = panes.into_iter().map(|(service, looked)| self.shown(service, looked)).collect();
            }
            Err(failure) => self.trouble = Some(failure.to_string()),
        }
    }

    fn shown(&self, service: &'static str, looked: Looked) -> ShownPane {
        match looked {
            Ok(view) => ShownPane { service, view: Some(view), trouble: None },
            Err(failure) => {
                let last = self.panes.iter().find(|pane| pane.service == service);
                let view = last.and_then(|pane| pane.view.clone());
                ShownPane { service, view, trouble: Some(failure.to_string()) }
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::Ordering;

    use super::super::node::tests::sample;
    use super::super::pane::tests::{RowsPane, RowsView};
    use super::*;
    use crate::cli::ApiArgs;
    use crate::errors::Code;

    /// A node with the panes of these services, ten rows in each.
    pub fn view(services: &[&'static str]) -> TopView {
        let pane = |service: &&'static str| {
            let view: Arc<dyn PaneView> = Arc::new(RowsView { service, rows: 10 });
            (*service, Ok(view))
        };
        let mut view = TopView::default();
        let panes = services.iter().map(pane).collect();
        view.take("here", Ok(Look { sample: sample(services), panes }));
        view
    }

    /// Clients of a node that does not answer.
    fn clients() -> NodeClients {
        NodeClients::find(Some(&"127.0.0.1:1".to_owned()), &ApiArgs::default()).expect("an address")
    }

    fn seen(view: &TopView) -> Vec<(&'static str, Option<String>, Option<&str>)> {
        let one = |pane: &ShownPane| pane.view.as_ref().map(|view| view.headline());
        view.panes.iter().map(|pane| (pane.service, one(pane), pane.trouble.as_deref())).collect()
    }

    #[tokio::test]
    async fn only_services_the_node_runs_have_a_pane() {
        let (alpha, _) = RowsPane::boxed("alpha");
        let (beta, _) = RowsPane::boxed("beta");
        let mut watcher = Watcher::new(clients(), vec![alpha, beta]);
        let mut view = TopView::default();
        for (services, expected) in [
            (&["http", "beta"][..], vec![("beta", Some("10 beta rows".to_owned()), None)]),
            (&["http"], vec![]),
            (
                &["beta", "alpha"],
                vec![
                    ("alpha", Some("10 alpha rows".to_owned()), None),
                    ("beta", Some("20 beta rows".to_owned()), None),
                ],
            ),
        ] {
            view.take("here", Ok(watcher.look_at_panes(sample(services)).await));
            assert_eq!(seen(&view), expected, "{services:?}");
            assert_eq!(view.node.state, "ready");
        }
    }

    #[tokio::test]
    async fn a_pane_in_trouble_keeps_its_numbers_and_leaves_the_others_alone() {
        let (alpha, alpha_forgot) = RowsPane::boxed("alpha");
        let (beta, beta_forgot) = RowsPane::boxed("beta");
        let mut watcher = Watcher::new(clients(), vec![alpha, beta]);
        let mut view = TopView::default();
        for services in [&["alpha"][..], &["alpha", "beta"]] {
            let look = watcher.look_at_panes(sample(services)).await.complete().expect("nothing failed");
            view.take("here", Ok(look));
        }
        view.take("here", Ok(watcher.look_at_panes(sample(&["alpha", "beta"])).await));
        let expected = [
            ("alpha", Some("20 alpha rows".to_owned()), Some("MN0017 gone")),
            ("beta", Some("20 beta rows".to_owned()), None),
        ];
        assert_eq!(seen(&view), expected);
        assert_eq!((alpha_forgot.load(Ordering::Relaxed), beta_forgot.load(Ordering::Relaxed)), (1, 0));
        let failed = watcher.look_at_panes(sample(&["beta"])).await.complete();
        assert_eq!(failed.err().map(|failure| failure.code), Some(Code::NoNode), "printed output is all or nothing");
    }

    #[tokio::test]
    async fn a_node_that_is_gone_keeps_the_last_numbers_and_starts_rates_anew() {
        let (alpha, forgot) = RowsPane::boxed("alpha");
        let mut watcher = Watcher::new(clients(), vec![alpha]);
        let mut view = TopView::default();
        view.take("here", Ok(watcher.look_at_panes(sample(&["alpha"])).await));
        let looked = watcher.look().await;
        assert_eq!((looked.is_err(), forgot.load(Ordering::Relaxed)), (true, 1));
        view.take("here", looked);
        assert!(view.trouble.as_ref().is_some_and(|trouble| trouble.starts_with("MN0017")), "{:?}", view.trouble);
        assert_eq!((view.panes.len(), view.node.queues.len()), (1, 3));
        view.take("here", Ok(watcher.look_at_panes(sample(&["alpha"])).await));
        assert_eq!(view.trouble, None);
    }
}
