/** `throttle` changes when a request goes out, and nothing else: every scenario goes as without it. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, type Dispatcher, interceptors, MockAgent, request, RetryAgent, upgrade } from "undici";
import { expect, test } from "vitest";
import { freePort } from "../helpers/processes.js";
import { until } from "../helpers/wait.js";
import { inBothWays, outcome, type Scenario, through } from "./as-without.js";

/** Plays it in both ways, and returns how it went. */
async function same(scenario: Scenario): Promise<unknown> {
  const { plain, throttled } = await inBothWays(scenario);
  expect(throttled).toEqual(plain);
  return throttled;
}

/** These in turn, over and over. */
const answers = (...statuses: number[]): NonNullable<Scenario["onRequest"]> => {
  let asked = 0;
  return (_request, response) => response.writeHead(statuses[asked++ % statuses.length] ?? 200).end("answered");
};

test("request: status, headers, trailers, informational responses, opaque", async () => {
  const went = await same({
    onRequest: (_request, response) => {
      response.writeEarlyHints({ link: "</style.css>; rel=preload" });
      response.writeHead(201, { "x-one": "1", "set-cookie": ["a=1", "b=2"], trailer: "x-last" });
      response.write("body");
      response.addTrailers({ "x-last": "9" });
      response.end();
    },
    run: async ({ dispatcher, origin }) => {
      const infos: unknown[] = [];
      const onInfo = ({ statusCode }: { statusCode: number }): number => infos.push(statusCode);
      const query = { a: "1" };
      const response = await request(`${origin}/x`, { dispatcher, query, onInfo, opaque: { mine: 1 } });
      const { statusCode, headers, trailers, opaque } = response;
      delete headers["date"];
      return { statusCode, headers, body: await response.body.text(), trailers, opaque, infos };
    },
  });
  expect(went).toMatchObject({
    ended: { statusCode: 201, body: "body", trailers: { "x-last": "9" }, opaque: { mine: 1 }, infos: [103] },
    seen: ["GET /x?a=1"],
  });
});

test("stream and pipeline", async () => {
  const went = await same({
    run: async ({ dispatcher, origin }) => {
      const got: string[] = [];
      const sink = (): Writable =>
        new Writable({
          write(chunk: Buffer, _encoding, done) {
            got.push(chunk.toString());
            done();
          },
        });
      await dispatcher.stream({ origin, path: "/stream", method: "POST", body: "streamed" }, sink);
      const duplex = dispatcher.pipeline({ origin, path: "/pipeline", method: "POST" }, ({ body }) => body);
      await pipeline(Readable.from(["pi", "ped"]), duplex, sink());
      return got.join("");
    },
  });
  expect(went).toEqual({ ended: "streamedpiped", seen: ["POST /stream", "POST /pipeline"] });
});

test("a request body is read no faster than the server takes it", async () => {
  const went = await same({
    onRequest: async (incoming, response) => {
      await sleep(150);
      let bytes = 0;
      for await (const chunk of incoming) bytes += (chunk as Buffer).byteLength;
      response.end(String(bytes));
    },
    run: async ({ dispatcher, origin, seen }) => {
      let made = 0;
      const body = Readable.from(
        (function* () {
          for (; made < 400; made++) yield Buffer.alloc(65_536);
        })(),
      );
      const answer = request(origin, { dispatcher, method: "POST", body });
      await until(() => seen.length === 1);
      await sleep(60);
      const early = made < 390;
      return { early, bytes: await (await answer).body.text(), made };
    },
  });
  expect(went).toMatchObject({ ended: { early: true, bytes: "26214400", made: 400 } });
});

test("a response body is sent no faster than it is read", async () => {
  const size = 30 * 1024 * 1024;
  const went = await same({
    onRequest: async (_request, response) => {
      await pipeline(
        Readable.from(
          (function* () {
            for (let sent = 0; sent < size; sent += 65_536) yield Buffer.alloc(65_536);
          })(),
        ),
        response,
      );
    },
    run: async ({ dispatcher, origin, sockets }) => {
      const { body } = await request(origin, { dispatcher });
      await sleep(100);
      const held = (sockets[0]?.bytesWritten ?? 0) < size;
      let bytes = 0;
      for await (const chunk of body) bytes += (chunk as Buffer).byteLength;
      return { held, bytes };
    },
  });
  expect(went).toMatchObject({ ended: { held: true, bytes: size } });
});

