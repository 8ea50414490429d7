// The smallest child: says that it is ready, sends back what it gets, and ends by itself on request.
process.on("message", (/** @type {{ type: string }} */ message) => {
  if (message.type === "end") process.exit(3);
  process.send?.({ ...message, type: "echo", pid: process.pid });
});
process.send?.({ type: "ready" });
