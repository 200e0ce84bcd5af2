//! A provider of the demo: a small server of the thin SDK, with a journal of what may not run twice.

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use thin_sdk::{Fault, Invocation, Server};

use super::Error;
use super::plan::{FIND, PAY, SERVICE, UNDECLARED};

/// Serves for ever.
pub(super) async fn serve(listen: SocketAddr, journal: &Path) -> Result<Infallible, Error> {
    let journal = OpenOptions::new().create(true).append(true).open(journal)?;
    let journal = Arc::new(Mutex::new(journal));
    let echo = |call: Invocation| async move {
        let (text,): (String,) = call.arguments()?;
        Ok::<_, Fault>(text)
    };
    let pay = move |call: Invocation| {
        let journal = Arc::clone(&journal);
        async move {
            let (number,): (i64,) = call.arguments()?;
            // Before the answer: whoever has that knows that it stands there, whatever is killed then.
            note(&journal, number)
                .map_err(|error| thin_sdk::Exception::new("demo.Journal", error.to_string()))?;
            Ok::<_, Fault>(number)
        }
    };
    let server = Server::builder()
        .method(SERVICE, FIND, echo)?
        .method(SERVICE, PAY, pay)?
        .method(UNDECLARED, FIND, echo)?
        .listen(listen)
        .await?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {}", server.address()).and_then(|()| stdout.flush())?;
    Ok(std::future::pending().await)
}

fn note(journal: &Mutex<File>, number: i64) -> io::Result<()> {
    let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
    // In one piece, so that a kill leaves no half of it.
    journal.write_all(format!("{number}\n").as_bytes())
}