test("a signal that has aborted, aborts before the answer, or in the middle of the body", async () => {
  const went = await same({
    onRequest: ({ url }, response) => void (url === "/half" && response.write("half")),
    run: async ({ dispatcher, origin, seen, sockets }) => {
      const reason = new Error("enough");
      const before = await outcome(request(`${origin}/never`, { dispatcher, signal: AbortSignal.abort(reason) }));
      const during = new AbortController();
      const waiting = outcome(request(`${origin}/wait`, { dispatcher, signal: during.signal }));
      await until(() => seen.includes("GET /wait"));
      during.abort(reason);
      const half = new AbortController();
      const { body } = await request(`${origin}/half`, { dispatcher, signal: half.signal });
      const text = outcome(body.text());
      half.abort(reason);
      const ended = { before, during: await waiting, half: await text };
      await until(() => sockets.every(({ destroyed }) => destroyed));
      return ended;
    },
  });
  const enough = { error: "Error", message: "enough" };
  expect(went).toMatchObject({
    ended: { before: enough, during: enough, half: enough },
    seen: ["GET /wait", "GET /half"],
  });
});

const upgraded = (_request: IncomingMessage, socket: Socket): void => {
  socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\nx-a: 1\r\n\r\nhello ");
  socket.pipe(socket);
};

test("upgrade: both ways, and a server that does not", async () => {
  const went = await same({
    onUpgrade: (incoming, socket) =>
      incoming.url === "/no"
        ? socket.end("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n")
        : upgraded(incoming, socket),
    run: async ({ dispatcher, origin }) => {
      const { headers, socket } = await upgrade(`${origin}/yes`, { dispatcher, protocol: "echo" });
      socket.end("there");
      let text = "";
      for await (const chunk of socket) text += String(chunk);
      const refused = await outcome(upgrade(`${origin}/no`, { dispatcher, protocol: "echo" }));
      return { headers, text, refused };
    },
  });
  expect(went).toMatchObject({
    ended: { headers: { upgrade: "echo", "x-a": "1" }, text: "hello there", refused: { message: "bad upgrade" } },
  });
});

test("connect: a tunnel, and a proxy that refuses", async () => {
  const went = await same({
    onUpgrade: ({ url }, socket) => {
      if (url === "refused.example:443") socket.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
      else {
        socket.write("HTTP/1.1 200 Connected\r\n\r\n");
        socket.pipe(socket);
      }
    },
    run: async ({ dispatcher, origin }) => {
      const { statusCode, socket } = await dispatcher.connect({ origin, path: "target.example:443" });
      socket.end("through");
      let text = "";
      for await (const chunk of socket) text += String(chunk);
      const refused = await dispatcher.connect({ origin, path: "refused.example:443" });
      refused.socket.destroy();
      return { statusCode, text, refused: refused.statusCode };
    },
  });
  expect(went).toMatchObject({ ended: { statusCode: 200, text: "through", refused: 403 } });
});

test("pipelining: as many at once on one connection, in order", async () => {
  let open = 0;
  let most = 0;
  const went = await same({
    agent: () => new Agent({ connections: 1, pipelining: 4 }),
    onRequest: async ({ url }, response) => {
      most = Math.max(most, ++open);
      // Later ones have their answers first.
      await sleep(120 - 10 * Number(url?.slice(1)));
      open--;
      response.end(url);
    },
    run: async ({ dispatcher, origin, sockets }) => {
      most = 0;
      // The first one makes the connection.
      await (await request(`${origin}/0`, { dispatcher })).body.text();
      const order: string[] = [];
      const ask = async (n: number): Promise<void> => {
        order.push(await (await request(`${origin}/${n}`, { dispatcher, blocking: false })).body.text());
      };
      await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(ask));
      return { order, most, connections: sockets.length };
    },
  });
  const paths = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `/${n}`);
  expect(went).toMatchObject({ ended: { order: paths, most: 4, connections: 1 } });
});

test("errors of the connection and of time", async () => {
  const port = await freePort();
  const went = await same({
    onRequest: ({ url }, response) => {
      if (url === "/reset") response.destroy();
      if (url === "/half") response.writeHead(200, { "content-length": "9" }).write("half", () => response.destroy());
      if (url === "/slow") response.write("begin");
    },
    run: async ({ dispatcher, origin }) => {
      const read = async (path: string, options: object = {}): Promise<unknown> =>
        outcome(request(origin + path, { dispatcher, ...options }).then(({ body }) => body.text()));
      return {
        refused: await outcome(request(`http://127.0.0.1:${port}/`, { dispatcher })).then((error) =>
          JSON.stringify(error).includes("ECONNREFUSED"),
        ),
        reset: await read("/reset"),
        half: await read("/half"),
        headersTimeout: await read("/never", { headersTimeout: 50 }),
        bodyTimeout: await read("/slow", { bodyTimeout: 50 }),
      };
    },
  });
  expect(went).toMatchObject({
    ended: {
      refused: true,
      reset: { code: "UND_ERR_SOCKET" },
      headersTimeout: { code: "UND_ERR_HEADERS_TIMEOUT" },
      bodyTimeout: { code: "UND_ERR_BODY_TIMEOUT" },
    },
  });
});

