//! The log of the process: `tracing`, written to standard error by a thread of its own.

use std::{io, panic};

use thiserror::Error;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt as _};

use super::spool::{Lane, Spool, Target};
use super::{LogFormat, count_bug};

/// Why there is no log.
#[derive(Debug, Error)]
pub enum LogError {
    /// `--log` is not a level and not a list of filters.
    #[error("--log: {0}; give error, warn, info, debug, trace, or filters such as info,plimsoll_proxy::pool=debug")]
    Filter(#[from] ParseError),
    /// The writer thread could not be started.
    #[error("the log cannot be written: {0}")]
    Writer(#[from] io::Error),
    /// Something in this process logs already.
    #[error("a log is set up already")]
    Twice,
}

/// Keeps the log going; dropping it writes what is still in memory.
#[derive(Debug)]
pub struct Log {
    _spool: Spool,
}

/// Sets the process's log up, and counts panics from here on. Keep the result until the process ends.
///
/// # Errors
/// See [`LogError`].
pub fn start_log(filter: &str, format: LogFormat) -> Result<Log, LogError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let spool = Spool::open("log", Target::Stderr)?;
    let subscriber = Registry::default().with(layer(format, LaneWriter(spool.lane())).with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        count_bug();
        print(panicked);
    }));
    Ok(Log { _spool: spool })
}

fn layer(format: LogFormat, writer: LaneWriter) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    }
}

/// `tracing_subscriber` writes each event with one `write_all`, so a line is never torn.
#[derive(Clone, Debug)]
struct LaneWriter(Lane);

impl io::Write for LaneWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LaneWriter {
    type Writer = LaneWriter;

    fn make_writer(&'a self) -> LaneWriter {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_has_its_fields_at_the_top() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let spool = Spool::open("test", Target::File(path.clone())).unwrap();
        let subscriber = Registry::default().with(layer(LogFormat::Json, LaneWriter(spool.lane())));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(policy = "shop/fraud-api", "circuit");
        });
        drop(spool);
        let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!((&line["policy"], &line["message"]), (&"shop/fraud-api".into(), &"circuit".into()));
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn a_bad_filter_says_what_would_do() {
        let error = start_log("loud=very", LogFormat::Text).unwrap_err();
        assert!(error.to_string().contains("--log") && error.to_string().contains("debug"), "{error}");
    }
}
