-- Five runs, one of them with two revisions, as version 2 of the store wrote them.
PRAGMA application_id = 1735355492;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE deletions (trace_id TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "deletions" VALUES('00000000000000000000000000000009',1790000100000000000);
CREATE TABLE evaluations (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        digest TEXT NOT NULL,
        stored_ns INTEGER NOT NULL,
        document TEXT NOT NULL,
        UNIQUE (run, revision, digest)
    );
INSERT INTO "evaluations" VALUES(1,1,1,'6d43724bd878d1e9060699a6',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000001:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000001"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": false, "reason": "Expected refund and either send_mail or call-customer were not called; cancel_order was called but not expected.", "tools_used": ["Find_Order", "cancel_order"], "expected_tools": ["findOrder", "refund", "send_mail or call-customer"], "scores": [{"metric": "tool_correctness", "value": 0.3333333333333333, "passed": false, "threshold": 0.5, "label": "fail", "reason": "Expected but not called: refund and send_mail or call-customer.", "error": null}, {"metric": "tool_recall", "value": 0.3333333333333333, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 0.5, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.4, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "wrong_tool", "tool": "refund", "agent": "support", "instead": "cancel_order", "detail": null, "expected_at": 1, "called_at": 1}, {"kind": "missing", "tool": "send_mail or call-customer", "agent": "support", "instead": null, "detail": null, "expected_at": 2, "called_at": null}], "revision": 1, "digest": "6d43724bd878d1e9060699a6", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000001000000000, "end_ns": null, "input": "Money back for order 1.", "tool_calls": [{"name": "Find_Order"}, {"name": "cancel_order"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "findOrder", "called_at": 0, "in_order": true}, {"verdict": "missing", "expected": "refund", "called_at": null}, {"verdict": "missing", "expected": "send_mail or call-customer", "called_at": null}, {"verdict": "unexpected", "expected": null, "called_at": 1}]}');
INSERT INTO "evaluations" VALUES(2,1,2,'1ee9020abe69d203be6c148f',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000001:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000001"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "Expected refund was not called; exchangeItem was called but not expected.", "tools_used": ["Find_Order", "exchangeItem", "send_mail"], "expected_tools": ["findOrder", "refund", "send_mail or call-customer"], "scores": [{"metric": "tool_correctness", "value": 0.6666666666666666, "passed": true, "threshold": 0.5, "label": "pass", "reason": "Expected but not called: refund.", "error": null}, {"metric": "tool_recall", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "wrong_tool", "tool": "refund", "agent": "support", "instead": "exchangeItem", "detail": null, "expected_at": 1, "called_at": 1}], "revision": 2, "digest": "1ee9020abe69d203be6c148f", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000001000000000, "end_ns": null, "input": "Money back for order 1.", "tool_calls": [{"name": "Find_Order"}, {"name": "exchangeItem"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "findOrder", "called_at": 0, "in_order": true}, {"verdict": "missing", "expected": "refund", "called_at": null}, {"verdict": "unexpected", "expected": null, "called_at": 1}, {"verdict": "paired", "expected": "send_mail", "called_at": 2, "in_order": true}]}');
INSERT INTO "evaluations" VALUES(3,2,1,'1395a903a43fc6576b557afb',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000002:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000002"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "Expected send_mail or call-customer was not called; Web Search was called but not expected.", "tools_used": ["find_order", "refund", "Web Search"], "expected_tools": ["findOrder", "refund", "send_mail or call-customer"], "scores": [{"metric": "tool_correctness", "value": 0.6666666666666666, "passed": true, "threshold": 0.5, "label": "pass", "reason": "Expected but not called: send_mail or call-customer.", "error": null}, {"metric": "tool_recall", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "wrong_tool", "tool": "send_mail or call-customer", "agent": "support", "instead": "Web Search", "detail": null, "expected_at": 2, "called_at": 2}], "revision": 1, "digest": "1395a903a43fc6576b557afb", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000002000000000, "end_ns": null, "input": "Money back for order 2.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}, {"name": "Web Search"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "findOrder", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "missing", "expected": "send_mail or call-customer", "called_at": null}, {"verdict": "unexpected", "expected": null, "called_at": 2}]}');
INSERT INTO "evaluations" VALUES(4,3,1,'04fba73404d45f5c42e557ba',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000003:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000003"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": false, "reason": "All 3 expected tools were called, in order; delete_order was called but forbidden.", "tools_used": ["find_order", "refund", "send_mail", "delete_order"], "expected_tools": ["findOrder", "refund", "send_mail or call-customer"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 0.5, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 0.75, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.8571428571428571, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": 0.0, "passed": false, "threshold": 1.0, "label": "fail", "reason": "Called but forbidden: delete_order.", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "forbidden", "tool": "delete_order", "agent": "support", "instead": null, "detail": null, "expected_at": null, "called_at": 3}], "revision": 1, "digest": "04fba73404d45f5c42e557ba", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000003000000000, "end_ns": null, "input": "Money back for order 3.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}, {"name": "send_mail"}, {"name": "delete_order"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "findOrder", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "paired", "expected": "send_mail", "called_at": 2, "in_order": true}, {"verdict": "forbidden", "expected": null, "called_at": 3}]}');
INSERT INTO "evaluations" VALUES(5,4,1,'908fc8d0bafa5473f20c56d0',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000004:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000004"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "All 3 expected tools were called, in order; findOrder failed.", "tools_used": ["findOrder", "refund", "send_mail"], "expected_tools": ["findOrder", "refund", "send_mail or call-customer"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 0.5, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 0.5, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "failed", "tool": "findOrder", "agent": "support", "instead": null, "detail": null, "expected_at": 0, "called_at": 0}], "revision": 1, "digest": "908fc8d0bafa5473f20c56d0", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000004000000000, "end_ns": null, "input": "Money back for order 4.", "tool_calls": [{"name": "findOrder", "error": "KeyError"}, {"name": "refund"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "findOrder", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "paired", "expected": "send_mail", "called_at": 2, "in_order": true}]}');
INSERT INTO "evaluations" VALUES(6,5,1,'53e463b54bb0e7ae3e3ec1c3',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000005:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000005"], "span_id": null, "golden_id": null, "golden_match": null, "status": "not_evaluated", "passed": null, "reason": "No golden applies to this run: none was given.", "tools_used": ["Web Search"], "expected_tools": null, "scores": [{"metric": "tool_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_recall", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_precision", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_f1", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_order", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}], "faults": [], "revision": 1, "digest": "53e463b54bb0e7ae3e3ec1c3", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000005000000000, "end_ns": null, "input": "Money back for order 5.", "tool_calls": [{"name": "Web Search"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "tolerated", "expected": null, "called_at": 0, "note": "no golden"}]}');
CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        time_ns INTEGER NOT NULL,
        current INTEGER,
        revision INTEGER NOT NULL,
        passed INTEGER,
        unit TEXT NOT NULL,
        golden TEXT,
        agent TEXT,
        service TEXT,
        environment TEXT,
        session_id TEXT,
        text TEXT
    );