test("requests that undici refuses", async () => {
  const went = await same({
    run: async ({ dispatcher, origin }) => {
      const ask = (options: object): Promise<unknown> =>
        outcome(dispatcher.request({ origin, path: "/", method: "GET", ...options }));
      return [
        await ask({ headers: { "bad name": "x" } }),
        await ask({ path: "no slash" }),
        await ask({ method: "BAD METHOD" }),
        await ask({ body: 7 }),
        await ask({ method: "POST", body: "four", headers: { "content-length": "9" } }),
      ];
    },
  });
  expect(went).toMatchObject({ seen: [] });
});

test("a request body that fails", async () => {
  const went = await same({
    onRequest: (incoming, response) =>
      void incoming
        .on("error", () => {})
        .resume()
        .on("close", () => response.destroy()),
    run: async ({ dispatcher, origin }) => {
      const failing = (): Readable =>
        Readable.from(
          (async function* () {
            yield "some";
            await sleep(30);
            throw new Error("out of paper");
          })(),
        );
      const read = await outcome(request(origin, { dispatcher, method: "POST", body: failing() }));
      const destroyed = new Readable({ read() {} });
      const early = outcome(request(origin, { dispatcher, method: "POST", body: destroyed }));
      destroyed.destroy(new Error("no paper"));
      return { read, early: await early };
    },
  });
  expect(went).toMatchObject({ ended: { read: { message: "out of paper" }, early: { message: "no paper" } } });
});

test("a handler is called as often and in the same order, also one that pauses, or that throws", async () => {
  /** Keeps what it is told. */
  const listening = (
    told: string[],
    settle: () => void,
    more: Partial<Dispatcher.DispatchHandler>,
  ): Dispatcher.DispatchHandler => {
    const tell =
      (name: keyof Dispatcher.DispatchHandler) =>
      (...args: unknown[]): void => {
        told.push(name);
        const own: unknown = more[name];
        if (name.endsWith("End") || name.endsWith("Error")) settle();
        if (typeof own === "function") Reflect.apply(own, undefined, args);
      };
    return Object.fromEntries(
      (["onRequestStart", "onResponseStart", "onResponseData", "onResponseEnd", "onResponseError"] as const).map(
        (name) => [name, tell(name)],
      ),
    );
  };
  const went = await same({
    run: async ({ dispatcher, origin }) => {
      const ask = async (more: Partial<Dispatcher.DispatchHandler>, told: string[] = []): Promise<string[]> => {
        await new Promise<void>((resolve) => {
          dispatcher.dispatch({ origin, path: "/", method: "POST", body: "x" }, listening(told, resolve, more));
        });
        return told;
      };
      let kept: Dispatcher.DispatchController | undefined;
      const told: string[] = [];
      return {
        plain: await ask({}),
        paused: await ask(
          {
            onRequestStart: (controller) => {
              kept = controller;
              controller.pause();
            },
            onResponseStart: () =>
              void setTimeout(() => {
                told.push(`resumed, paused until now: ${kept?.paused}`);
                kept?.resume();
              }, 50),
          },
          told,
        ),
        aborted: await ask({
          onResponseStart: () => kept?.abort(new Error("by the first controller")),
          onRequestStart: (controller) => void (kept = controller),
        }),
        atStart: await ask({ onRequestStart: (controller) => controller.abort(new Error("at once")) }),
        thrown: await ask({
          onResponseStart: () => {
            throw new Error("thrown by the handler");
          },
        }),
      };
    },
  });
  expect(went).toMatchObject({
    ended: {
      plain: ["onRequestStart", "onResponseStart", "onResponseData", "onResponseEnd"],
      paused: [
        "onRequestStart",
        "onResponseStart",
        "resumed, paused until now: true",
        "onResponseData",
        "onResponseEnd",
      ],
    },
  });
});

