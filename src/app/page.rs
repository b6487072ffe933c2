//! Serves the page on a thread of its own.
//!
//! Floor 4. `app::run` starts it last.

use std::net::TcpListener;
use std::sync::{Arc, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

use super::exit::Failure;
use super::steward;
use crate::board::Board;
use crate::board::command::Command;
use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::store::Store;
use crate::web;

/// Resolves when the page's thread has ended.
pub(super) type Alive = oneshot::Receiver<()>;

/// Threads for blocking reads at most. The store serves one at a time anyway, and
/// each thread keeps memory of its own.
const BLOCKING_THREADS_MAX: usize = 1;

/// What the pages stand on.
pub(super) fn shared(
    settings: &Settings,
    board: &Arc<Board>,
    store: &Arc<Store>,
    clock: &Arc<dyn Clock>,
    commands: mpsc::Sender<Command>,
) -> Arc<web::Shared> {
    let [rows, events, store] = [store, store, store].map(Arc::clone);
    Arc::new(web::Shared {
        board: Arc::clone(board),
        heartbeats: Arc::new(move |device, day| store.heartbeats(device, day)),
        summaries: Arc::new(move |from, to, device, each| rows.summaries(from, to, device, each)),
        events: Arc::new(move |device, before, limit| {
            web::events_of(&events, device, before, limit)
        }),
        commands,
        clock: Arc::clone(clock),
        settings: RwLock::new(Arc::new(steward::in_force(settings))),
    })
}

/// The page has a thread and a runtime of its own, so that rendering and slow
/// browsers share nothing with probing but the picture's lock.
pub(super) fn serve(
    listener: TcpListener,
    shared: Arc<web::Shared>,
    stopped: watch::Receiver<bool>,
    runtime_is: Arc<OnceLock<Handle>>,
) -> Result<Alive, Failure> {
    let (alive, gone) = oneshot::channel::<()>();
    let work = move || {
        // Dropped however this thread ends, a panic included.
        let _alive = alive;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(fault) => return error!(error = %fault, "the page cannot start"),
        };
        runtime_is.get_or_init(|| runtime.handle().clone());
        runtime.block_on(serve_page(listener, shared, stopped));
        runtime.shutdown_timeout(Duration::from_millis(500));
    };
    thread::Builder::new()
        .name("page".into())
        .spawn(work)
        .map_err(|fault| Failure::Running(format!("cannot start the page's thread: {fault}")))?;
    Ok(gone)
}

async fn serve_page(
    listener: TcpListener,
    shared: Arc<web::Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(fault) => return error!(error = %fault, "the page cannot start"),
    };
    let stop = async move {
        // Whether it was told or its teller is gone, it is time to stop.
        let _told = stopped.wait_for(|&stop| stop).await.is_ok();
    };
    let proxies = Arc::clone(&shared);
    let is_proxy = move |address| proxies.in_force().web.trusted_proxies.contains(&address);
    web::serve(listener, web::router(shared), is_proxy, stop).await;
}
