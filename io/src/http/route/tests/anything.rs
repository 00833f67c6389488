//! Whatever bytes come.

use super::*;
use proptest::prelude::*;

/// Bodies that are nearly right: objects of the fields that routes know, with values of every kind.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let scalar = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!(SESSION)),
        Just(json!(format!("order-1/{SESSION}"))),
    ];
    let value = scalar.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(field(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    prop::collection::btree_map(field(), value, 0..6)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()).to_string().into_bytes())
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "workflow",
            "version",
            "execution_id",
            "input",
            "labels",
            "worker_id",
            "runtime",
            "sdk",
            "contracts",
            "task_name",
            "contract_version",
            "session_id",
            "max_tasks",
            "wait_ms",
            "holding",
            "results",
            "token",
            "output",
            "error",
            "code",
            "message",
            "retryable",
            "details",
            "reason",
            "payload",
            "signal_id",
            "update_id",
        ])
        .prop_map(String::from),
        ".{0,8}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        prop::sample::select(vec![
            "v1",
            "workflows",
            "executions",
            "workers",
            "tasks",
            "history",
            "wait",
            "cancel",
            "terminate",
            "signals",
            "updates",
            "queries",
            "register",
            "poll",
            "heartbeat",
            "unregister",
            "complete",
            "fail",
            "versions",
            "livez",
            "%2F",
            "%00",
            "%",
            "order-1",
            "",
        ])
        .prop_map(String::from),
        ".{0,6}",
    ];
    prop_oneof![
        prop::collection::vec(part, 0..7).prop_map(|parts| format!("/{}", parts.join("/"))),
        prop::sample::select(vec![
            "/v1/executions",
            "/v1/workflows",
            "/v1/workers/register",
            "/v1/workers/poll",
            "/v1/workers/heartbeat",
            "/v1/tasks/complete",
            "/v1/tasks/fail",
            "/v1/executions/a/cancel",
        ])
        .prop_map(String::from),
        ".{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_the_router_panic_and_every_error_says_why(
        method in prop::sample::select(vec![Method::GET, Method::POST, Method::HEAD, Method::DELETE]),
        path in target(),
        query in prop::option::of("[a-z_=&%+0-9]{0,24}"),
        content_type in prop::sample::select(vec![
            None, Some("application/json"), Some("application/yaml"), Some(";;="), Some("application/json;charset"),
        ]),
        body in prop_oneof![nearly_right(), prop::collection::vec(any::<u8>(), 0..64), "[\\[{:,\"a1}\\]]{0,40}".prop_map(String::into_bytes)],
    ) {
        if let Err(error) = route(&method, &path, query.as_deref(), content_type, &body, &LIMITS) {
            prop_assert!(!error.message.is_empty());
            prop_assert!((400..500).contains(&error.code.status()), "{error:?}");
        }
    }

    #[test]
    fn an_id_that_is_encoded_in_full_is_read_back(id in "[A-Za-z0-9._:@+-]{1,60}") {
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let found = Resource::find(&format!("/v1/executions/{encoded}"));
        prop_assert_eq!(found, Ok(Resource::Execution(ExecutionId::new(id.as_str()))));
    }
}
