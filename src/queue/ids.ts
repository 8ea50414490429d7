import { randomBytes } from "node:crypto";
import type { BucketRef, Limits } from "../limits/define.js";
import { InvalidCallError, UnknownCallError } from "../errors.js";

let counter = 0;
const process = randomBytes(4).readUInt32LE().toString(36).padStart(7, "0");

/** An id for a new call: time, count, process. */
export function newId(): string {
  counter = (counter + 1) % 36 ** 5;
  return `${Date.now().toString(36).padStart(9, "0")}${counter.toString(36).padStart(5, "0")}${process}`;
}

const OWN = /^[\w.@=+-]{1,200}$/;

/**
 * The id of a call whose caller has named it. The mark keeps it apart from made ids, and from the names of other keys.
 *
 * @throws {InvalidCallError} when it cannot be an id.
 */
export function ownId(id: unknown): string {
  if (typeof id === "string" && OWN.test(id)) return `=${id}`;
  const got = typeof id === "string" ? JSON.stringify(id) : typeof id;
  throw new InvalidCallError(`Expected \`id\` to be 1 to 200 of the characters A-Z a-z 0-9 _ . @ = + -, got ${got}`);
}

/** The id as its caller knows it. */
export const plainId = (id: string): string => (id.startsWith("=") ? id.slice(1) : id);

/** A ticket's id names the bucket too, so that the id alone is enough to find the call. */
export const ticketId = (bucket: string, id: string): string => `${bucket}~${id}`;

/** @throws {UnknownCallError} when this is no ticket's id, or of a limit that is not declared here. */
export function parseTicketId(limits: Limits, given: unknown): { readonly ref: BucketRef; readonly id: string } {
  const ticket = typeof given === "string" ? given : typeof given;
  const at = ticket.lastIndexOf("~");
  const ref = at < 1 ? undefined : limits.ofBucket(ticket.slice(0, at));
  if (ref === undefined) throw new UnknownCallError(ticket);
  return { ref, id: ticket.slice(at + 1) };
}
