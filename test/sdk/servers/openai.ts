import type { ServerResponse } from "node:http";
import type { Arrival } from "../../helpers/upstream.js";
import { type Account, openAccount, Window } from "../account.js";

/** The part of a request for a chat completion that matters here. */
interface ChatRequest {
  readonly messages: readonly { readonly content: string }[];
  readonly max_completion_tokens?: number;
  readonly stream?: boolean;
}

const read = ({ body = "" }: Arrival): ChatRequest => JSON.parse(body) as ChatRequest;

/** What a request may use is charged when it arrives: its text, a token for about four letters, and the longest answer. */
function tokensOf(request: ChatRequest): number {
  const letters = request.messages.reduce((sum, { content }) => sum + content.length, 0);
  return Math.ceil(letters / 4) + (request.max_completion_tokens ?? 16);
}

/** `1.5s`, `12ms`. */
const duration = (ms: number): string => (ms < 1_000 ? `${ms}ms` : `${ms / 1_000}s`);

const WORDS = ["It ", "waits ", "its ", "turn."];
const chunk = (delta: object, reason: string | null = null): string => {
  const choices = [{ index: 0, delta, logprobs: null, finish_reason: reason }];
  const value = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "gpt-4o", choices };
  return `data: ${JSON.stringify(value)}\n\n`;
};

export interface OpenAIOptions {
  /** In two seconds. */
  readonly requests: number;
  /** In two seconds. */
  readonly tokens: number;
  /** A stream sends its first words, and the others when this has resolved. */
  readonly halfway?: (call: string) => Promise<unknown>;
}

/**
 * OpenAI's chat completions: requests and tokens in a minute, here in two seconds. Refusals tell when to come back in ms.
 * https://platform.openai.com/docs/guides/rate-limits
 */
export function openOpenAI({ requests, tokens, halfway = () => Promise.resolve() }: OpenAIOptions): Promise<Account> {
  const windows = { requests: new Window(requests, 2_000), tokens: new Window(tokens, 2_000) };
  const waits = new WeakMap<Arrival, Window>();
  const id = ({ headers }: Arrival): string => String(headers["x-call"]);
  const left = ({ endsAt }: Window): number => Math.max(0, Math.ceil(endsAt - Date.now()));
  const stream = async (response: ServerResponse, arrival: Arrival, head: object): Promise<void> => {
    response.writeHead(200, { ...head, "content-type": "text/event-stream; charset=utf-8" });
    response.write(chunk({ role: "assistant", content: WORDS[0] }));
    await halfway(id(arrival));
    for (const content of WORDS.slice(1)) response.write(chunk({ content }));
    response.end(`${chunk({}, "stop")}data: [DONE]\n\n`);
  };
  return openAccount({
    id,
    accepts(arrival, at) {
      const cost = tokensOf(read(arrival));
      const room = { requests: windows.requests.has(at, 1), tokens: windows.tokens.has(at, cost) };
      if (!room.requests || !room.tokens) {
        waits.set(arrival, room.requests ? windows.tokens : windows.requests);
        return false;
      }
      windows.requests.take(1);
      windows.tokens.take(cost);
      return true;
    },
    head: () =>
      Object.fromEntries(
        Object.entries(windows).flatMap(([name, window]) => [
          [`x-ratelimit-limit-${name}`, `${window.limit}`],
          [`x-ratelimit-remaining-${name}`, `${window.remaining}`],
          [`x-ratelimit-reset-${name}`, duration(left(window))],
        ]),
      ),
    refuse(response, arrival, head) {
      const wait = left(waits.get(arrival) ?? windows.requests);
      const asked = { "retry-after": `${Math.ceil(wait / 1_000)}`, "retry-after-ms": `${wait}` };
      const message = `Rate limit reached for gpt-4o. Please try again in ${duration(wait)}.`;
      const error = { message, type: "tokens", param: null, code: "rate_limit_exceeded" };
      response.writeHead(429, { ...head, ...asked, "content-type": "application/json" }).end(JSON.stringify({ error }));
      return wait;
    },
    serve(response, arrival, head) {
      if (read(arrival).stream === true) return stream(response, arrival, head);
      const message = { role: "assistant", content: WORDS.join(""), refusal: null };
      const choices = [{ index: 0, message, logprobs: null, finish_reason: "stop" }];
      const value = { id: "chatcmpl-1", object: "chat.completion", created: 1, model: "gpt-4o", choices };
      return response.writeHead(200, { ...head, "content-type": "application/json" }).end(JSON.stringify(value));
    },
  });
}
