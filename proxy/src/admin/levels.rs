//! What is logged, changed while the proxy runs.

use std::{io::IsTerminal, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::{
    Registry, filter::Targets, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use crate::config::{LogFormat, Logging, log_filter};

/// The filter of the log. Clones share it.
#[derive(Debug, Clone)]
pub struct Levels {
    handle: reload::Handle<Targets, Registry>,
    text: Arc<Mutex<String>>,
}

impl Levels {
    /// A filter for a subscriber, and the handle to change it.
    ///
    /// # Errors
    /// `text` is no filter.
    pub fn new(text: &str) -> Result<(reload::Layer<Targets, Registry>, Self), String> {
        let (layer, handle) = reload::Layer::new(log_filter(text)?);
        Ok((
            layer,
            Self {
                handle,
                text: Arc::new(Mutex::new(text.into())),
            },
        ))
    }

    /// Starts to log as configured, to standard error.
    ///
    /// # Errors
    /// The process logs already.
    pub fn install(logging: &Logging) -> Result<Self, String> {
        let (filter, levels) = Self::new(&logging.level)?;
        // Colours are for people: in a file they are noise.
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        let subscriber = tracing_subscriber::registry().with(filter);
        let installed = match logging.format {
            LogFormat::Text => subscriber.with(lines).try_init(),
            LogFormat::Json => subscriber.with(lines.json()).try_init(),
        };
        installed.map_err(|error| error.to_string())?;
        Ok(levels)
    }

    /// Changes the filter.
    ///
    /// # Errors
    /// `text` is no filter.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let filter = log_filter(text)?;
        let mut shown = self.text.lock();
        self.handle
            .reload(filter)
            .map_err(|error| error.to_string())?;
        *shown = text.into();
        Ok(())
    }

    /// The filter as it was written.
    pub(super) fn text(&self) -> String {
        self.text.lock().clone()
    }
}
