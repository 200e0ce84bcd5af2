//! How far a tool is.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of that length, in the form that indicatif reads; drawn on a terminal only.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
