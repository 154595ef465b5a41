//! What went wrong in TLS, in words for the person on call.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved};

use super::Offer;

/// Names of a certificate that a message shows: some hold hundreds.
const NAMES_SHOWN: usize = 5;

/// Why there is no session, or why it has ended. Names that the endpoint sent are escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The host that the caller addressed.
    #[error("the host of the call is neither a DNS name nor an IP address; set tls.serverName")]
    ServerName,
    /// Nobody we trust has signed it.
    #[error(
        "the endpoint's certificate is self-signed, or signed by an authority that is not trusted here; \
         name that authority's certificate in tls.caFile"
    )]
    UntrustedIssuer,
    /// The certificate is for other names.
    #[error("the endpoint's certificate is for {presented}, not for {expected}; is tls.serverName right?")]
    NameMismatch {
        /// The name that was asked for.
        expected: String,
        /// Those that the certificate holds.
        presented: String,
    },
    /// `notAfter` has passed.
    #[error("the endpoint's certificate expired on {0}")]
    Expired(String),
    /// `notBefore` is to come.
    #[error("the endpoint's certificate is not valid before {0}; is the clock of this machine right?")]
    NotYetValid(String),
    /// Anything else about the certificate.
    #[error("the endpoint's certificate cannot be accepted: {0}")]
    Certificate(String),
    /// We have none, or sent none.
    #[error("the endpoint wants a client certificate; set tls.certFile and tls.keyFile")]
    ClientCertificateRequired,
    /// It did not like ours.
    #[error("the endpoint does not accept our certificate ({0}); see tls.certFile")]
    ClientCertificateRefused(&'static str),
    /// TLS 1.2 and 1.3 are what we speak.
    #[error("the endpoint speaks neither TLS 1.2 nor TLS 1.3")]
    NoCommonVersion,
    /// The alert `handshake_failure` says no more than that, nor can we.
    #[error(
        "the endpoint refused the handshake: no version, cipher or key exchange in common, \
         or it wants a client certificate (tls.certFile, tls.keyFile)"
    )]
    HandshakeFailure,
    /// ALPN
    #[error("the endpoint speaks no protocol that was offered by ALPN ({})", .0.names().join(", "))]
    NoCommonProtocol(Offer),
    /// The first byte was not of TLS.
    #[error("the endpoint does not speak TLS on this port: its answer is plain text; is it the right port?")]
    NotTls,
    /// The alert `unrecognized_name`.
    #[error("the endpoint does not know the name that it was asked for; set tls.serverName")]
    UnrecognisedName,
    /// Before the session was made.
    #[error("the endpoint closed the connection in the middle of the TLS handshake")]
    ClosedInHandshake,
    /// After it was made, without the message that tells an end from a cut.
    #[error("the endpoint closed the connection without ending TLS in order (close_notify): what it sent may be cut")]
    Truncated,
    /// Any other alert.
    #[error("the endpoint ended TLS with the alert {0}")]
    Alert(String),
    /// It broke the protocol, or speaks it in a way that we do not.
    #[error("TLS with the endpoint failed: {0}")]
    Protocol(String),
    /// The connection under it.
    #[error("the connection failed in the middle of the TLS handshake: {0}")]
    Io(io::ErrorKind),
}

impl TlsError {
    /// What an error of reading or writing says about TLS, if it does.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the endpoint refuses who we are. With TLS 1.3 it says so after the handshake, in place of an answer; no call
    /// has been looked at by then, since without early data none is read before that.
    #[must_use]
    pub fn refuses_us(&self) -> bool {
        matches!(self, Self::ClientCertificateRequired | Self::ClientCertificateRefused(_))
    }

    /// From what a failed handshake gave. `identified`: we have a certificate to show.
    pub(super) fn of_handshake(error: &io::Error, offer: Offer, identified: bool) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol))
            | Some(Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol)) => {
                Self::NoCommonProtocol(offer)
            }
            Some(error) => Self::of_tls(error, identified),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::ClosedInHandshake,
            None => Self::Io(error.kind()),
        }
    }

    /// Puts words into an error of a session that was made.
    pub(super) fn explain(error: io::Error, identified: bool) -> io::Error {
        let kind = error.kind();
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(tls) => io::Error::new(kind, Self::of_tls(tls, identified)),
            None if kind == io::ErrorKind::UnexpectedEof => io::Error::new(kind, Self::Truncated),
            None => error,
        }
    }

    fn of_tls(error: &Error, identified: bool) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(alert) => Self::of_alert(*alert, identified),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion)
            | Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => Self::NoCommonVersion,
            other => Self::Protocol(other.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        let date = |time: &rustls::pki_types::UnixTime| {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            jiff::Timestamp::from_second(seconds).map_or_else(|_| "an unknown date".to_owned(), |date| date.to_string())
        };
        match error {
            CertificateError::UnknownIssuer => Self::UntrustedIssuer,
            CertificateError::NotValidForNameContext { expected, presented } => {
                Self::NameMismatch { expected: expected.to_str().into_owned(), presented: list(presented) }
            }
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(date(not_after)),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotYetValid(date(not_before)),
            CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => Self::Certificate(
                "it is that of an authority (CA:TRUE), which may sign others but serve nothing".to_owned(),
            ),
            other => Self::Certificate(other.to_string()),
        }
    }

    /// The alerts that a server sends about certificates are about ours (RFC 8446 6.2); without one, about its absence.
    fn of_alert(alert: AlertDescription, identified: bool) -> Self {
        let refused =
            |word| if identified { Self::ClientCertificateRefused(word) } else { Self::ClientCertificateRequired };
        match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => Self::ClientCertificateRequired,
            AlertDescription::BadCertificate => refused("bad_certificate"),
            AlertDescription::UnsupportedCertificate => refused("unsupported_certificate"),
            AlertDescription::CertificateRevoked => refused("certificate_revoked"),
            AlertDescription::CertificateExpired => refused("certificate_expired"),
            AlertDescription::CertificateUnknown => refused("certificate_unknown"),
            AlertDescription::UnknownCA => refused("unknown_ca"),
            AlertDescription::AccessDenied => refused("access_denied"),
            AlertDescription::ProtocolVersion => Self::NoCommonVersion,
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => Self::HandshakeFailure,
            AlertDescription::UnrecognisedName => Self::UnrecognisedName,
            other => Self::Alert(format!("{other:?}")),
        }
    }
}

/// `a.test, b.test and 3 more`
fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "no name at all".to_owned();
    }
    let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| plain(name)).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The library gives names as `DnsName("a.test")` and `IpAddress(10.0.0.1)`; of what else it may give, all is shown.
fn plain(name: &str) -> String {
    let within = |start, end| name.strip_prefix(start)?.strip_suffix(end);
    let name = within("DnsName(\"", "\")").or_else(|| within("IpAddress(", ")")).unwrap_or(name);
    name.escape_debug().to_string()
}
