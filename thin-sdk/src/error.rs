//! Why a call brought no value, and whether it may have run.

use std::fmt;

use dubbo_proto::head::Status;

use crate::value;

/// Why a call brought no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The method ran and threw.
    #[error("{0}")]
    Exception(Exception),
    /// The mesh answers in place of the provider.
    #[error("{text}")]
    Mesh {
        /// What went wrong.
        code: Code,
        /// The whole answer, which begins with the code.
        text: String,
    },
    /// The provider's framework answers in place of the method.
    #[error("the provider answered with status {status}: {text}")]
    Provider {
        /// Dubbo's status, never 20.
        status: u8,
        /// What it says.
        text: String,
    },
    /// The deadline is over.
    #[error("no answer within the deadline; {}", .executed.words())]
    Deadline {
        /// Whether the method may have run.
        executed: Executed,
    },
    /// No connection took the call: it certainly did not run.
    #[error("not sent: {0}")]
    NotSent(Unsent),
    /// The connection was lost after the call was written: it may have run, and was not declared
    /// idempotent or could go nowhere else.
    #[error("the connection was lost before the answer; the call may have run")]
    Lost,
    /// The service's name is malformed.
    #[error(transparent)]
    Key(#[from] dubbo_proto::key::Error),
    /// An argument cannot be written.
    #[error("an argument cannot be written")]
    Argument(#[source] value::Error),
    /// The method ran, but its answer cannot be read as the type that was asked for.
    #[error("the answer cannot be read")]
    Answer(#[source] value::Error),
}

/// What a method threw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// Its Java class.
    pub class: String,
    /// Its message, empty if none.
    pub message: String,
}

/// Whether a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    /// Certainly not.
    No,
    /// Nobody can tell.
    Maybe,
    /// Yes.
    Yes,
}

/// Why no connection took a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// There is neither a sidecar nor a known provider.
    #[error("no sidecar answers, and no provider of the service is known")]
    Nowhere,
    /// Nobody could be connected to, or they were lost before the call was written.
    #[error("nobody could be reached: {0}")]
    Unreachable(String),
    /// The connection was closed, or the other side said that it takes no new calls.
    #[error("the connection takes no new calls")]
    Closed,
    /// More calls are in flight, or bytes wait to be written, than one connection may have.
    #[error("too much is in flight")]
    Overloaded,
    /// The call is over Dubbo's limit of 8 MiB.
    #[error("the call is too long")]
    TooLong,
}

/// What went wrong in the mesh: the first word of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// `NR`: no such service, or no rule matches.
    NoRoute,
    /// `UH`: no host of the service can take a call.
    NoHealthyUpstream,
    /// `UF`: no connection, or lost before the call was written.
    Unreachable,
    /// `UC`: connection lost, the call may have run.
    ConnectionLost,
    /// `UO`: a limit is reached.
    Overflow,
    /// `DPE`: the call is malformed.
    BadCall,
    /// `UPE`: the provider's answer is malformed; the call may have run.
    BadAnswer,
}

impl Error {
    /// Whether the method may have run, or did.
    #[must_use]
    pub fn executed(&self) -> Executed {
        match self {
            Self::Exception(_) | Self::Answer(_) => Executed::Yes,
            Self::Mesh { code, .. } => code.executed(),
            Self::Provider { status, .. } => match Status(*status) {
                Status::BAD_REQUEST | Status::SERVICE_NOT_FOUND | Status::THREADPOOL_EXHAUSTED => {
                    Executed::No
                }
                _ => Executed::Maybe,
            },
            Self::Deadline { executed } => *executed,
            Self::NotSent(_) | Self::Key(_) | Self::Argument(_) => Executed::No,
            Self::Lost => Executed::Maybe,
        }
    }
}

impl Code {
    /// The code of an answer of the mesh; `None` if it is somebody else's.
    ///
    /// The status has to be the code's own, so that no provider is taken for the mesh by accident.
    pub(crate) fn of(status: Status, text: &str) -> Option<Self> {
        let (word, _) = text.split_once(' ')?;
        let (code, its) = match word {
            "NR" => (Self::NoRoute, Status::SERVICE_NOT_FOUND),
            "UH" => (Self::NoHealthyUpstream, Status::SERVER_ERROR),
            "UF" => (Self::Unreachable, Status::SERVER_ERROR),
            "UC" => (Self::ConnectionLost, Status::SERVER_ERROR),
            "UO" => (Self::Overflow, Status::THREADPOOL_EXHAUSTED),
            "DPE" => (Self::BadCall, Status::BAD_REQUEST),
            "UPE" => (Self::BadAnswer, Status::SERVER_ERROR),
            _ => return None,
        };
        (its == status).then_some(code)
    }

    /// Whether the method may have run.
    #[must_use]
    pub fn executed(self) -> Executed {
        match self {
            Self::ConnectionLost | Self::BadAnswer => Executed::Maybe,
            _ => Executed::No,
        }
    }
}

impl Executed {
    fn words(self) -> &'static str {
        match self {
            Self::No => "the call did not run",
            Self::Maybe => "the call may have run",
            Self::Yes => "the call ran",
        }
    }
}

impl Exception {
    /// An exception of a Java class.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Exception {}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mesh_speaks_in_codes() {
        let nr = "NR no route found: x";
        assert_eq!(Code::of(Status(60), nr), Some(Code::NoRoute));
        assert_eq!(Code::of(Status(70), nr), None, "not its status");
        assert_eq!(Code::of(Status(60), "NRT what"), None);
        assert_eq!(Code::of(Status(60), "NR"), None);
    }
}
