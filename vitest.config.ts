import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: "test/helpers/global-setup.ts",
    reporters: ["default", "./test/helpers/reporter.ts"],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    retry: 0,
    pool: "forks",
    maxWorkers: 2,
    // Tests run what is published. Untransformed, "spillway" and "../../dist/…" are one and the same module instance.
    server: { deps: { external: [/\/dist\//] } },
  },
});
