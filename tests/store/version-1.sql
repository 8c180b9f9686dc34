-- One run with two revisions, as version 1 of the store wrote it.
PRAGMA application_id = 1735355492;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE evaluations (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        digest TEXT NOT NULL,
        stored_ns INTEGER NOT NULL,
        document TEXT NOT NULL,
        UNIQUE (run, revision, digest)
    );
INSERT INTO "evaluations" VALUES(1,1,1,'6a967010c874e9b51148c5ff',1790000100000000000,'{"unit": "request", "run_id": "4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7", "trace_ids": ["4bf92f3577b34da6a3ce929d0e0e4736"], "span_id": "00f067aa0ba902b7", "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": false, "reason": "Expected refund was not called.", "tools_used": ["find_order"], "expected_tools": ["find_order", "refund"], "scores": [{"metric": "tool_correctness", "value": 0.5, "passed": false, "threshold": 1, "label": "fail", "reason": "Expected but not called: refund.", "error": null}, {"metric": "tool_recall", "value": 0.5, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 0.6666666666666666, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [{"kind": "missing", "tool": "refund", "agent": "support", "instead": null, "detail": null, "expected_at": 1, "called_at": null}], "revision": 1, "digest": "6a967010c874e9b51148c5ff", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000000000000000, "end_ns": null, "input": "Money back for order 7.", "tool_calls": [{"name": "find_order"}], "available_tools": ["find_order", "refund"], "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "missing", "expected": "refund", "called_at": null}]}');
INSERT INTO "evaluations" VALUES(2,1,2,'d758730e54e497d4faa9d84e',1790000100000000000,'{"unit": "request", "run_id": "4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7", "trace_ids": ["4bf92f3577b34da6a3ce929d0e0e4736"], "span_id": "00f067aa0ba902b7", "golden_id": "refund", "golden_match": {"how": "given", "similarity": 1.0}, "status": "scored", "passed": true, "reason": "All 2 expected tools were called, in order.", "tools_used": ["find_order", "refund"], "expected_tools": ["find_order", "refund"], "scores": [{"metric": "tool_correctness", "value": 1.0, "passed": true, "threshold": 1, "label": "pass", "reason": null, "error": null}, {"metric": "tool_recall", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_precision", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_f1", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "tool_order", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "argument_correctness", "value": null, "passed": null, "threshold": 1, "label": "not_evaluated", "reason": "the golden states no arguments", "error": null}, {"metric": "result_correctness", "value": null, "passed": null, "threshold": 1, "label": "not_evaluated", "reason": "the golden states no results", "error": null}, {"metric": "effect_correctness", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "no tool has a declared effect", "error": null}, {"metric": "tool_success", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "redundant_calls", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "unknown_tools", "value": 1.0, "passed": null, "threshold": null, "label": null, "reason": null, "error": null}, {"metric": "forbidden_tools", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden forbids nothing", "error": null}, {"metric": "call_budget", "value": null, "passed": null, "threshold": 1.0, "label": "not_evaluated", "reason": "the golden limits no calls", "error": null}], "faults": [], "revision": 2, "digest": "d758730e54e497d4faa9d84e", "scoring_version": 4, "health": {"orphan_spans": 0, "missing_root": false, "stitched": 0, "split": false, "dropped_attributes": 0, "arguments_absent": 0, "arguments_unreadable": 0, "content_off": false, "lookalikes": [], "merged": 0, "unended": 0, "began_late": 0}, "named_golden_id": null, "component": null, "agent": "support", "service": "shop", "environment": null, "session_id": null, "span_name": null, "start_ns": 1790000000000000000, "end_ns": null, "input": "Money back for order 7.", "tool_calls": [{"name": "find_order"}, {"name": "refund"}], "available_tools": ["find_order", "refund"], "conventions": [], "rows": [{"verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": true}, {"verdict": "paired", "expected": "refund", "called_at": 1, "in_order": true}]}');
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
INSERT INTO "runs" VALUES(1,'4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7',1790000000000000000,2,2,1,'request','refund','support','shop',NULL,NULL,'money back for order 7.');
CREATE TABLE scores (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        metric TEXT NOT NULL,
        value REAL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, metric)
    ) WITHOUT ROWID;
INSERT INTO "scores" VALUES(1,'argument_correctness',NULL,1790000000000000000);
INSERT INTO "scores" VALUES(1,'call_budget',NULL,1790000000000000000);
INSERT INTO "scores" VALUES(1,'effect_correctness',NULL,1790000000000000000);
INSERT INTO "scores" VALUES(1,'forbidden_tools',NULL,1790000000000000000);
INSERT INTO "scores" VALUES(1,'redundant_calls',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'result_correctness',NULL,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_correctness',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_f1',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_order',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_precision',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_recall',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'tool_success',1.0,1790000000000000000);
INSERT INTO "scores" VALUES(1,'unknown_tools',1.0,1790000000000000000);
CREATE TABLE tools (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        tool TEXT NOT NULL,
        role TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, tool, role)
    ) WITHOUT ROWID;
INSERT INTO "tools" VALUES(1,'findorder','called',1790000000000000000);
INSERT INTO "tools" VALUES(1,'findorder','expected',1790000000000000000);
INSERT INTO "tools" VALUES(1,'refund','called',1790000000000000000);
INSERT INTO "tools" VALUES(1,'refund','expected',1790000000000000000);
CREATE TABLE traces (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        trace_id TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, trace_id)
    ) WITHOUT ROWID;
INSERT INTO "traces" VALUES(1,'4bf92f3577b34da6a3ce929d0e0e4736',1790000000000000000);
CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id
    );
CREATE INDEX tools_listed ON tools (tool, role, time_ns, run);
CREATE INDEX scores_listed ON scores (metric, time_ns, run, value);
CREATE INDEX traces_listed ON traces (trace_id, time_ns, run);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('evaluations',2);
COMMIT;
