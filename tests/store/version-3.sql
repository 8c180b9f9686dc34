-- Five runs, one of them with two revisions, as version 3 of the store wrote them.
PRAGMA application_id = 1735355492;
PRAGMA user_version = 3;
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
INSERT INTO "evaluations" VALUES(1,1,1,'36279ece97cea09b2e683a7a',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000001:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000001"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "All 3 expected tools were called, in order.", "tools_used": ["find_order", "refund", "send_mail"], "expected_tools": ["find_order", "refund", "Send_Mail"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [], "broken": [], "unjudged": [], "revision": 1, "digest": "36279ece97cea09b2e683a7a", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000001000000000, "end_ns": null, "input": "Money back for order 1.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "paired", "expected": "Send_Mail", "called_at": 2, "in_order": true}]}');
INSERT INTO "evaluations" VALUES(2,2,1,'03f72d28c6bd32fac1c96382',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000002:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000002"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": false, "reason": "Expected Send_Mail was not called.", "tools_used": ["find_order", "refund"], "expected_tools": ["find_order", "refund", "Send_Mail"], "scores": [{"metric": "tool_correctness", "value": 0.6666666666666666, "passed": false, "threshold": 1.0, "label": "fail", "reason": "Expected but not called: Send_Mail.", "error": null}, {"metric": "tool_recall", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.8, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "missing", "tool": "Send_Mail", "agent": "support", "instead": null, "detail": null, "expected_at": 2, "called_at": null}], "broken": [{"about": "missing", "text": "Send_Mail was not called", "expected_at": 2, "called_at": null}], "unjudged": [], "revision": 1, "digest": "03f72d28c6bd32fac1c96382", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000002000000000, "end_ns": null, "input": "Money back for order 2.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "missing", "expected": "Send_Mail", "called_at": null}]}');
INSERT INTO "evaluations" VALUES(3,3,1,'36279ece97cea09b2e683a7a',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000003:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000003"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "All 3 expected tools were called, in order.", "tools_used": ["find_order", "refund", "send_mail"], "expected_tools": ["find_order", "refund", "Send_Mail"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [], "broken": [], "unjudged": [], "revision": 1, "digest": "36279ece97cea09b2e683a7a", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000003000000000, "end_ns": null, "input": "Money back for order 3.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "paired", "expected": "Send_Mail", "called_at": 2, "in_order": true}]}');
INSERT INTO "evaluations" VALUES(4,4,1,'12a522eda6d8709f85f2e433',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000004:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000004"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": false, "reason": "Expected refund was not called; cancel_order was called but not expected.", "tools_used": ["find_order", "cancel_order", "send_mail"], "expected_tools": ["find_order", "refund", "Send_Mail"], "scores": [{"metric": "tool_correctness", "value": 0.6666666666666666, "passed": false, "threshold": 1.0, "label": "fail", "reason": "Expected but not called: refund.", "error": null}, {"metric": "tool_recall", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "wrong_tool", "tool": "refund", "agent": "support", "instead": "cancel_order", "detail": null, "expected_at": 1, "called_at": 1}], "broken": [{"about": "missing", "text": "refund was not called", "expected_at": 1, "called_at": null}], "unjudged": [], "revision": 1, "digest": "12a522eda6d8709f85f2e433", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000004000000000, "end_ns": null, "input": "Money back for order 4.", "tool_calls": [{"name": "find_order"}, {"name": "cancel_order"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "missing", "expected": "refund", "called_at": null}, {"verdict": "unexpected", "expected": null, "called_at": 1}, {"verdict": "paired", "expected": "Send_Mail", "called_at": 2, "in_order": true}]}');
INSERT INTO "evaluations" VALUES(5,5,1,'9d577ecfad481ede6cd100e7',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000005:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000005"], "span_id": null, "golden_id": null, "golden_match": null, "status": "not_evaluated", "passed": null, "reason": "No golden applies to this run: none was given.", "tools_used": ["web_search"], "expected_tools": null, "scores": [{"metric": "tool_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_recall", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_precision", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_f1", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_order", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "none was given", "error": null}], "faults": [], "broken": [], "unjudged": [], "revision": 1, "digest": "9d577ecfad481ede6cd100e7", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000005000000000, "end_ns": null, "input": "Money back for order 5.", "tool_calls": [{"name": "web_search"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "tolerated", "expected": null, "called_at": 0, "note": "no golden"}]}');
INSERT INTO "evaluations" VALUES(6,2,2,'36279ece97cea09b2e683a7a',1790000100000000000,'{"unit": "request", "run_id": "00000000000000000000000000000002:00f067aa0ba902b7", "trace_ids": ["00000000000000000000000000000002"], "span_id": null, "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "All 3 expected tools were called, in order.", "tools_used": ["find_order", "refund", "send_mail"], "expected_tools": ["find_order", "refund", "Send_Mail"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 1.0, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": null, "passed": null, "threshold": null, "label": "not_evaluated", "reason": "the tools the agent was offered were not captured", "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [], "broken": [], "unjudged": [], "revision": 2, "digest": "36279ece97cea09b2e683a7a", "scoring_version": 5, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0, "calls_invisible": false, "unknown_spans": 0, "fallback": [], "calls_elsewhere": 0, "calls_nested": 0, "calls_unpaired": 0, "calls_unanswered": 0, "results_unknown": 0, "merged_beside": 0, "root_shared": 0, "without_content": [], "unknown_families": [], "idle_agents": []}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000002000000000, "end_ns": null, "input": "Money back for order 2.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}, {"name": "send_mail"}], "available_tools": [], "read_only": {}, "states_expectations": false, "asked_metrics": null, "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}, {"verdict": "paired", "expected": "Send_Mail", "called_at": 2, "in_order": true}]}');
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
    , shape INTEGER);