INSERT INTO "runs" VALUES(1,'00000000000000000000000000000001:00f067aa0ba902b7',1790000001000000000,2,2,1,'request','refund','support','shop',NULL,NULL,'money back for order 1.');
INSERT INTO "runs" VALUES(2,'00000000000000000000000000000002:00f067aa0ba902b7',1790000002000000000,3,1,1,'request','refund','support','shop',NULL,NULL,'money back for order 2.');
INSERT INTO "runs" VALUES(3,'00000000000000000000000000000003:00f067aa0ba902b7',1790000003000000000,4,1,0,'request','refund','support','shop',NULL,NULL,'money back for order 3.');
INSERT INTO "runs" VALUES(4,'00000000000000000000000000000004:00f067aa0ba902b7',1790000004000000000,5,1,1,'request','refund','support','shop',NULL,NULL,'money back for order 4.');
INSERT INTO "runs" VALUES(5,'00000000000000000000000000000005:00f067aa0ba902b7',1790000005000000000,6,1,NULL,'request',NULL,'support','shop',NULL,NULL,'money back for order 5.');
CREATE TABLE scores (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        metric TEXT NOT NULL,
        value REAL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, metric)
    ) WITHOUT ROWID;
INSERT INTO "scores" VALUES(1,'argument_correctness',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'argument_correctness',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'argument_correctness',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'argument_correctness',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'argument_correctness',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'call_budget',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'call_budget',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'call_budget',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'call_budget',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'call_budget',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'effect_correctness',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'effect_correctness',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'effect_correctness',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'effect_correctness',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'effect_correctness',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'forbidden_tools',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'forbidden_tools',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'forbidden_tools',0.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'forbidden_tools',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'forbidden_tools',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'redundant_calls',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'redundant_calls',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'redundant_calls',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'redundant_calls',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'redundant_calls',1.0,1790000005000000000);
INSERT INTO "scores" VALUES(1,'result_correctness',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'result_correctness',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'result_correctness',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'result_correctness',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'result_correctness',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_correctness',6.66666666666666629659e-01,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_correctness',6.66666666666666629659e-01,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_correctness',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_correctness',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_correctness',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_f1',6.66666666666666629659e-01,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_f1',6.66666666666666629659e-01,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_f1',8.57142857142857095276e-01,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_f1',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_f1',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_order',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_order',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_order',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_order',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_order',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_precision',6.66666666666666629659e-01,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_precision',6.66666666666666629659e-01,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_precision',0.75,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_precision',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_precision',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_recall',6.66666666666666629659e-01,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_recall',6.66666666666666629659e-01,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_recall',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_recall',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_recall',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_success',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_success',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_success',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_success',6.66666666666666629659e-01,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_success',1.0,1790000005000000000);
INSERT INTO "scores" VALUES(1,'unknown_tools',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'unknown_tools',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'unknown_tools',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'unknown_tools',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'unknown_tools',NULL,1790000005000000000);
CREATE TABLE tools (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        tool TEXT NOT NULL,
        role TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, tool, role)
    ) WITHOUT ROWID;
