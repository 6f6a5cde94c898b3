//! Providers that are asked for a chunk of what they say they have.

use std::sync::Arc;

use ron_store::{ContentId, PeerId, Record, Subject};
use svc_index::words::{RankedProvider, Resolution, ResolveOptions, Source};

use crate::world::{Behaviour, Setup, TENANT, World, answers, ms, new_key, provider, setup};

fn document() -> Vec<u8> {
    (0..5_000_u32).map(|at| (at % 253) as u8).collect()
}

/// A node that knows of providers of the document, in the order in which they rank before anybody is asked: the first
/// has the oldest name among equals.
fn with_providers(count: usize) -> (Setup, Vec<PeerId>, ContentId) {
    let mut setup = setup();
    setup.options.possession_probe = true;
    let content = ContentId::of_bytes(&document());
    let mut keys: Vec<_> = (0..count).map(|_| new_key()).collect();
    keys.sort_by_key(|key| PeerId::from(key.node_id()));
    let records = keys.iter().map(|key| Record::Provider(provider(content, key, 1))).collect();
    setup.script.peer(1, answers(10, records));
    let peers = keys.iter().map(|key| PeerId::from(key.node_id())).collect();
    (setup, peers, content)
}

fn verdicts(providers: &Arc<[RankedProvider]>, peers: &[PeerId]) -> Vec<f64> {
    let of = |peer: &PeerId| providers.iter().find(|provider| provider.record.peer == *peer).expect("it is there");
    peers.iter().map(|peer| of(peer).terms.possession).collect()
}

impl World {
    /// The remembered answer once the providers were asked.
    async fn probed(&self, content: ContentId, asked: usize) -> Resolution {
        let mut tries = 0;
        loop {
            let options = ResolveOptions::default();
            let answer = self.index.resolve(TENANT, Subject::Content(content), options).await.expect("an answer");
            let scrape = self.kernel.metrics().render();
            let ended = scrape.lines().filter_map(|line| line.strip_prefix("index_probes_total{"));
            let ended: usize = ended.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
            if ended == asked {
                // Ranked anew before the next turn of this task.
                tokio::time::sleep(ms(1)).await;
                return self.index.resolve(TENANT, Subject::Content(content), options).await.expect("an answer");
            }
            tries += 1;
            assert!(tries < 5_000, "{ended} of {asked} were asked; {answer:?}");
            tokio::time::sleep(ms(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_shows_the_chunk_rises_and_who_shows_another_sinks() {
    let (setup, peers, content) = with_providers(3);
    let mut forged = document();
    forged.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    setup.script.shows(peers[0], forged);
    setup.script.shows(peers[2], document());
    setup
        .run(|world| async move {
            let first = world.resolve(content).await;
            assert_eq!(first.took, ms(10), "the answer does not wait for proofs");
            assert_eq!(verdicts(&first.providers, &peers), [0.05; 3], "nobody was asked before it");
            let second = world.probed(content, 3).await;
            assert_eq!(second.source, Source::Cache, "and nothing was looked up again for it");
            assert_eq!(verdicts(&second.providers, &peers), [-1.0, 0.05, 0.10]);
            let order: Vec<PeerId> = second.providers.iter().map(|provider| provider.record.peer).collect();
            assert_eq!(order, [peers[2], peers[1], peers[0]], "the liar is last");
            // What is known is not asked again, also when the content is looked up anew.
            let fresh = ResolveOptions { fresh: true, ..ResolveOptions::default() };
            let third = world.resolve_with(content, fresh).await;
            assert_eq!(verdicts(&third.providers, &peers), [-1.0, 0.05, 0.10]);
            tokio::time::sleep(ms(2_000)).await;
            assert_eq!(world.script.proofs_asked(), 3);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_few_are_asked_for_a_while_and_nobody_unless_it_is_wanted() {
    let (setup, peers, content) = with_providers(20);
    // The best one never answers: that proves nothing, and holds up nothing.
    setup.script.set(peers[0], Behaviour::Silent);
    setup
        .run(|world| async move {
            world.resolve(content).await;
            let answer = world.probed(content, 3).await;
            assert!(verdicts(&answer.providers, &peers).iter().all(|term| *term == 0.05));
            assert_eq!(world.script.proofs_asked(), 3, "three of twenty");
        })
        .await;
    let (mut setup, _, content) = with_providers(3);
    setup.options.possession_probe = false;
    setup
        .run(|world| async move {
            world.resolve(content).await;
            tokio::time::sleep(ms(5_000)).await;
            assert_eq!(world.script.proofs_asked(), 0, "off unless the operator wants it");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn who_was_too_slow_once_is_asked_again_soon() {
    let (setup, peers, content) = with_providers(1);
    setup.script.shows(peers[0], document());
    setup.script.set(peers[0], Behaviour::Silent);
    setup
        .run(|world| async move {
            let fresh = ResolveOptions { fresh: true, ..ResolveOptions::default() };
            world.resolve(content).await;
            assert_eq!(verdicts(&world.probed(content, 1).await.providers, &peers), [0.05]);
            world.script.set(peers[0], answers(10, Vec::new()));
            world.resolve_with(content, fresh).await;
            tokio::time::sleep(ms(2_000)).await;
            assert_eq!(world.script.proofs_asked(), 1, "but not at once");
            tokio::time::sleep(ms(10_000)).await;
            world.resolve_with(content, fresh).await;
            assert_eq!(verdicts(&world.probed(content, 2).await.providers, &peers), [0.10]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn documents_are_proved_to_peers_unless_they_are_for_some_alone() {
    let mut setup = setup();
    setup.options.access = svc_index::config::Access::Public;
    setup
        .run(|world| async move {
            let id = world.index.publish_manifest(TENANT, document().into()).await.expect("room");
            let digest = id.blake3_digest().expect("a BLAKE3 id");
            let proof = world.index.possession(&digest, 77).expect("it is kept");
            assert!(proof.proves(&digest, 77));
            assert_eq!(world.index.possession(&[7; 32], 77), None);
            let mut live = world.index.live();
            live.access = svc_index::config::Access::Token;
            world.live.publish(live);
            assert_eq!(world.index.possession(&digest, 77), None);
        })
        .await;
}
