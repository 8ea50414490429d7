import type { RunArguments } from "./arguments.js";
import { readSetting } from "./config.js";
import { connect } from "./connection.js";
import { count, Display, duration, Meter } from "./progress.js";
import { lock, NOTHING_EARLIER, readEarlier } from "./resume.js";
import { Results } from "./results.js";
import { Run, type Stop } from "./run.js";
import { Source } from "./source.js";
import { survey } from "./survey.js";

/** `spillway run`. Returns the exit status. @throws {UsageError} before anything has been sent. */
export async function runCommand(given: RunArguments): Promise<number> {
  const setting = await readSetting(given);
  const source = await Source.open(given);
  const named = given.name !== undefined && given.output !== undefined ? given.output : undefined;
  const unlock = named === undefined ? undefined : await lock(named);
  if (unlock !== undefined) process.once("exit", unlock);
  const earlier = named === undefined ? NOTHING_EARLIER : await readEarlier(named);
  const surveyed = source.countable ? await survey(source, setting.limits, earlier) : undefined;

  const meter = new Meter();
  const display = new Display(process.stderr, () => {
    const progress = run.progress();
    const perSecond = meter.read(progress.done, performance.now());
    return { ...progress, perSecond, left: meter.correct(progress) };
  });
  const say = (message: string): void => display.say(message);
  const onOutputError = (error: NodeJS.ErrnoException): void => {
    const gone = error.code === "EPIPE" && given.output === undefined;
    run.stop(gone ? { code: 141, why: "stdout was closed" } : { code: 1, why: `cannot write: ${error.message}` });
  };
  const results = await Results.open(given.output, given.bodies, named !== undefined);
  if (process.stdout.isTTY && given.output === undefined) results.onWrite = () => display.hide();
  const connection = await connect(setting, given.concurrency, say);
  const run = new Run({ given, setting, source, earlier, survey: surveyed, results, connection, say });

  results.onError(onOutputError);
  stopOnSignals(run, display);
  if (earlier.done > 0) say(`continuing ${given.name}: ${count(earlier.done)} calls have a result in ${named} already`);
  const began = performance.now();
  meter.read(earlier.done, began);
  if (!given.quiet) display.start();
  let stop: Stop | undefined;
  try {
    stop = await run.execute();
  } finally {
    await connection.close();
    await results.close();
    display.stop();
  }
  if (!given.quiet || stop !== undefined) summarize(run, stop, performance.now() - began, given, say);
  return stop?.code ?? (run.progress().failed > 0 ? 1 : 0);
}

function stopOnSignals(run: Run, display: Display): void {
  let again = false;
  for (const [signal, code] of [["SIGINT", 130] as const, ["SIGTERM", 143] as const]) {
    process.on(signal, () => {
      if (again) {
        display.stop();
        process.exit(code);
      }
      again = true;
      display.say("stopping: waiting for calls in flight (once more to end at once)");
      run.stop({ code, why: signal });
    });
  }
}

function summarize(
  run: Run,
  stop: Stop | undefined,
  milliseconds: number,
  given: RunArguments,
  say: (message: string) => void,
): void {
  const { done, total, failed } = run.progress();
  const { retries, dropped } = run.tally;
  const reasons = run.tally.reasons();
  const of = total === undefined ? "" : ` of ${count(total)}`;
  const ended = `${count(done)}${of} calls have ended, ${count(failed)} failed`;
  const again = `${count(retries)} ${retries === 1 ? "retry" : "retries"}`;
  say(`${ended}${reasons === "" ? "" : ` (${reasons})`}, ${again}; it took ${duration(milliseconds)}`);
  if (stop === undefined) return;
  const left = total === undefined ? "the calls that were not read yet" : `${count(total - done)} calls`;
  if (given.name !== undefined) {
    say(
      `stopped (${stop.why}): ${left} are left, ${count(run.queued)} of them in the queue; the same command continues`,
    );
  } else {
    const also = total === undefined ? `${count(dropped)} calls in the queue and ` : "";
    say(`stopped (${stop.why}): ${also}${left} were not sent`);
  }
}
