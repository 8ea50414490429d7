export const HELP = `spillway: sends HTTP calls at a fixed rate, through a bounded queue on Redis

Usage
  spillway run [options] [FILE]    send the calls in FILE, one per line
  spillway run --help              its options
  spillway --version

Example
  spillway run urls.txt --limit 'api.example.com=10/s' -o results.jsonl
`;

export const RUN_HELP = `spillway run: sends a list of HTTP calls, no faster than their limits allow

Usage
  spillway run [options] [FILE]

  FILE holds one call per line; without FILE, or with "-", lines are read from stdin. A line is a URL, or a JSON object:
    {"url": "https://…", "method": "POST", "headers": {"x-a": "b"}, "body": {"any": "JSON"}, "id": "order-17"}
  Only "url" is needed. "body" is a string, or an object or array that is sent as JSON. The method is POST with a body and
  GET without. "id" names the call in the output; otherwise the number of its line does. Empty lines and lines that
  begin with # are skipped. Lines are read as they are needed: a file may be of any length.

Limits (one is required; a host without a limit is refused)
  -l, --limit HOST=RATE     at most so many starts per period for this host: api.example.com=10/s, localhost:8080=600/m,
                            api.example.com/search=30/m, '*.example.com=5/10s', '*=1/s'. May be repeated. A pattern
                            with * gives each host a queue and a rate of its own.
  -r, --rate RATE           the same as --limit '*=RATE': each host that has no other limit
  -c, --config FILE         a .js, .mjs, .json (or, from Node 22.18 on, .ts) file. Its default export is what
                            defineLimits() takes or returns, or { limits, redis, prefix }. --limit is added to it.

Sending
  -H, --header 'NAME: VALUE'  for every call whose line has no such header. It is not stored in Redis, as the headers
                            of a line are. May be repeated. It goes to every host of the list.
      --retries N           further attempts when there is no answer, or status 408, 429, 500, 502, 503 or 504; each
                            waits for its turn as well. Only methods that may be repeated (not POST, not PATCH),
                            and calls with an idempotency-key header. Default: 2
      --timeout DURATION    for each attempt: 500ms, 30s, 5m. Default: 30s
      --concurrency N       calls in flight at once. Default: 1000

Results
  -o, --output FILE         one line of JSON per call, in the order in which they end. Default: stdout. FILE is overwritten,
                            except with --name. A line is
                            {"id", "line", "url", "status", "headers", "body" or "bodyBase64" or "path", "attempts",
                            "waited" (ms from the queue's acceptance to the first attempt)}, or
                            {"id", "line", "url", "status" (if any), "attempts" (if any), "error": {"code", "message"}}
      --bodies DIR          writes each body to a file in DIR, named by the number of the line, and "path" says where
  -q, --quiet               no progress on stderr, only errors

Stopping and continuing
  -n, --name NAME           makes the run durable; needs --redis and -o FILE. After Ctrl-C or a crash, the same command
                            continues: it skips the calls that FILE has a result of, sends none again that was answered
                            (answers are kept for 7 days until they are written), and appends to FILE. A call that a
                            crash cut off in flight is sent again if its method may be repeated, and otherwise fails
                            with ERR_MAYBE_SENT. Lines may be added to the input meanwhile, but not changed or moved.

  The first Ctrl-C (or SIGTERM) stops sending and waits for calls in flight; the second one ends at once. Without --name,
  calls that were not sent are dropped, and counted in the last line.

Redis
      --redis URL           Default: that of --config, then REDIS_URL, then an embedded Valkey that ends with the run
      --prefix PREFIX       Processes with the same prefix share queues and rates, and send each other's calls.
                            Default: that of --config, then spillway-run

Exit status
  0    every call was answered with a status below 400
  1    a call failed: no answer, a status of 400 or above, or a line that is no call (reported with its number; the
       others are sent all the same). Or the run could not go on.
  2    wrong usage, or a host in FILE without a limit: nothing was sent
  130  stopped by Ctrl-C (143: by SIGTERM, 141: the reader of stdout has gone)
`;