INSERT INTO "tools" VALUES(2,'callcustomer','expected',1790000002000000000);
INSERT INTO "tools" VALUES(2,'callcustomer','missing',1790000002000000000);
INSERT INTO "tools" VALUES(3,'deleteorder','called',1790000003000000000);
INSERT INTO "tools" VALUES(3,'deleteorder','forbidden',1790000003000000000);
INSERT INTO "tools" VALUES(1,'exchangeitem','called',1790000001000000000);
INSERT INTO "tools" VALUES(1,'exchangeitem','unexpected',1790000001000000000);
INSERT INTO "tools" VALUES(1,'findorder','called',1790000001000000000);
INSERT INTO "tools" VALUES(2,'findorder','called',1790000002000000000);
INSERT INTO "tools" VALUES(3,'findorder','called',1790000003000000000);
INSERT INTO "tools" VALUES(4,'findorder','called',1790000004000000000);
INSERT INTO "tools" VALUES(1,'findorder','expected',1790000001000000000);
INSERT INTO "tools" VALUES(2,'findorder','expected',1790000002000000000);
INSERT INTO "tools" VALUES(3,'findorder','expected',1790000003000000000);
INSERT INTO "tools" VALUES(4,'findorder','expected',1790000004000000000);
INSERT INTO "tools" VALUES(4,'findorder','failed',1790000004000000000);
INSERT INTO "tools" VALUES(2,'refund','called',1790000002000000000);
INSERT INTO "tools" VALUES(3,'refund','called',1790000003000000000);
INSERT INTO "tools" VALUES(4,'refund','called',1790000004000000000);
INSERT INTO "tools" VALUES(1,'refund','expected',1790000001000000000);
INSERT INTO "tools" VALUES(2,'refund','expected',1790000002000000000);
INSERT INTO "tools" VALUES(3,'refund','expected',1790000003000000000);
INSERT INTO "tools" VALUES(4,'refund','expected',1790000004000000000);
INSERT INTO "tools" VALUES(1,'refund','missing',1790000001000000000);
INSERT INTO "tools" VALUES(1,'sendmail','called',1790000001000000000);
INSERT INTO "tools" VALUES(3,'sendmail','called',1790000003000000000);
INSERT INTO "tools" VALUES(4,'sendmail','called',1790000004000000000);
INSERT INTO "tools" VALUES(1,'sendmail','expected',1790000001000000000);
INSERT INTO "tools" VALUES(2,'sendmail','expected',1790000002000000000);
INSERT INTO "tools" VALUES(3,'sendmail','expected',1790000003000000000);
INSERT INTO "tools" VALUES(4,'sendmail','expected',1790000004000000000);
INSERT INTO "tools" VALUES(2,'sendmail','missing',1790000002000000000);
INSERT INTO "tools" VALUES(2,'websearch','called',1790000002000000000);
INSERT INTO "tools" VALUES(5,'websearch','called',1790000005000000000);
INSERT INTO "tools" VALUES(2,'websearch','unexpected',1790000002000000000);
CREATE TABLE traces (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        trace_id TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, trace_id)
    ) WITHOUT ROWID;
INSERT INTO "traces" VALUES(1,'00000000000000000000000000000001',1790000001000000000);
INSERT INTO "traces" VALUES(2,'00000000000000000000000000000002',1790000002000000000);
INSERT INTO "traces" VALUES(3,'00000000000000000000000000000003',1790000003000000000);
INSERT INTO "traces" VALUES(4,'00000000000000000000000000000004',1790000004000000000);
INSERT INTO "traces" VALUES(5,'00000000000000000000000000000005',1790000005000000000);
CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id
    );
CREATE INDEX tools_listed ON tools (tool, role, time_ns, run);
CREATE INDEX scores_listed ON scores (metric, time_ns, run, value);
CREATE INDEX traces_listed ON traces (trace_id, time_ns, run);
CREATE INDEX deletions_listed ON deletions (time_ns);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('evaluations',6);
COMMIT;