INSERT INTO "runs" VALUES(1,'00000000000000000000000000000001:00f067aa0ba902b7',1790000001000000000,1,1,1,'request','refund','support','shop',NULL,NULL,'money back for order 1.',-3616886308951144675);
INSERT INTO "runs" VALUES(2,'00000000000000000000000000000002:00f067aa0ba902b7',1790000002000000000,6,2,1,'request','refund','support','shop',NULL,NULL,'money back for order 2.',-3616886308951144675);
INSERT INTO "runs" VALUES(3,'00000000000000000000000000000003:00f067aa0ba902b7',1790000003000000000,3,1,1,'request','refund','support','shop',NULL,NULL,'money back for order 3.',-3616886308951144675);
INSERT INTO "runs" VALUES(4,'00000000000000000000000000000004:00f067aa0ba902b7',1790000004000000000,4,1,0,'request','refund','support','shop',NULL,NULL,'money back for order 4.',-7708797926433852489);
INSERT INTO "runs" VALUES(5,'00000000000000000000000000000005:00f067aa0ba902b7',1790000005000000000,5,1,NULL,'request',NULL,'support','shop',NULL,NULL,'money back for order 5.',-3121603634699022392);
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
INSERT INTO "scores" VALUES(1,'forbidden_tools',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'forbidden_tools',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'forbidden_tools',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'forbidden_tools',NULL,1790000004000000000);
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
INSERT INTO "scores" VALUES(1,'tool_correctness',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_correctness',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_correctness',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_correctness',6.66666666666666629659e-01,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_correctness',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_f1',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_f1',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_f1',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_f1',6.66666666666666629659e-01,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_f1',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_order',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_order',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_order',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_order',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_order',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_precision',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_precision',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_precision',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_precision',6.66666666666666629659e-01,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_precision',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_recall',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_recall',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_recall',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_recall',6.66666666666666629659e-01,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_recall',NULL,1790000005000000000);
INSERT INTO "scores" VALUES(1,'tool_success',1.0,1790000001000000000);
INSERT INTO "scores" VALUES(2,'tool_success',1.0,1790000002000000000);
INSERT INTO "scores" VALUES(3,'tool_success',1.0,1790000003000000000);
INSERT INTO "scores" VALUES(4,'tool_success',1.0,1790000004000000000);
INSERT INTO "scores" VALUES(5,'tool_success',1.0,1790000005000000000);
INSERT INTO "scores" VALUES(1,'unknown_tools',NULL,1790000001000000000);
INSERT INTO "scores" VALUES(2,'unknown_tools',NULL,1790000002000000000);
INSERT INTO "scores" VALUES(3,'unknown_tools',NULL,1790000003000000000);
INSERT INTO "scores" VALUES(4,'unknown_tools',NULL,1790000004000000000);
INSERT INTO "scores" VALUES(5,'unknown_tools',NULL,1790000005000000000);
CREATE TABLE substitutions (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        expected TEXT NOT NULL,
        called TEXT NOT NULL,
        PRIMARY KEY (run, expected, called)
    ) WITHOUT ROWID;
