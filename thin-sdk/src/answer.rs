//! What the end of an attempt means for its call.

use dubbo_proto::head::{Serialization, Status};
use dubbo_proto::reply::{self, Kind};

use crate::connection::Ended;
use crate::error::{Code, Error, Executed, Unsent};
use crate::failover::{Ending, Route};
use crate::value;

/// What an attempt was.
pub(crate) enum Judged {
    /// The end of the call, by whoever serves it.
    Done(Result<Option<Vec<u8>>, Error>),
    /// The end of the call, without an answer.
    Failed(Error),
    /// Perhaps not the end; the error if it is.
    Ended(Ending, Error),
}

/// What is to be made of the end of an attempt that went `by`.
pub(crate) fn judge(ended: Ended, by: Route) -> Judged {
    match ended {
        Ended::Reply {
            status: Status::OK,
            serialization,
            body,
        } => Judged::Done(value(serialization, body)),
        Ended::Reply {
            status,
            serialization,
            body,
        } => {
            let text = reply::error_text(serialization, &body).unwrap_or_default();
            match Code::of(status, &text) {
                Some(code) => Judged::Ended(Ending::Code(code), Error::Mesh { code, text }),
                None if status == Status::SERVER_TIMEOUT => Judged::Failed(Error::Deadline {
                    executed: Executed::Maybe,
                }),
                None => {
                    let error = Error::Provider {
                        status: status.0,
                        text,
                    };
                    // Among the providers behind it, the sidecar has chosen.
                    match by == Route::Direct && ELSEWHERE.contains(&status) {
                        true => Judged::Ended(Ending::Declined, error),
                        false => Judged::Done(Err(error)),
                    }
                }
            }
        }
        Ended::Written => Judged::Done(Ok(None)),
        Ended::Lost => Judged::Ended(Ending::Broken, Error::Lost),
        Ended::TimedOut => Judged::Failed(Error::Deadline {
            executed: Executed::Maybe,
        }),
        Ended::Unsent(why @ Unsent::TooLong) => Judged::Failed(Error::NotSent(why)),
        Ended::Unsent(why @ Unsent::Overloaded) => {
            Judged::Ended(Ending::Declined, Error::NotSent(why))
        }
        Ended::Unsent(why) => Judged::Ended(Ending::Unsent, Error::NotSent(why)),
    }
}

/// What an answer of status 20 says.
fn value(serialization: Serialization, body: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    let readable = [Serialization::HESSIAN2, Serialization::NATIVE_HESSIAN];
    let odd = |what: String| Err(Error::Answer(value::Error::Mismatch(what)));
    if !readable.contains(&serialization) {
        return odd(format!(
            "serialization {} is not read",
            serialization.bits()
        ));
    }
    match reply::kind(Status::OK, serialization, &body) {
        Kind::Value => Ok(Some(body)),
        Kind::Null => Ok(None),
        Kind::Exception => {
            let thrown = value::exception(&body).map_err(Error::Answer)?;
            Err(Error::Exception(thrown))
        }
        Kind::Error | Kind::Opaque => odd("an answer of no known kind".into()),
    }
}

/// Statuses of a provider that did not let a call run, and says nothing of the others.
const ELSEWHERE: [Status; 2] = [Status::SERVICE_NOT_FOUND, Status::THREADPOOL_EXHAUSTED];
