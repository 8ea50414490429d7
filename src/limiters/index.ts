export { createLimiter } from "./limiter.js";
export type {
  AtOptions,
  CountingLimiterOptions,
  Limiter,
  LimiterBlock,
  LimiterOptions,
  LimiterResult,
  StrictTakeOptions,
  TakeOptions,
  TokenBucketOptions,
} from "./options.js";
export { createUsage, type Usage, type UsageOptions } from "./usage.js";
export type {
  Algorithm,
  ClassicRule,
  FixedWindowRule,
  LeakyBucketRule,
  SlidingLogRule,
  SlidingWindowCounterRule,
  SlidingWindowRule,
  TokenBucketRule,
} from "./rule.js";