INSERT INTO "substitutions" VALUES(4,'refund','cancel_order');
CREATE TABLE tools (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        tool TEXT NOT NULL,
        role TEXT NOT NULL,
        time_ns INTEGER NOT NULL, name TEXT,
        PRIMARY KEY (run, tool, role)
    ) WITHOUT ROWID;
INSERT INTO "tools" VALUES(1,'findorder','called',1790000001000000000,'find_order');
INSERT INTO "tools" VALUES(1,'findorder','expected',1790000001000000000,'find_order');
INSERT INTO "tools" VALUES(1,'refund','called',1790000001000000000,'refund');
INSERT INTO "tools" VALUES(1,'refund','expected',1790000001000000000,'refund');
INSERT INTO "tools" VALUES(1,'sendmail','called',1790000001000000000,'send_mail');
INSERT INTO "tools" VALUES(1,'sendmail','expected',1790000001000000000,'Send_Mail');
INSERT INTO "tools" VALUES(2,'findorder','called',1790000002000000000,'find_order');
INSERT INTO "tools" VALUES(2,'findorder','expected',1790000002000000000,'find_order');
INSERT INTO "tools" VALUES(2,'refund','called',1790000002000000000,'refund');
INSERT INTO "tools" VALUES(2,'refund','expected',1790000002000000000,'refund');
INSERT INTO "tools" VALUES(2,'sendmail','called',1790000002000000000,'send_mail');
INSERT INTO "tools" VALUES(2,'sendmail','expected',1790000002000000000,'Send_Mail');
INSERT INTO "tools" VALUES(3,'findorder','called',1790000003000000000,'find_order');
INSERT INTO "tools" VALUES(3,'findorder','expected',1790000003000000000,'find_order');
INSERT INTO "tools" VALUES(3,'refund','called',1790000003000000000,'refund');
INSERT INTO "tools" VALUES(3,'refund','expected',1790000003000000000,'refund');
INSERT INTO "tools" VALUES(3,'sendmail','called',1790000003000000000,'send_mail');
INSERT INTO "tools" VALUES(3,'sendmail','expected',1790000003000000000,'Send_Mail');
INSERT INTO "tools" VALUES(4,'cancelorder','called',1790000004000000000,'cancel_order');
INSERT INTO "tools" VALUES(4,'cancelorder','unexpected',1790000004000000000,'cancel_order');
INSERT INTO "tools" VALUES(4,'findorder','called',1790000004000000000,'find_order');
INSERT INTO "tools" VALUES(4,'findorder','expected',1790000004000000000,'find_order');
INSERT INTO "tools" VALUES(4,'refund','expected',1790000004000000000,'refund');
INSERT INTO "tools" VALUES(4,'refund','missing',1790000004000000000,'refund');
INSERT INTO "tools" VALUES(4,'sendmail','called',1790000004000000000,'send_mail');
INSERT INTO "tools" VALUES(4,'sendmail','expected',1790000004000000000,'Send_Mail');
INSERT INTO "tools" VALUES(5,'websearch','called',1790000005000000000,'web_search');
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
CREATE INDEX tools_listed ON tools (tool, role, time_ns, run);
CREATE INDEX scores_listed ON scores (metric, time_ns, run, value);
CREATE INDEX traces_listed ON traces (trace_id, time_ns, run);
CREATE INDEX deletions_listed ON deletions (time_ns);
CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id, shape
    );
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('evaluations',6);
COMMIT;
