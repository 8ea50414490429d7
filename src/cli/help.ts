export const HELP = `spillway: sends HTTP calls at a fixed rate, through a bounded queue on Redis

Usage
  spillway run [options] [FILE]       send the calls in FILE, one per line
  spillway simulate [options] [FILE]  replay recorded calls in moments, and see what limits make of them
  spillway COMMAND --help             its options
  spillway --version

Examples
  spillway run urls.txt --limit 'api.example.com=10/s' -o results.jsonl
  spillway simulate calls.csv --limit 'api.example.com=10/s' --compare '5/s burst=20' --svg picture.svg
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

export const SIMULATE_HELP = `spillway simulate: replays recorded calls, and tells what would have been sent, when, and refused

Usage
  spillway simulate [options] [FILE]

  The calls go through the very scripts that rule real ones, with the times of FILE in the place of
  the real time: nothing is sent, and days take moments. They wait as those of fetch and run do, and
  are answered at once, or after their "duration".

  FILE is CSV with a header line, or JSON Lines; without it, or with "-", stdin is read. Columns
  (others are ignored; only "at" is needed where there is one limit):
    at        when it came: milliseconds (or seconds: --seconds) since 1970 or from 0 on, or a time
              in ISO 8601, in UTC unless it says otherwise. In order, or with --sort.
    url       or, for a limit by its name, limit, key and producer
    method, headers (JSON Lines only), body      for the functions of a config
    priority  high, normal or low
    cost      what it weighs
    maxWait   how long it may wait for its slot: 500ms, 30s
    duration  how long it is in flight once it has started, where there is a concurrency. Default: 0

Limits (one at least)
  -l, --limit 'HOST=RATE [OPTION=VALUE …]'
                          'api.example.com=10/s', 'api.example.com=10/s burst=5 capacity=100'.
                          Options: burst, capacity, overflow, concurrency, lateness, maxWait, and
                          rules=20/m,200/h. May be repeated. Without urls, any name will do for HOST.
  -r, --rate 'RATE …'     The same as --limit '*=RATE …': each host that has no other limit.
  -c, --config FILE       As for spillway run: what defineLimits() takes or returns. --limit changes
                          a limit in it, or adds one. Its redis and prefix are not used.
      --compare '[NAME: ] [RATE] [OPTION=VALUE …]' or '[NAME: ] FILE'
                          Another policy for the same calls: what differs from the limits above, for
                          each of them, or a config file with others. May be repeated; the policies
                          stand side by side: --compare 'slower: 5/s' --compare capacity=50

Results (a table on stdout)
      --json              The same as JSON.
      --svg FILE          A picture of what was offered, sent and refused, and what waited.
  -o, --output FILE       One line of JSON per call, in the order of time within each bucket:
                            {"policy", "index", "at", "limit", "bucket", "outcome" ("sent" or a code
                             such as ERR_QUEUE_FULL), "startedAt", "waited"}, in ms

Input
      --seconds           Times that are numbers are seconds.
      --sort              Puts calls in the order of their times, in memory.

Redis
      --redis URL         Default: REDIS_URL, else an embedded Valkey. Keys of its own are used, and
                          deleted.
      --prefix PREFIX     What these keys begin with. Default: spillway

Exit status
    0  done, whatever became of the calls
    1  it could not go on
    2  wrong usage, or FILE holds something that is no call
  130  stopped by Ctrl-C; 143 by SIGTERM
`;
