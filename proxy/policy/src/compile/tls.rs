//! TLS to the endpoints.

use crate::field::{At, Optional};
use crate::model::Tls;
use crate::report::{Problem, Reader};
use crate::source::Provenance;
use crate::spec;
use crate::value::{SecretFile, TlsMode};

/// `None`: something is wrong with it; `Some(None)`: there is none.
pub(super) fn tls(reader: &mut Reader<'_>, written: &Optional<spec::Tls>) -> Option<Option<Tls>> {
    let Some(At { node, value: spec }) = written.written() else {
        return Some(None);
    };
    let alone = match (spec.cert_file.written(), spec.key_file.written()) {
        (Some(cert), None) => Some((cert.node, "this certificate has no key", "`keyFile`: its key")),
        (None, Some(key)) => {
            Some((key.node, "this key has no certificate", "`certFile`: its certificate, with its chain"))
        }
        _ => None,
    };
    if let Some((at, message, expected)) = alone {
        reader.consequence(*node, at, Problem::new(message).expected(expected));
    }
    let files = [&spec.ca_file, &spec.cert_file, &spec.key_file].map(|file| secret_file(reader, file));
    if alone.is_some() {
        return None;
    }
    let [ca_file, cert_file, key_file] = files;
    let tls = Tls {
        server_name: spec.server_name.value().map(|name| name.0),
        ca_file: ca_file?,
        cert_file: cert_file?,
        key_file: key_file?,
    };
    match spec.mode.written()?.value {
        TlsMode::Originate => Some(Some(tls)),
        TlsMode::Disabled => Some(None),
    }
}

/// Who pushes policy must not be able to read any file of the machine with it.
fn secret_file(reader: &mut Reader<'_>, written: &Optional<SecretFile>) -> Option<Option<String>> {
    let Some(At { node, value: SecretFile(name) }) = written.written() else {
        return Some(None);
    };
    if name.starts_with('/') && reader.tree.provenance(*node) != Provenance::CommandLine {
        let problem = Problem::new("only a policy file that the command line names may say where a file is");
        reader.error(*node, problem.expected("the name of a file below --secrets-dir, such as client.pem"));
        return None;
    }
    Some(Some(name.clone()))
}
