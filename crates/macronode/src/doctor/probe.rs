//! Tries what a start would do: listen, read TLS files, write to the data directory.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::config::Config;
use crate::errors::{Code, Failure};

/// The listeners of this configuration, by key.
pub fn listeners(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    let wanted = |key: &str| match key {
        "api.addr" => config.runs("http"),
        "oap.addr" => config.runs("oap"),
        _ => true,
    };
    config.addresses().into_iter().filter(|(key, _)| wanted(key)).collect()
}

/// Whether an address can be listened on.
pub fn bind(key: &str, address: SocketAddr) -> Result<(), Failure> {
    TcpListener::bind(address).map(drop).map_err(|error| {
        let holder = holder(address.port()).filter(|_| error.kind() == std::io::ErrorKind::AddrInUse);
        let holder = holder.map_or_else(String::new, |holder| format!("; held by {holder}"));
        Failure::new(Code::CannotBind, format!("cannot listen on {address} (`{key}`): {error}{holder}"))
    })
}

/// For each plane with TLS, whether its files can be used.
pub fn tls(config: &Config) -> Vec<(&'static str, Result<(), Failure>)> {
    let planes =
        [("api", &config.api.tls_cert, &config.api.tls_key), ("admin", &config.admin.tls_cert, &config.admin.tls_key)];
    let both = planes.into_iter().filter_map(|(plane, cert, key)| Some((plane, cert.as_ref()?, key.as_ref()?)));
    both.map(|(plane, cert, key)| (plane, tls_pair(plane, cert, key))).collect()
}

fn tls_pair(plane: &str, cert: &Path, key: &Path) -> Result<(), Failure> {
    let unusable = |name: &str, path: &Path, cause: &dyn std::fmt::Display| {
        Failure::new(Code::TlsUnusable, format!("`{plane}.{name}`: {}: {cause}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unusable("tls_cert", cert, &error))?;
    if chain.is_empty() {
        return Err(unusable("tls_cert", cert, &"no certificate in it"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("tls_key", key, &error))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, secret, &provider)
        .map(drop)
        .map_err(|error| unusable("tls_key", key, &format!("it does not fit the certificate: {error}")))
}

/// Whether the data directory, or the nearest directory above it that exists, can be written.
pub fn data_dir(path: &Path) -> Result<(), Failure> {
    ScratchFile::beside(path).map(drop).map_err(|error| unwritable(path, &error))
}

/// Failure for a data directory that cannot be used.
pub fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::DataDirUnusable, format!("cannot write to {}: {error}", path.display()))
}

/// A file that is gone with the value.
pub struct ScratchFile {
    /// The file, open for writing.
    pub file: fs::File,
    path: PathBuf,
}

impl ScratchFile {
    /// A new file in this directory, or in the nearest one above it that exists: where the directory would be made.
    pub fn beside(directory: &Path) -> std::io::Result<Self> {
        let above = directory.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
        let existing = above.into_iter().find(|path| path.exists()).unwrap_or_else(|| Path::new("."));
        let name = format!(".macronode-probe-{}-{}", std::process::id(), ron_kernel::clock::unix_millis());
        let path = existing.join(name);
        let file = fs::File::create_new(&path)?;
        Ok(ScratchFile { file, path })
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The process that listens on a port, as far as this user may see it.
fn holder(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| listening_inode(table, port))?;
    let target = PathBuf::from(format!("socket:[{inode}]"));
    let numbered = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().parse::<u32>().is_ok();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok).filter(numbered);
    let mut holders = processes.filter(|process| {
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().filter_map(Result::ok);
        files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|link| link == target))
    });
    let process = holders.next()?;
    let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
    Some(format!("{} (pid {})", name.trim(), process.file_name().to_string_lossy()))
}

/// The socket that listens on a port, from a table of the kernel: local address in column 2, state in 4, inode in 10.
fn listening_inode(table: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let text = fs::read_to_string(table).ok()?;
    let ending = format!(":{port:04X}");
    let mut rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() > 9 && row[1].ends_with(&ending) && row[3] == LISTEN)?;
    Some(row[9].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_its_holder() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("bound");
        let failure = bind("api.addr", address).expect_err("taken");
        assert_eq!(failure.code, Code::CannotBind);
        if cfg!(target_os = "linux") {
            let pid = format!("(pid {})", std::process::id());
            assert!(failure.message.ends_with(&pid), "{failure}");
        }
    }

    #[test]
    fn only_the_services_that_run_listen() {
        let config = Config { services: vec!["oap".to_owned()], ..Config::default() };
        let keys: Vec<&str> = listeners(&config).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["admin.addr", "oap.addr"]);
    }

    #[test]
    fn tls_files_that_are_not_there_are_named() {
        let mut config = Config::default();
        config.api.tls_cert = Some(PathBuf::from("/nowhere/cert.pem"));
        config.api.tls_key = Some(PathBuf::from("/nowhere/key.pem"));
        let results = tls(&config);
        assert_eq!(results.len(), 1);
        let failure = results[0].1.as_ref().expect_err("not there");
        assert!(failure.to_string().starts_with("MN0013 `api.tls_cert`: /nowhere/cert.pem: "), "{failure}");
    }
}
