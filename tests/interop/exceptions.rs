//! Answers that tell of a failure, from two Java providers behind a sidecar that might try again:
//! they are answers all the same.

use crate::peers::{Consumer, Line, Provider};
use crate::sidecar::Sidecar;

/// An exception inside status 20 is what the application has to learn, even Dubbo's own, by which
/// the framework tells of failures in the network.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn an_exception_is_an_answer_and_is_not_tried_again() {
    for line in [Line::V26, Line::V27, Line::V33] {
        let mut pair = Pair::new(line);
        let [one, other] = pair.direct.each_mut().map(|c| c.ask("reject bang"));
        let told = one.contains("rpc.RpcException") && one.contains("bang");
        assert!(told && one == other, "{one}, and {other}");
        assert_eq!(pair.entered(), [1, 1]);

        let mut calls = 0;
        while pair.entered().contains(&1) {
            assert!(calls < 100, "one is avoided: {:?}", pair.entered());
            assert_eq!(pair.consumer.ask("reject bang"), one);
            calls += 1;
        }
        let entered = pair.entered();
        assert_eq!(entered.iter().sum::<u64>(), 2 + calls, "{entered:?}");
        assert_eq!(pair.sidecar.finished("exception"), calls);
        assert_eq!(pair.sidecar.count("mesh_call_retries_total"), 0);
    }
}

/// Providers that let one call in at a time refuse others with a status by which Java tries again.
/// That is for Java to do: the service may be called twice, but nobody told us that it did not run.
#[test]
#[ignore = "needs a JDK and Maven; .ci/run runs it"]
fn a_refusal_by_a_provider_is_tried_again_by_java_alone() {
    for line in [Line::V32, Line::V33] {
        let mut pair = Pair::new(line);
        // Two come in, one at each; the third is refused at each of its ten tries.
        let ends = "{RpcException=1, napped 2000=2}";
        pair.consumer.gets("alone 2000", ends);
        assert_eq!(pair.entered(), [1, 1]);
        assert_eq!(pair.sidecar.finished("ok"), 2);
        let refused = "mesh_call_provider_errors_total{side=\"outbound\",status=\"70\"}";
        let refused = pair.sidecar.count(refused);
        assert!(refused >= 10, "{refused} refusals");
        assert_eq!(pair.sidecar.finished("error"), refused);
        assert_eq!(pair.sidecar.count("mesh_call_retries_total"), 0);
    }
}

/// Two providers, a sidecar that is allowed to try again, and consumers.
struct Pair {
    /// Through the sidecar.
    consumer: Consumer,
    sidecar: Sidecar,
    /// One for each provider, without a sidecar.
    direct: [Consumer; 2],
    _providers: [Provider; 2],
}

impl Pair {
    fn new(line: Line) -> Self {
        let providers = [Provider::java(line), Provider::java(line)];
        let [one, other] = providers.each_ref().map(Provider::address);
        // The less busy one, so that calls come to both at once.
        let sidecar = Sidecar::outbound(&format!(
            "    - {{ key: shop.Shop, endpoints: [\"{one}\", \"{other}\"], retries: 5, \
             idempotent: true, balance: least_request }}\n"
        ));
        Self {
            consumer: Consumer::java(line, sidecar.address()),
            sidecar,
            direct: [one, other].map(|address| Consumer::java(line, address)),
            _providers: providers,
        }
    }

    /// Calls that came to the code of each provider.
    fn entered(&mut self) -> [u64; 2] {
        self.direct.each_mut().map(|consumer| {
            let answer = consumer.ask("entered");
            let count = answer.strip_prefix("ok ").and_then(|n| n.parse().ok());
            count.unwrap_or_else(|| panic!("no count: {answer}"))
        })
    }
}
