//! The DHT: a libp2p network that keeps signed records near their keys.
