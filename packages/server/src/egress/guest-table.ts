/** Who may send what, as the runner told it: the only thing that the listeners of this process ask about a guest. */
import type { CompiledPolicy } from '@coppice/contract';
import type { JudgedCounters, EgressNote } from '../lib/protocol/egress-protocol.ts';
import type { HeldCredential } from './credentials/request/outbound-request.ts';

export interface GuestTable {
  /** By the source address of a connection, which the ruleset has checked. undefined: refuse everything. */
  findByAddress(address: string): Guest | undefined;
}

export type CounterName = keyof JudgedCounters;

/** One sandbox at its address, until it is forgotten. `policy` and `grants` change under whoever holds it. */
export interface Guest {
  readonly address: string;
  readonly vmId: string;
  readonly policy: CompiledPolicy;
  /** By the service's name. */
  readonly grants: ReadonlyMap<string, HeldCredential>;

  /** Calls `close` once, when the guest is forgotten. At once if it is already. What it answers takes the wish back. */
  onForget(close: () => void): () => void;

  /** Calls `judgeAgain` when the policy or the grants are other ones, before the runner hears that they are in force. */
  onChange(judgeAgain: () => void): () => void;

  /** `network.blocked` is coalesced, with its count. Never waits and never loses one. */
  note(note: EgressNote): void;

  /** Resolves when the note is on the host's disk; rejects when that takes too long, or too many wait. */
  noteDurably(note: EgressNote): Promise<void>;

  count(counter: CounterName, by?: number): void;
}
