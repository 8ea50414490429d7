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

  FILE holds one call per line. Without FILE, or with "-", lines are read from stdin. A line is a
  URL, or a JSON object of which only "url" is needed:
    {"url": "https://…", "method": "PUT", "headers": {"x-a": "b"}, "body": {"a": 1}, "id": "order-17"}
  "body" is a string, or an object or array that is sent as JSON. With a body the method is POST
  unless given, else GET. "id" names the call in the output; otherwise the number of its line does.
  Empty lines and lines that begin with # are skipped. The file may be of any length: it is read as
  room comes.

Limits (one at least; a host without a limit is refused)
  -l, --limit HOST=RATE   At most so many starts per period: api.example.com=10/s,
                          localhost:8080=600/m, api.example.com/search=30/m, '*.example.com=5/10s'.
                          With a *, each host has a queue and a rate of its own. May be repeated.
  -r, --rate RATE         The same as --limit '*=RATE': each host that has no other limit.
  -c, --config FILE       A .js, .mjs, .json or (Node 22.18 and later) .ts file. Its default export
                          is what defineLimits() takes or returns, or { limits, redis, prefix }.
                          --limit changes the rate of a limit in it, or adds one.

Sending
  -H, --header 'NAME: VALUE'
                          For every call, to every host, whose line has no such header. May be
                          repeated. Like those of the lines it is stored in Redis with the call; for
                          what may not be, there is \`headers\` of a limit in --config.
      --retries N         Further attempts after no answer and after statuses 408, 429, 500, 502,
                          503 and 504; each waits for its turn like any call. Only for methods that
                          may be repeated (not POST or PATCH), and for calls with a header
                          idempotency-key. Default: 2
      --timeout DURATION  For each attempt: 500ms, 30s, 5m. Default: 30s
      --concurrency N     Calls in flight at once. Default: 1000

Results
  -o, --output FILE       One line of JSON per call, in the order in which they end. Default: stdout.
                          FILE is overwritten, but appended to with --name. A line is
                            {"id", "line", "url", "status", "headers", "body" (or "bodyBase64", if it
                             is no UTF-8, or "path", or "bodyDropped"), "attempts",
                             "waited" (ms from the queue to the first attempt)}   or
                            {"id", "line", "url", "status", "attempts",
                             "error": {"code", "message"}}
                          where "id" is a string that the line gave, or the number of the line.
      --bodies DIR        Write each body to a file in DIR, named by the number of its line.
  -q, --quiet             No progress and no summary on stderr.

Stopping and continuing
  -n, --name NAME         A run that can be continued; needs --redis and -o FILE. After Ctrl-C or a
                          crash the same command goes on: it skips the calls that have a result in
                          FILE, and sends none again that was answered. (Each answer is kept in
                          Redis for 7 days, so one that could not be written is not lost.) A call
                          that a crash cut off in flight is sent again if its method may be
                          repeated, and fails with ERR_MAYBE_SENT otherwise. Lines may be added to
                          the input meanwhile; those without "id" may not be changed or moved.

  The first Ctrl-C (or SIGTERM) stops sending and waits for the calls in flight; the second one ends
  the command at once. Without --name, calls that still waited are dropped.

Redis
      --redis URL         Default: that of --config, else REDIS_URL, else an embedded Valkey that ends
                          with the run.
      --prefix PREFIX     Processes with the same prefix share queues and rates, and send each
                          other's calls. Default: that of --config, else spillway-run, or
                          spillway-run:NAME for a run with a name.

Exit status
    0  every call was answered with a status below 400
    1  some call was not: no answer, a status of 400 or above, or a line that is no call (reported
       with its number; the others are sent all the same). Or the run could not go on.
    2  wrong usage, or FILE names a host without a limit: nothing was sent
  130  stopped by Ctrl-C; 143 by SIGTERM; 141 because the reader of stdout went away
`;