test("with interceptors around it: retry, RetryAgent, redirect, responseError, dump", async () => {
  const retry = { maxRetries: 2, minTimeout: 1, retryAfter: false } as const;
  const around: ((dispatcher: Dispatcher) => Dispatcher)[] = [
    (one) => one.compose(interceptors.retry(retry)),
    (one) => new RetryAgent(one, retry),
  ];
  for (const dress of around) {
    const went = await same({
      onRequest: answers(503, 503, 200),
      run: async ({ dispatcher, origin }) => (await request(origin, { dispatcher: dress(dispatcher) })).body.text(),
    });
    expect(went).toMatchObject({ ended: "answered", seen: ["GET /", "GET /", "GET /"] });
  }
  const moved = await same({
    onRequest: ({ url }, response) =>
      void (url === "/a" ? response.writeHead(302, { location: "/b" }).end() : response.end("there")),
    run: async ({ dispatcher, origin }) => {
      const redirecting = dispatcher.compose(interceptors.redirect({ maxRedirections: 3 }));
      const response = await request(`${origin}/a`, { dispatcher: redirecting });
      return [await response.body.text(), response.context];
    },
  });
  expect(moved).toMatchObject({ seen: ["GET /a", "GET /b"] });
  await same({
    onRequest: answers(404),
    run: ({ dispatcher, origin }) => request(origin, { dispatcher: dispatcher.compose(interceptors.responseError()) }),
  });
  await same({
    run: async ({ dispatcher, origin }) => {
      const dumping = dispatcher.compose(interceptors.dump({ maxSize: 10 }));
      const { body } = await request(origin, { dispatcher: dumping, method: "POST", body: "short" });
      return body.text();
    },
  });
});

test("with interceptors inside it: all that they send is one call", async () => {
  const went = await same({
    agent: () => new Agent().compose(interceptors.retry({ minTimeout: 1, retryAfter: false })),
    onRequest: answers(503, 200),
    run: async ({ dispatcher, origin }) => (await request(origin, { dispatcher })).body.text(),
  });
  expect(went).toEqual({ ended: "answered", seen: ["GET /", "GET /"] });

  const moved = await same({
    agent: () => new Agent().compose(interceptors.redirect({ maxRedirections: 3 })),
    onRequest: ({ url }, response) =>
      void (url === "/a" ? response.writeHead(302, { location: "/b" }).end() : response.end("there")),
    run: async ({ dispatcher, origin }) => {
      const follow = async (path: string): Promise<unknown> => {
        const response = await request(origin + path, { dispatcher });
        return [await response.body.text(), response.context];
      };
      return [await follow("/a"), await follow("/b")];
    },
  });
  const [a, b] = [expect.stringMatching(/a$/) as string, expect.stringMatching(/b$/) as string];
  expect(moved).toMatchObject({
    ended: [
      ["there", { history: [a, b] }],
      ["there", { history: [b] }],
    ],
  });
});

test("a MockAgent, with request and with fetch", async () => {
  const went = await same({
    agent: () => {
      const mock = new MockAgent();
      mock.disableNetConnect();
      const pool = mock.get("http://127.0.0.1:8081");
      pool
        .intercept({ path: "/ok", method: "POST", body: "expected" })
        .reply(201, "mocked", { headers: { "x-a": "1" } });
      pool.intercept({ path: "/fetched" }).reply(200, "mocked");
      pool.intercept({ path: "/broken" }).replyWithError(new Error("broken"));
      return mock;
    },
    run: async ({ dispatcher }) => {
      const origin = "http://127.0.0.1:8081";
      const { statusCode, headers, body } = await request(`${origin}/ok`, {
        dispatcher,
        method: "POST",
        body: "expected",
      });
      return {
        statusCode,
        headers,
        text: await body.text(),
        fetched: await (await fetch(`${origin}/fetched`, through(dispatcher))).text(),
        broken: await outcome(request(`${origin}/broken`, { dispatcher })),
        unknown: await outcome(request(`${origin}/unknown`, { dispatcher })),
      };
    },
  });
  expect(went).toMatchObject({
    ended: { statusCode: 201, text: "mocked", fetched: "mocked", broken: { message: "broken" } },
  });
});

test("Node's own fetch: streams, an abort in the body, errors, redirects", async () => {
  const went = await same({
    onRequest: (incoming, response) => {
      if (incoming.url === "/moved") response.writeHead(307, { location: "/echo" }).end();
      else if (incoming.url === "/half") response.write("half");
      else if (incoming.url === "/reset") response.destroy();
      else incoming.pipe(response);
    },
    run: async ({ dispatcher, origin }) => {
      const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
        fetch(origin + path, through(dispatcher, init));
      const abort = new AbortController();
      const half = await ask("/half", { signal: abort.signal });
      const text = outcome(half.text());
      abort.abort();
      const stream = new Blob(["streamed"]).stream();
      return {
        moved: await (await ask("/moved", { method: "POST", body: "sent twice" })).text(),
        half: await text,
        reset: await outcome(ask("/reset")),
        stream: await (await ask("/echo", { method: "POST", body: stream, duplex: "half" })).text(),
      };
    },
  });
  expect(went).toMatchObject({
    ended: {
      moved: "sent twice",
      half: { error: "AbortError" },
      reset: { message: "fetch failed" },
      stream: "streamed",
    },
  });
});
