//! Asks the glue server for pages, at a pace, and tallies how long they take.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::http::{Connection, Error};
use crate::load::plan::Pace;
use crate::load::schedule::{Arrivals, Schedule, Ticket};
use crate::load::tally::{Failure, Tally};
use crate::pace;
use crate::time::now;

/// Asks `glue` for pages for so long, and waits for all of them; how long that took.
///
/// A page has a connection to itself, and leaves it to a later one.
pub(super) async fn ask(
    glue: SocketAddr,
    paced: Pace,
    duration: Duration,
    tally: &Tally,
) -> io::Result<Duration> {
    let start = now();
    let (one, until) = (NonZero::<u32>::MIN, start + duration);
    let mut schedule = match paced {
        Pace::Closed(pages) => Schedule::closed(pages.get(), one, until),
        Pace::Open(rate) => Schedule::open(Arrivals::new(start, rate, 0, 1), one, until),
    };
    let idle = Rc::new(RefCell::new(Vec::new()));
    let mut going = JoinSet::new();
    let mut alarm = pace::Pace::default();
    loop {
        let time = now();
        while going.len() < MAX_PAGES
            && let Some(ticket) = schedule.next(time)
        {
            let idle = Rc::clone(&idle);
            going.spawn_local(async move { (ticket, page(glue, &idle).await) });
        }
        if going.is_empty() && schedule.is_over(time) {
            return Ok(start.elapsed());
        }
        let due = schedule.wake().filter(|_| going.len() < MAX_PAGES);
        alarm.arm(time, due)?;
        tokio::select! {
            Some(ended) = going.join_next() => {
                let (ticket, failure) = ended.map_err(io::Error::other)?;
                end(&mut schedule, tally, ticket, failure);
            }
            rung = alarm.rung(), if due.is_some() => rung?,
            () = sleep_until(until.into()), if time < until => {}
        }
    }
}

fn end(schedule: &mut Schedule, tally: &Tally, ticket: Ticket, failure: Option<Failure>) {
    let time = now();
    match failure {
        None => {
            schedule.answered(ticket, time);
            tally.answer(time.saturating_duration_since(ticket.page), None);
        }
        Some(failure) => {
            schedule.failed();
            tally.fail(failure, 1);
        }
    }
}

/// One page; how it failed, if it did.
async fn page(glue: SocketAddr, idle: &RefCell<Vec<Connection>>) -> Option<Failure> {
    let taken = idle.borrow_mut().pop();
    let mut connection = match taken {
        Some(connection) => connection,
        None => match Connection::open(glue, PATIENCE).await {
            Ok(connection) => connection,
            Err(_) => return Some(Failure::LostUnwritten),
        },
    };
    let asked = connection.send(Method::GET, "/page", Bytes::new(), PATIENCE);
    match asked.await {
        Ok(answer) if answer.status == StatusCode::OK => {
            idle.borrow_mut().push(connection);
            None
        }
        Ok(answer) => {
            let said = String::from_utf8_lossy(&answer.body);
            let said = said.trim().chars().take(SAID_LEN).collect();
            Some(Failure::Page(answer.status.as_u16(), said))
        }
        Err(Error::Late(_)) => Some(Failure::Timeout),
        Err(_) => Some(Failure::Lost),
    }
}

/// Pages that are waited for at a time: an open loop that nobody keeps up with begins the next one
/// late, and counts from the time it was due.
const MAX_PAGES: usize = 2000;
/// How long a page may take: longer than its calls may.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of what the glue server says of a failed page.
const SAID_LEN: usize = 120;
