//! The mailbox: a durable queue, with its native surface and the one that speaks SQS.

mod commands;
mod sqs;

use ron_api::{AuthSection, Keyring, MAILBOX_SURFACE, SQS_SURFACE, SqsAuth, SqsSection, Surface};
use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{GateSpec, QueueSpec, ServiceSpec};
use ron_log::{LogError, Survey};
use svc_mailbox::capabilities::CAPABILITIES;
use svc_mailbox::{LogLocation, Options, specs};

use super::{
    BrokenRule, Code, Config, DataDir, Failure, Finding, Installed, Pane, Parts, Routes, Section, Service,
    ServiceCommand,
};
use crate::config::{cpus, memory_bytes};

/// Name of the file with the access keys of SQS clients in the data directory.
const ACCESS_KEYS_FILE: &str = "sqs.keys";
/// Name of the folder of the log in the data directory.
const LOG_FOLDER: &str = "mailbox";

/// The mailbox as a service of the node.
pub struct Mailbox;

impl Service for Mailbox {
    fn spec(&self) -> &'static ServiceSpec {
        &specs::MAILBOX
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        specs::queues().collect()
    }

    fn gates(&self) -> &'static [&'static GateSpec] {
        static GATES: [&GateSpec; 1] = [&specs::MAILBOX_OPS];
        &GATES
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        svc_mailbox::METRICS
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] =
            &[Section::of::<Options>("mailbox"), Section::of::<SqsSection>("sqs"), Section::of::<AuthSection>("auth")];
        SECTIONS
    }

    fn broken_rules(&self, config: &Config) -> Vec<BrokenRule> {
        let is_open = config.section::<AuthSection>().sqs == SqsAuth::Off;
        let rule = || BrokenRule {
            code: Code::OpenPlane,
            key: "api.addr",
            relation: "is not a loopback address, but",
            other: "auth.sqs",
            advice: "allows loopback only; bind it to 127.0.0.1, or set `auth.sqs` to \"sigv4\" and make keys with \
                     `macronode sqs key create`",
        };
        (is_open && !config.api.addr.ip().is_loopback()).then(rule).into_iter().collect()
    }

    fn notes(&self, config: &Config) -> Vec<String> {
        let is_open = config.section::<AuthSection>().sqs == SqsAuth::Off && config.runs("http");
        let address = config.api.addr;
        let note = || {
            format!(
                "`auth.sqs` is off: whoever reaches {address} may do everything to every queue, without a signature"
            )
        };
        is_open.then(note).into_iter().collect()
    }

    fn examine(&self, config: &Config) -> Vec<Finding> {
        let folder = config.data_dir.join(LOG_FOLDER);
        let is_kept = !config.amnesia && folder.exists();
        is_kept.then(|| examine_log(ron_log::survey(&folder))).into_iter().collect()
    }

    fn descriptors(&self) -> u64 {
        ron_log::DESCRIPTORS_RESERVED as u64
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 2] = [&MAILBOX_SURFACE, &SQS_SURFACE];
        &SURFACES
    }

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![
            ServiceCommand::new(
                "mailbox",
                "Send and receive messages, look after topics, check the log",
                &["macronode mailbox send orders hello    send a message; then: mailbox recv orders --ack"],
                commands::mailbox,
            ),
            ServiceCommand::new(
                "sqs",
                "Look after the access keys of programs that speak SQS",
                &["macronode sqs key create               let programs in that speak SQS"],
                sqs::sqs,
            ),
        ]
    }

    fn panes(&self) -> Vec<Box<dyn Pane>> {
        commands::panes()
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let config = node.config.keep();
        let secret =
            node.data.key("mailbox").map_err(|error| Failure::new(Code::SigningKeyUnusable, error.to_string()))?;
        let location = node.data.path(LOG_FOLDER).map_or(LogLocation::Memory, LogLocation::Directory);
        let live = node.config.derive(|config| config.section::<Options>().live(cpus(), memory_bytes()));
        let ops_permits = config.value.permits_of(&specs::MAILBOX_OPS);
        let fixed = config.value.section::<Options>().fixed(location, secret, ops_permits);
        let auth = config.value.section::<AuthSection>();
        let options = config.value.section::<SqsSection>().options(auth, node.data.path(ACCESS_KEYS_FILE));
        let keyring = Keyring::open(options.keys_file.clone()).map_err(|error| unusable(node.data, &error))?;
        let handle = svc_mailbox::install(node.builder, fixed, live);
        let authority = node.authority.clone();
        let frames = ron_api::mailbox_frames(handle.clone(), authority.clone(), &node.builder.meter());
        let routes: Routes = Box::new(move |plane| {
            let plane = ron_api::mailbox_routes(plane, handle.clone(), authority.clone());
            ron_api::sqs_routes(plane, handle, authority, keyring, options)
        });
        Ok(Installed { routes, frames: vec![frames], peers: None })
    }
}

