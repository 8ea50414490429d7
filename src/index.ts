export * from "./errors.js";
export type { Client, ClientOptions, RunOptions } from "./intake/client.js";
export { createClient } from "./intake/client.js";
export type { CallInput, EnqueuedMany, EnqueueManyOptions } from "./intake/enqueue.js";
export type { FailedCall, LimitHandle } from "./intake/handle.js";
export type { Ticket } from "./intake/ticket.js";
export { type BucketRef, defineLimits, type LimitName, type Limits, type RequestHints } from "./limits/define.js";
export type { Duration } from "./limits/duration.js";
export type {
  HeadersSource,
  Limit,
  LimitOptions,
  LimitRequest,
  Overflow,
  PolicyOptions,
  RetryOptions,
} from "./limits/options.js";
export type { Rate, Rule } from "./limits/rate.js";
export type { SpillwayEvents } from "./observe/events.js";
export type { BucketStats } from "./observe/stats.js";
export type { CallBody, CallInit } from "./queue/call.js";
export type { CallResult } from "./queue/outcome.js";
export type { RedisOption } from "./redis/connect.js";
export type { FeedbackReader, FeedbackResponse, OwnFeedback } from "./send/feedback/types.js";
export type { Worker, WorkerOptions } from "./send/worker.js";
export { createWorker } from "./send/worker.js";
