"""Shows the runs in a store: as a live page in a browser, as one HTML file, and as Markdown.

- ``pages``: renders every view of the page.
- ``http_routes``: serves the views over HTTP, in the gateway or on loopback for `goldspan view`.
- ``run_list``, ``run_details``, ``golden_status``, ``unmatched_requests``: the data of each view.
- ``run_report``: the data of a report, and the report as Markdown; ``html_report`` renders it as HTML.
- ``assistant_tools``: the tools of coding assistants; ``assistant_arguments`` parses their arguments, and
  ``assistant_results`` turns the data of the views into bounded JSON. ``mcp_server`` serves the tools.
- ``page_templates``: the templates and assets; ``display_text`` formats texts, times and numbers.
"""
