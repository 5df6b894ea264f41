/**
 * Messages between the runner and its egress process, as JSON over the channel of `fork`. Each side validates what it
 * receives. The channel keeps the order, and the egress process exits when the channel closes.
 *
 *     runner                                    egress process
 *     start                          ──►
 *                                    ◄──        ready {ports}
 *     guest, forget, closed {id}     ──►        in force: open flows are judged again, or closed
 *                                    ◄──        done {id}
 *     counters {id}                  ──►
 *                                    ◄──        counters {id}
 *                                    ◄──        notes {id}
 *     noted {id}                     ──►        they are durable
 *
 * `guest` carries secrets: no message of the runner may be logged.
 */
import { z } from 'zod';
import { JudgedCounters, EgressNote, VmEgress } from './egress-protocol.ts';

/** Descriptors of the egress process: the pipes of its hostctl. The one before them is the channel to the runner. */
export const HOSTCTL_DESCRIPTORS = { input: 4, output: 5 } as const;

export const MAX_NOTES_PER_MESSAGE = 256;
const MAX_PORT = 65_535;
const MAX_VM_ID_LENGTH = 64;

const Id = z.int().nonnegative();
const Port = z.int().min(1).max(MAX_PORT);
const VmId = z.string().min(1).max(MAX_VM_ID_LENGTH);

/** Input of `compileClosedAddresses`. */
const Closed = z.strictObject({
  openPrivateRanges: z.array(z.string()).readonly(),
  own: z.array(z.string()).readonly(),
});

export const EgressStart = z.strictObject({
  type: z.literal('start'),
  /** Address of all listeners. */
  resolver: z.ipv4(),
  /** As in COPPICE_RESOLVERS; empty: the resolvers of the host. */
  resolvers: z.array(z.string()),
  closed: Closed,
});
export type EgressStart = z.infer<typeof EgressStart>;

/** Sets or replaces the policy of a guest. Another `vmId` at the address closes the connections of the previous one. */
export const EgressGuest = z.strictObject({
  type: z.literal('guest'),
  id: Id,
  address: z.ipv4(),
  vmId: VmId,
  egress: VmEgress,
});
export type EgressGuest = z.infer<typeof EgressGuest>;

export const RunnerMessage = z.discriminatedUnion('type', [
  EgressStart,
  EgressGuest,
  /** The answer is `done` also for an unknown address. */
  z.strictObject({ type: z.literal('forget'), id: Id, address: z.ipv4() }),
  /** Replaces the closed addresses of `start`. */
  z.strictObject({ type: z.literal('closed'), id: Id, closed: Closed }),
  z.strictObject({ type: z.literal('counters'), id: Id, address: z.ipv4() }),
  z.strictObject({ type: z.literal('noted'), id: Id }),
]);
export type RunnerMessage = z.infer<typeof RunnerMessage>;

type Question = Extract<RunnerMessage, { id: number }>;
/** A question without its id. */
export type Ask = Question extends infer Q ? (Q extends Question ? Omit<Q, 'id'> : never) : never;

/** Ports of the listeners on the resolver's address, chosen by the kernel. */
export const EgressPorts = z.strictObject({ dnsUdp: Port, dnsTcp: Port, proxy: Port, credentials: Port });
export type EgressPorts = z.infer<typeof EgressPorts>;

export const VmNote = z.strictObject({ vmId: VmId, note: EgressNote });
export type VmNote = z.infer<typeof VmNote>;

export const EgressMessage = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('ready'), ports: EgressPorts }),
  /** With `error` the guest's connections are closed, and everything is refused until the next `guest` message. */
  z.strictObject({ type: z.literal('done'), id: Id, error: z.string().optional() }),
  /** `counters` is null if no guest has the address. */
  z.strictObject({ type: z.literal('counters'), id: Id, counters: JudgedCounters.nullable() }),
  z.strictObject({
    type: z.literal('notes'),
    id: Id,
    notes: z.array(VmNote).min(1).max(MAX_NOTES_PER_MESSAGE),
  }),
]);
export type EgressMessage = z.infer<typeof EgressMessage>;
