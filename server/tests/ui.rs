//! The pages at `/ui/`, as a real server gives them out. `scripts/check-ui` looks at them with a browser.

mod common;

use common::{ORDER_PROCESSING, Server, folder, order};
use orbit_sdk::{Format, StartOptions, Worker, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const MARKUP: &str = "<script>alert(1)</script>\"'&";
const MARKUP_AS_TEXT: &str = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;";

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// One request on a connection of its own.
fn ask(server: &Server, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let mut socket = TcpStream::connect(server.addr).expect("the server listens");
    socket.set_read_timeout(Some(common::PATIENCE)).expect("a time-out can be set");
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    socket.write_all(request.as_bytes()).expect("the server reads");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("the server answers");
    let text = String::from_utf8(bytes).expect("pages are UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.into(), body: body.into() }
}

fn get(server: &Server, target: &str) -> Answer {
    ask(server, "GET", target, "", "")
}

fn page(server: &Server, target: &str) -> String {
    let answer = get(server, target);
    assert_eq!(answer.status, 200, "{target}: {}", answer.body);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_shown_with_its_steps_its_worker_and_its_definition() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    client.deploy(ORDER_PROCESSING, Format::Yaml).await.expect("deployed");
    let options = StartOptions {
        execution_id: Some("order-1".into()),
        input: order("order-1"),
        labels: [("shop".to_owned(), "berlin".to_owned())].into(),
        ..StartOptions::default()
    };
    client.start("OrderProcessing", options).await.expect("started");

    // No worker has come yet.
    let waiting = page(&server, "/ui/executions/order-1");
    assert!(waiting.contains("waits for a worker") && waiting.contains("not yet"), "{waiting}");
    assert!(waiting.contains("<h2>Waits for</h2>"), "{waiting}");
    assert!(waiting.contains("no worker offers orders.validate, version 1"), "{waiting}");
    assert!(waiting.contains("<a href=\"/ui/\">Executions</a> / order-1</p>"), "{waiting}");
    assert!(page(&server, "/ui/workers").contains("No worker has registered yet"));

    let mut worker = Worker::builder().servers(server.url()).worker_id("worker-1");
    let steps = ["validate", "fraud_check", "reserve", "charge", "ship", "notify"];
    let tasks =
        ["orders.validate", "fraud.check", "inventory.reserve", "payments.charge", "shipping.ship", "customers.notify"];
    for task in tasks {
        worker = worker.task(task, "1", |_, _| async {
            Ok(json!({"score": 1, "reservation_id": "r", "charge_id": "c", "tracking": "t"}))
        });
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.build().expect("a worker").run(async move { drop(stopped.await) }));
    let ended = client.wait("order-1", common::PATIENCE).await.expect("it ends");
    assert_eq!(ended.status().to_string(), "completed");

    let shown = page(&server, "/ui/executions/order-1");
    for (step, task) in steps.iter().zip(tasks) {
        assert!(shown.contains(&format!("<th scope=\"row\">{step}<small>{task}</small></th>")), "{step}: {shown}");
        assert!(shown.contains(&format!("aria-label=\"{step}: succeeded\"")), "{step}: {shown}");
    }
    assert_eq!(shown.matches("class=\"run succeeded\" x=").count(), steps.len(), "{shown}");
    assert!(shown.contains("at worker-1: succeeded") && shown.contains("WorkflowCompleted"), "{shown}");
    assert!(shown.contains("<span class=\"quiet\">deadline</span> <time"), "{shown}");
    assert!(shown.contains("<a class=\"label\" href=\"/ui/?label=shop%3Dberlin\">shop=berlin</a>"), "{shown}");
    assert!(shown.contains("<a href=\"/ui/workflows/OrderProcessing/1.0.0\">"), "{shown}");

    for list in ["/ui/", "/ui/?status=completed&workflow=OrderProcessing&label=shop%3Dberlin", "/ui/executions"] {
        assert!(page(&server, list).contains("href=\"/ui/executions/order-1\""), "{list}");
    }
    assert!(!page(&server, "/ui/?status=failed").contains("order-1"));
    let workers = page(&server, "/ui/workers");
    assert!(
        workers.contains("worker-1") && workers.contains("alive") && workers.contains("payments.charge"),
        "{workers}"
    );
    assert!(page(&server, "/ui/workflows").contains("Validates an order, charges it and ships it"));
    let definition = page(&server, "/ui/workflows/OrderProcessing/1.0.0");
    assert!(definition.contains("&quot;task&quot;: &quot;payments.charge&quot;"), "{definition}");

    // The name alone leads to its versions and to the steps of the newest, with how they are retried.
    let versions = page(&server, "/ui/workflows/OrderProcessing");
    assert!(versions.contains("href=\"/ui/workflows/OrderProcessing/1.0.0\""), "{versions}");
    for shown in [&versions, &definition] {
        assert!(
            shown.contains("5 attempts") && shown.contains("first after 1s") && shown.contains("</span>30s"),
            "{shown}"
        );
    }
    assert!(definition.contains("<a href=\"/ui/workflows/OrderProcessing\">OrderProcessing</a> / 1.0.0</p>"));
    assert_eq!(get(&server, "/ui/workflows/Nothing").status, 404);

    stop.send(()).expect("the worker runs");
    worker.await.expect("it ends").expect("and ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_and_a_long_history_are_shown_page_by_page() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    let steps: Vec<String> = (0..300).map(|n| format!("  - {{id: s{n}, compute: {n}}}\n")).collect();
    let document = format!("name: Long\nversion: \"1\"\nsteps:\n{}", steps.concat());
    client.deploy(&document, Format::Yaml).await.expect("deployed");
    for number in 0..60 {
        let options = StartOptions { execution_id: Some(format!("long-{number:02}")), ..StartOptions::default() };
        client.start("Long", options).await.expect("started");
    }
    // The links themselves are followed.
    let next = |page: &str, text: &str| {
        let before = page.split(&format!("\">{text}</a>")).next().expect("a part");
        let target = before.rsplit("href=\"").next().expect("a target").replace("&amp;", "&");
        assert!(page.contains(text), "{text}");
        target.split('#').next().expect("a target").to_owned()
    };
    let first = page(&server, "/ui/?workflow=Long");
    let second = page(&server, &next(&first, "Older →"));
    let ids = |page: &str| page.matches("href=\"/ui/executions/long-").count();
    assert_eq!((ids(&first), ids(&second)), (50, 10));
    assert!(!second.contains("Older →"));
    assert_eq!(ids(&page(&server, &next(&second, "← Newest"))), 50);

    let begun = page(&server, "/ui/executions/long-00");
    assert!(begun.contains("WorkflowCreated") && !begun.contains("WorkflowCompleted"));
    let ended = page(&server, &next(&begun, "Later events →"));
    assert!(!ended.contains("WorkflowCreated") && ended.contains("WorkflowCompleted"));
    assert!(!ended.contains("Later events →"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_the_parts_of_a_step_have_rows_of_their_own() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    let document = json!({
        "name": "Talk", "version": "1", "signals": {"go": {}, "never": {}},
        "steps": [
            {"id": "each", "for": [1, 2], "do": {"compute": "${ item * 2 }"}},
            {"id": "went", "await": "go"},
            {"id": "wait", "await": "never"},
        ],
    });
    client.deploy(&document.to_string(), Format::Json).await.expect("deployed");
    let options = StartOptions { execution_id: Some("talk".into()), ..StartOptions::default() };
    client.start("Talk", options).await.expect("started");
    client.signal("talk", "go", json!({"by": "ada"}), None).await.expect("it is taken");
    let shown = page(&server, "/ui/executions/talk");
    for (row, state) in [
        ("signals", "received"),
        ("each", "succeeded"),
        ("each[0]", "succeeded"),
        ("each[1]", "succeeded"),
        ("went", "succeeded"),
        ("wait", "waits for a signal"),
    ] {
        assert!(shown.contains(&format!("aria-label=\"{row}: {state}\"")), "{row}: {shown}");
    }
    assert!(shown.contains("waits for the signal never") && shown.contains("SignalReceived"), "{shown}");
    client.terminate("talk", Some("it hangs")).await.expect("terminated");
    assert!(page(&server, "/ui/executions/talk").contains("<span class=\"badge terminated\">terminated</span>"));
    assert!(page(&server, "/ui/?status=terminated").contains("href=\"/ui/executions/talk\""));
    assert!(!page(&server, "/ui/?status=timed_out").contains("href=\"/ui/executions/talk\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_runs_of_parents_and_of_children_lead_to_each_other() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    let next = "{id: next, when: '${ input < 3 }', continue_as_new: '${ input + 1 }'}";
    let wait = "{id: wait, await: go, when: '${ input == 3 }'}";
    let count = format!("name: Count\nversion: '1'\nsignals: {{go: {{}}}}\nsteps: [{next}, {wait}]\nresult: done\n");
    let parent =
        "name: Parent\nversion: '1'\nsteps: [{id: all, for: [1, 3], do: {workflow: Count, input: '${ item }'}}]\n";
    for definition in [&count, parent] {
        client.deploy(definition, Format::Yaml).await.expect("deployed");
    }
    let options = StartOptions { execution_id: Some("p".into()), ..StartOptions::default() };
    client.start("Parent", options).await.expect("started");
    let child = |index: u8| format!("p~all[{index}]");
    for id in [child(0), child(1)] {
        client.signal(&id, "go", json!(null), None).await.expect("it is taken, or carried on");
    }
    client.wait("p", common::PATIENCE).await.expect("it ends");

    // The parent leads to its children, from their rows and from its history, and each child back.
    let of_parent = page(&server, "/ui/executions/p");
    for index in [0, 1] {
        let link = format!("href=\"/ui/executions/p~all%5B{index}%5D\">p~all[{index}]</a>");
        // Its row, its being scheduled, started and completed.
        assert_eq!(of_parent.matches(&link).count(), 4, "{of_parent}");
    }
    assert!(!of_parent.contains("run=") && !of_parent.contains("<dt>Run</dt>"), "{of_parent}");
    let newest = page(&server, "/ui/executions/p~all%5B0%5D");
    assert!(
        newest.contains("<dt>Child of</dt><dd><a class=\"id\" href=\"/ui/executions/p\">p</a> (all[0])"),
        "{newest}"
    );

    // Its newest run leads to those before it, and they to those after them.
    let at = |query: &str| format!("href=\"/ui/executions/p~all%5B0%5D{query}\"");
    assert!(newest.contains(&at("?run=1")) && newest.contains(&at("?run=2")), "{newest}");
    assert!(newest.contains("<b aria-current=\"page\">3</b>") && newest.contains("of 3 runs"), "{newest}");
    assert!(newest.contains("<span class=\"badge completed\">"), "{newest}");
    let second = page(&server, "/ui/executions/p~all%5B0%5D?run=2");
    assert!(
        second.contains("<span class=\"badge continued\">") && second.contains("WorkflowContinuedAsNew"),
        "{second}"
    );
    assert!(!second.contains("WorkflowCompleted") && !second.contains("SignalConsumed"), "{second}");
    for (link, times) in [(at("?run=1"), 1), (at(""), 3)] {
        // The third run is the newest: in the facts, in the note, and in its event.
        assert_eq!(second.matches(&link).count(), times, "{link}: {second}");
    }
    for row in ["next: succeeded", "wait: not reached"] {
        assert!(second.contains(&format!("aria-label=\"{row}\"")), "{row}: {second}");
    }
    assert!(second.contains("Input of the next run</h2><div class=\"card\"><pre>3</pre>"), "{second}");
    assert!(second.contains("<h2>Input</h2><div class=\"card\"><pre>2</pre>"), "{second}");
    assert_eq!(get(&server, "/ui/executions/p~all%5B0%5D?run=4").status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn markup_that_comes_from_outside_is_text() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    let document = json!({
        "name": "Markup", "version": "1", "description": MARKUP,
        "steps": [{"id": "only", "compute": {MARKUP: "${ input }"}}, {"id": "task", "task": "t"}],
    });
    client.deploy(&document.to_string(), Format::Json).await.expect("deployed");
    let options = StartOptions {
        execution_id: Some("markup".into()),
        input: json!({MARKUP: MARKUP}),
        labels: [("label".to_owned(), MARKUP.to_owned())].into(),
        ..StartOptions::default()
    };
    client.start("Markup", options).await.expect("started");
    let worker = json!({
        "worker_id": MARKUP, "runtime": MARKUP, "sdk": MARKUP,
        "contracts": [{"task_name": MARKUP}, {"task_name": "t"}],
    });
    let json = "content-type: application/json\r\n";
    let registered = ask(&server, "POST", "/v1/workers/register", json, &worker.to_string());
    let session: serde_json::Value = serde_json::from_str(&registered.body).expect("JSON");
    let poll = json!({"session_id": session["session_id"], "wait_ms": 20_000});
    let polled = ask(&server, "POST", "/v1/workers/poll", json, &poll.to_string());
    let task: serde_json::Value = serde_json::from_str(&polled.body).expect("JSON");
    let failed = json!({
        "session_id": session["session_id"], "token": task["tasks"][0]["token"],
        "error": {"code": MARKUP, "message": MARKUP, "retryable": false},
    });
    assert_eq!(ask(&server, "POST", "/v1/tasks/fail", json, &failed.to_string()).status, 200);
    client.wait("markup", common::PATIENCE).await.expect("it ends");

    let encoded: String = MARKUP.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for (target, status) in [
        ("/ui/", 200),
        ("/ui/executions/markup", 200),
        ("/ui/workers", 200),
        ("/ui/workflows", 200),
        ("/ui/workflows/Markup/1", 200),
        (&format!("/ui/?label=label%3D{encoded}"), 200),
        (&format!("/ui/?status={encoded}"), 400),
        (&format!("/ui/?{encoded}=x"), 400),
        (&format!("/ui/executions/{encoded}"), 400),
        (&format!("/ui/workflows/{encoded}/1"), 404),
    ] {
        let answer = get(&server, target);
        assert_eq!(answer.status, status, "{target}");
        // The one script, style sheet and so on that is not text is the style sheet.
        assert!(!answer.body.contains("<script"), "{target}: {}", answer.body);
        assert!(!answer.body.contains(MARKUP), "{target}: {}", answer.body);
    }
    for target in ["/ui/", "/ui/executions/markup", "/ui/workers", "/ui/workflows", "/ui/workflows/Markup/1"] {
        assert!(page(&server, target).contains(MARKUP_AS_TEXT), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_in_a_filter_is_told_beside_the_form_which_stays_as_it_was_filled_in() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    for (query, kept, told) in [
        ("status=&workflow=Pay+out&label=team", "value=\"team\"", "label"),
        ("status=walking&label=a%3Db", "value=\"a=b\"", "status"),
        ("zebra=1", "placeholder=\"key=value\"", "zebra"),
    ] {
        let answer = get(&server, &format!("/ui/?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.contains("<form class=\"filters\"") && answer.body.contains(kept), "{}", answer.body);
        let notice = answer.body.split("role=\"alert\">").nth(1).and_then(|rest| rest.split("</div>").next());
        assert!(notice.is_some_and(|notice| notice.contains(told)), "{}", answer.body);
        assert!(answer.body.contains("href=\"/ui/\">Clear</a>"), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_names_none_before_it_begins_after_the_one_before_and_the_first_at_the_start() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let steps = "[{id: a, compute: '1'}, {id: b, compute: '2'}, {id: c, after: [], compute: '3'}]";
    let workflow = format!("name: Three\nversion: 1.0.0\nsteps: {steps}\n");
    server.client().deploy(&workflow, Format::Yaml).await.expect("it is right");
    let shown = page(&server, "/ui/workflows/Three/1.0.0");
    assert_eq!((shown.matches("the start").count(), shown.matches("the one before").count()), (2, 1), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_what_a_page_does_not_need() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let answers = [
        (get(&server, "/ui/"), 200),
        (get(&server, "/ui/executions/nobody"), 404),
        (get(&server, "/ui/nowhere"), 404),
        (get(&server, "/ui"), 303),
        (get(&server, "/"), 303),
        (ask(&server, "POST", "/ui/", "", ""), 405),
        (ask(&server, "DELETE", "/ui/executions/a", "", ""), 405),
    ];
    for (answer, status) in answers {
        assert_eq!(answer.status, status, "{}", answer.head);
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{}", answer.head);
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(!answer.header("x-request-id").is_empty());
        match status {
            303 => assert_eq!(answer.header("location"), "/ui/"),
            405 => assert_eq!(answer.header("allow"), "GET, HEAD"),
            _ => assert!(answer.body.contains("<!DOCTYPE html>")),
        }
        for elsewhere in ["http://", "https://", " src=", "url("] {
            let body = answer.body.replace("http://www.w3.org/2000/svg", "").replace("http%3A", "");
            assert!(!body.contains(elsewhere), "{elsewhere}: {body}");
        }
    }
    // What is not a page is the API's, as before.
    let other = get(&server, "/uix");
    assert_eq!((other.status, other.header("content-type")), (404, "application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_token_shows_its_pages_to_those_who_know_it() {
    let folder = folder();
    // `Server::start` waits for what needs no token.
    let server = Server::start(&folder.path().join("orbit.db"), &["--token", "se cret"]).await;
    for target in ["/ui/", "/ui/workers", "/ui/executions/a?after=1", "/ui/nowhere"] {
        let closed = get(&server, target);
        assert_eq!(closed.status, 401, "{target}");
        assert!(closed.body.contains("name=\"token\"") && !closed.body.contains("<nav"), "{}", closed.body);
        assert!(closed.body.contains(&format!("name=\"to\" value=\"{target}\"")), "{}", closed.body);
    }
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let wrong = ask(&server, "POST", "/ui/sign-in", form, "to=%2Fui%2Fworkers&token=secret");
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, ""));
    assert!(wrong.body.contains("not this server's token"), "{}", wrong.body);
    let signed_in = ask(&server, "POST", "/ui/sign-in", form, "to=%2Fui%2Fworkers&token=se+cret");
    assert_eq!((signed_in.status, signed_in.header("location")), (303, "/ui/workers"));
    let cookie = signed_in.header("set-cookie");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().expect("a cookie"));
    let open = ask(&server, "GET", "/ui/workers", &cookie, "");
    assert_eq!(open.status, 200, "{}", open.body);
    assert!(open.body.contains("Sign out"));
    // The cookie is for reading pages alone.
    assert_eq!(ask(&server, "GET", "/v1/workers", &cookie, "").status, 401);
    let bearer = "authorization: Bearer se cret\r\n";
    assert_eq!(ask(&server, "GET", "/ui/", bearer, "").status, 200);
    let signed_out = ask(&server, "POST", "/ui/sign-out", &cookie, "");
    assert_eq!((signed_out.status, signed_out.header("location")), (303, "/ui/sign-in"));
    assert!(signed_out.header("set-cookie").contains("Max-Age=0"));
}
