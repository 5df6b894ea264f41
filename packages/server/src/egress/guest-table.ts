/** The rights of each guest, as the runner sent them. The listeners of this process have no other source of rights. */
import type { CompiledPolicy } from '@coppice/contract';
import type { JudgedCounters, EgressNote } from '../lib/protocol/egress-protocol.ts';
import type { HeldCredential } from './credentials/request/outbound-request.ts';

export interface GuestTable {
  /**
   * Finds a guest by the source address of a connection, which the ruleset has checked. undefined: refuse everything.
   */
  findByAddress(address: string): Guest | undefined;
}

export type CounterName = keyof JudgedCounters;

/** One sandbox at its address, until it is forgotten. `policy` and `grants` change during its life. */
export interface Guest {
  readonly address: string;
  readonly vmId: string;
  readonly policy: CompiledPolicy;
  /** Credentials by the name of their service. */
  readonly grants: ReadonlyMap<string, HeldCredential>;

  /**
   * Calls `close` once when the guest is forgotten, or at once if it is already forgotten. Returns a function that
   * unsubscribes.
   */
  onForget(close: () => void): () => void;

  /**
   * Calls `judgeAgain` when the policy or the grants have changed, before the runner is informed that they are in
   * force. Returns a function that unsubscribes.
   */
  onChange(judgeAgain: () => void): () => void;

  /** Records a note. `network.blocked` notes are coalesced with their count. It never waits and never loses a note. */
  note(note: EgressNote): void;

  /** Resolves when the note is on the host's disk. Rejects when that takes too long, or when too many notes wait. */
  noteDurably(note: EgressNote): Promise<void>;

  count(counter: CounterName, by?: number): void;
}
