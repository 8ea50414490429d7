/** The same scenario through a dispatcher as it is and through a throttled one. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Client } from "spillway";
import { throttle } from "spillway/undici";
import { Agent, type Dispatcher, MockAgent } from "undici";
import { bounded } from "../helpers/wait.js";
import { openDesk } from "./desk.js";

export interface Here {
  readonly dispatcher: Dispatcher;
  readonly origin: string;
  /** Requests that the server has got, as `GET /path`. */
  readonly seen: string[];
  /** Its connections. */
  readonly sockets: Socket[];
}

export interface Scenario {
  readonly agent?: () => Dispatcher;
  readonly onRequest?: (request: IncomingMessage, response: ServerResponse) => unknown;
  readonly onUpgrade?: (request: IncomingMessage, socket: Socket) => unknown;
  readonly run: (here: Here) => Promise<unknown>;
}

/** How the scenario went in both ways, with all that the server saw. */
export async function inBothWays(scenario: Scenario): Promise<{ plain: unknown; throttled: unknown }> {
  const plain = await play(scenario, (agent) => agent);
  await using desk = openDesk({ "127.0.0.1": { rate: "1000/s", concurrency: 50 } });
  const throttled = await play(scenario, (one) => one.compose(throttle(desk.client)));
  await idle(desk.client);
  return { plain, throttled };
}

/** Every place in flight has been given back. */
async function idle(client: Client): Promise<void> {
  for (let i = 0; ; i++) {
    const { inFlight, depth } = await client.limit("127.0.0.1").stats();
    if (inFlight + depth === 0) return;
    if (i > 200) throw new Error(`${inFlight} in flight and ${depth} waiting when all was over`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function play(
  { agent = () => new Agent(), onRequest, onUpgrade, run }: Scenario,
  dress: (agent: Dispatcher) => Dispatcher,
): Promise<unknown> {
  const seen: string[] = [];
  const sockets: Socket[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    void (onRequest ?? echo)(request, response);
  });
  const upgrade = (request: IncomingMessage, socket: Socket): void => {
    seen.push(`${request.method} ${request.url}`);
    onUpgrade?.(request, socket);
  };
  if (onUpgrade !== undefined) server.on("upgrade", upgrade).on("connect", upgrade);
  server.on("connection", (socket) => {
    sockets.push(socket);
    // Some scenarios break connections.
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const base = agent();
  const dispatcher = dress(base);
  try {
    const ended = await bounded(outcome(run({ dispatcher, origin, seen, sockets })), 15_000, "the scenario");
    return { ended: plainly(ended, origin), seen: [...seen] };
  } finally {
    await (base instanceof MockAgent ? base.close() : base.destroy());
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
}

const echo = (request: IncomingMessage, response: ServerResponse): void => void request.pipe(response);

/** What makes fetch send through it. Its types are those of another undici. */
export function through(dispatcher: Dispatcher, init: RequestInit = {}): RequestInit {
  const copy = { ...init };
  Reflect.set(copy, "dispatcher", dispatcher);
  return copy;
}

/** What a promise came to, in words that can be compared. */
export async function outcome(promise: Promise<unknown>): Promise<unknown> {
  try {
    return await promise;
  } catch (error) {
    return describe(error);
  }
}

function describe(error: unknown): unknown {
  if (!(error instanceof Error)) return { thrown: error };
  const { name, message, cause } = error;
  const code = "code" in error ? error.code : undefined;
  return { error: name, message, code, ...(cause !== undefined && { cause: describe(cause) }) };
}

/** The port differs from one server to the next. */
function plainly(value: unknown, origin: string): unknown {
  const { host, port } = new URL(origin);
  const text = JSON.stringify(value ?? null)
    .replaceAll(host, "HOST")
    .replaceAll(port, "PORT");
  return JSON.parse(text) as unknown;
}
