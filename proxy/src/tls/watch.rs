//! One thread that looks at the files of all originations, for as long as there are any.
//!
//! By looking and not by inotify: secrets are mounted, swapped by links and sometimes on file systems that report
//! nothing, and a look is three system calls for each file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::Origination;

/// How long a changed file may go unnoticed.
const PERIOD: Duration = Duration::from_secs(2);

static WATCHED: Mutex<Watched> = Mutex::new(Watched { all: Vec::new(), has_thread: false });

struct Watched {
    all: Vec<Weak<Origination>>,
    has_thread: bool,
}

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one that is in use and that `wanted` accepts.
pub(super) fn find(wanted: impl Fn(&Origination) -> bool) -> Option<Arc<Origination>> {
    watched().all.iter().filter_map(Weak::upgrade).find(|each| wanted(each))
}

/// Looks at it from now on, until nobody else holds it.
pub(super) fn add(origination: &Arc<Origination>) {
    let mut watched = watched();
    watched.all.push(Arc::downgrade(origination));
    if watched.has_thread {
        return;
    }
    match std::thread::Builder::new().name("tls-files".to_owned()).spawn(look_on) {
        Ok(_) => watched.has_thread = true,
        // The next one tries again.
        Err(error) => tracing::error!(%error, "no thread to look at TLS files: changes are not noticed"),
    }
}

fn look_on() {
    loop {
        std::thread::sleep(PERIOD);
        let mut watched = watched();
        watched.all.retain(|each| each.strong_count() > 0);
        if watched.all.is_empty() {
            watched.has_thread = false;
            return;
        }
        let all: Vec<_> = watched.all.iter().filter_map(Weak::upgrade).collect();
        // A file system that hangs must hang nobody else.
        drop(watched);
        for each in all {
            each.refresh();
        }
    }
}
