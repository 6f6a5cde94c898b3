//! What a person sees when the node starts: where it listens and what to try next.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::config::Config;

/// Prints the addresses and the next steps on stdout.
pub fn print(config: &Config, addresses: &BTreeMap<&'static str, SocketAddr>) {
    let scheme = |tls: bool| if tls { "https" } else { "http" };
    println!("macronode {} ({} workers)", env!("CARGO_PKG_VERSION"), config.worker_count());
    for (plane, address) in addresses {
        match *plane {
            "api" => println!("  api    {}://{address}", scheme(config.api.tls_cert.is_some())),
            "admin" => println!("  admin  {}://{address}", scheme(config.admin.tls_cert.is_some())),
            plane => println!("  {plane:<6} {address}"),
        }
    }
    if let Some(admin) = addresses.get("admin") {
        let admin_scheme = scheme(config.admin.tls_cert.is_some());
        println!("try next");
        println!("  open {admin_scheme}://{admin}/ in a browser       the live picture");
        println!("  curl {admin_scheme}://{admin}/readyz              is it ready, and if not, why");
        println!("  macronode topology                      tasks, queues, gates");
    }
    match (config.dev, addresses.get("api")) {
        (true, Some(api)) => println!("  curl '{}://{api}/v1/work?ms=100'", scheme(config.api.tls_cert.is_some())),
        _ => {
            println!("  macronode run --dev                     opens /v1/echo and /v1/work to try deadlines and Busy")
        }
    }
    println!("Ctrl-C drains; a second Ctrl-C leaves at once");
}
