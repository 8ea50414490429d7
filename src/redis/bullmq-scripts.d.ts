declare module "bullmq/dist/cjs/scripts/index.js" {
  /** BullMQ's Lua, by script name, with its includes already resolved. */
  const scripts: Record<string, { readonly name: string; readonly content: string; readonly keys: number } | undefined>;
  export default scripts;
}