/// How many files the log has, which of them are lost, and how few descriptors they need.
fn examine_log(surveyed: Result<Survey, LogError>) -> Finding {
    let survey = match surveyed {
        Ok(survey) => survey,
        Err(error @ LogError::UnknownVersion { .. }) => {
            return Finding::fail("log", error.to_string(), "start the version that wrote it");
        }
        Err(error) => return Finding::warn("log", error.to_string(), "`macronode mailbox verify` says more"),
    };
    let Survey { segments, bytes, missing, cut } = survey;
    let (mib, descriptors) = (bytes >> 20, ron_log::DESCRIPTORS_RESERVED);
    let sizes = format!("{segments} segments, {mib} MiB; {descriptors} descriptors serve any number of them");
    if missing.is_empty() && cut.is_empty() {
        return Finding::ok("log", sizes);
    }
    let advice = "restore these files before the next start, or read what is lost with `macronode mailbox verify`";
    Finding::warn("log", format!("{sizes}; missing: {missing:?}, cut: {cut:?}"), advice)
}

fn unusable(data: &DataDir, error: &dyn std::fmt::Display) -> Failure {
    let folder = data.path("").unwrap_or_default();
    Failure::new(Code::DataDirUnusable, format!("data_dir = {}: {ACCESS_KEYS_FILE}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use ron_auth::{Authority, RootKey};
    use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
    use ron_transport::NodeKey;
    use toml::Table;

    use super::*;
    use crate::cli;
    use crate::config::{Sources, load};
    use crate::services::Ports;

    fn loaded(text: &str) -> Result<Config, String> {
        let flags: Table = text.parse().expect("the text of the test is TOML");
        load(&Sources { flags, ..Sources::default() }).map(|loaded| loaded.config).map_err(|errors| errors.to_string())
    }

    #[test]
    fn its_sections_are_read_from_every_layer() {
        let env =
            [("MACRO_SQS__ACCOUNT_ID", "000000000001"), ("MACRO_AUTH__SQS", "off"), ("MACRO_MAILBOX__RETENTION", "2h")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let sources = Sources {
            env,
            flags: "sqs.base_url = \"https://q.example:8443\"".parse().expect("TOML"),
            ..Sources::default()
        };
        let config = load(&sources).expect("valid").config;
        let sqs = config.section::<SqsSection>();
        assert_eq!(
            (sqs.account_id.as_str(), sqs.base_url.as_deref()),
            ("000000000001", Some("https://q.example:8443"))
        );
        assert_eq!(config.section::<AuthSection>().sqs, SqsAuth::Off);
        assert_eq!(config.section::<Options>().live(2, None).defaults.retention_ms, 7_200_000);
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (text, start) in [
            ("sqs.account_id = \"12345\"", "MN0005 `sqs.account_id` = \"12345\""),
            ("sqs.base_url = \"https://host/path\"", "MN0005 `sqs.base_url`"),
            ("auth.sqs = \"of\"", "MN0005 `auth.sqs` = \"of\""),
            ("facets.mailbox_ops = \"0xcpu\"", "MN0005 `facets.mailbox_ops`"),
            ("mailbox.retention = \"1ms\"", "MN0005 `mailbox.retention`"),
            ("mailbox.retenton = \"1s\"", "MN0003 unknown key `mailbox.retenton`"),
            (
                "auth.sqs = \"off\"\napi.addr = \"10.0.0.1:80\"",
                "MN0024 `api.addr` = \"10.0.0.1:80\" (flag --api) is not a loopback address, but `auth.sqs` = \"off\"",
            ),
        ] {
            let error = loaded(text).expect_err(text);
            assert!(error.starts_with(start), "{text}: {error}");
        }
        assert!(loaded("auth.sqs = \"off\"\napi.addr = \"[::1]:80\"").is_ok());
        assert!(loaded("sqs.base_url = \"http://127.0.0.1:8080/\"\nsqs.deleted_name_cooldown = \"0s\"").is_ok());
    }

    #[test]
    fn access_keys_that_cannot_be_read_are_found_before_anything_is_added_to_the_node() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::write(folder.path().join(ACCESS_KEYS_FILE), "{").expect("written");
        let data = DataDir::open(folder.path(), false).expect("usable");
        let config = Snapshot::new(load(&Sources::default()).expect("valid").config);
        let authority = Authority::new(RootKey::generate(), None, || 0);
        let (key, mut ports) = (NodeKey::generate().expect("a key"), Ports::default());
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let (data, config, authority, key) = (&data, &config, &authority, &key);
        let (oap_address, ports) = (None, &mut ports);
        let mut parts = Parts { builder: &mut builder, config, data, authority, key, oap_address, ports };
        let failure = Mailbox.install(&mut parts).err().expect("the keys cannot be read");
        assert_eq!(failure.code, Code::DataDirUnusable);
        // A node that does not require the mailbox shows it as failed, in its own place.
        builder.service(&specs::MAILBOX).task(specs::MAILBOX.tasks[0], 1, |_| std::future::ready(Ok(())));
        builder.build().expect("nothing of it was there");
    }

    #[test]
    fn an_open_surface_is_noted_as_long_as_it_is_open() {
        let notes = |text: &str| loaded(text).expect("valid").notes();
        assert!(notes("auth.sqs = \"off\"")[0].starts_with("`auth.sqs` is off: whoever reaches 127.0.0.1:8080"));
        assert!(notes("").is_empty());
        assert!(notes("auth.sqs = \"off\"\nservices = [\"mailbox\"]").is_empty(), "nobody can reach it");
    }

    #[test]
    fn the_log_is_told_with_its_losses() {
        let survey = Survey { segments: 3, bytes: 48 << 20, ..Survey::default() };
        let told = examine_log(Ok(survey.clone()));
        assert_eq!(told.finding, "3 segments, 48 MiB; 24 descriptors serve any number of them");
        let told = examine_log(Ok(Survey { missing: vec![2], cut: vec![3], ..survey }));
        assert!(told.advice.is_some() && told.finding.ends_with("; missing: [2], cut: [3]"), "{told:?}");
        let told = examine_log(Err(LogError::UnknownVersion { what: "the manifest".to_owned() }));
        assert_eq!(told.level, crate::doctor::Level::Fail);
    }

    #[test]
    fn every_command_parses() {
        for line in [
            "macronode mailbox send t hello --key k --group g --delay 5s --attr a=b --attr c=d",
            "macronode mailbox send t --lines --api 127.0.0.1:1 --token x",
            "macronode mailbox send t -",
            "macronode mailbox recv t --max 10 --wait 5s --visibility 30s --ack --json",
            "macronode mailbox tail t --ack",
            "macronode mailbox ack r1 r2",
            "macronode mailbox nack r1 --reason x --delay 1s",
            "macronode mailbox topics",
            "macronode mailbox topics --prefix a --json",
            "macronode mailbox topics list --json",
            "macronode mailbox topics create t --set visibility_ms=30s --set groups=fifo",
            "macronode mailbox topics set t paused=true max_attempts=3",
            "macronode mailbox topics delete t",
            "macronode mailbox stats",
            "macronode mailbox stats t --data-dir d",
            "macronode mailbox browse t --limit 5 --state ready --group g --contains x --attr k=v --cursor c",
            "macronode mailbox explain 01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "macronode mailbox redrive t --to u --contains-error boom --rate 5 --limit 9 --follow",
            "macronode mailbox redrive t --dry-run",
            "macronode mailbox redrive list",
            "macronode mailbox redrive pause 3 --json",
            "macronode mailbox verify --data-dir d",
            "macronode mailbox clock --json",
            "macronode mailbox clock confirm --data-dir d",
            "macronode sqs key create",
            "macronode sqs key create --note n --op send,recv --topic t --prefix p --quota 5 --expires 1h --json",
            "macronode sqs key list --json",
            "macronode sqs key revoke MNSQABC --data-dir d",
        ] {
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_ok(), "{line}");
        }
    }
}
