import type { Reporter, SerializedError, TestModule } from "vitest/node";

/** Ends the output with the names of what was skipped and one line, "N passed, N failed, N skipped", in plain text. */
export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    // A file that does not load, a failing hook or a stray rejection fails the run without failing any test.
    let failed = unhandled.length;
    let passed = 0;
    const skipped: string[] = [];
    const count = (errors: readonly unknown[]) => (failed += errors.length > 0 ? 1 : 0);
    for (const module of modules) {
      count(module.errors());
      for (const suite of module.children.allSuites()) count(suite.errors());
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed") passed++;
        else if (state === "failed") failed++;
        else skipped.push(`${module.relativeModuleId} > ${test.fullName}`);
      }
    }
    const names = skipped.map((name) => `skipped: ${name}\n`).join("");
    // At exit, because other reporters and the teardown still print after this hook.
    process.once("exit", () => {
      process.stdout.write(`${names}${passed} passed, ${failed} failed, ${skipped.length} skipped\n`);
    });
  }
}
