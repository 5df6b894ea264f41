import { compileNetworkPolicy, type ClosedAddresses, type CompiledPolicy } from '@coppice/contract';
import {
  NO_JUDGED_COUNTERS,
  type JudgedCounters,
  type EgressNote,
  type VmEgress,
} from '../lib/protocol/egress-protocol.ts';
import { compileGrants } from './credentials/request/compile-grants.ts';
import type { HeldCredential } from './credentials/request/outbound-request.ts';
import type { CounterName, Guest } from './guest-table.ts';
import { BlockedNotes } from '../lib/protocol/blocked-notes.ts';
import type { NoteOutbox } from './notes/note-outbox.ts';

export interface LiveGuestOptions {
  address: string;
  vmId: string;
  egress: VmEgress;
  closed: ClosedAddresses;
  outbox: NoteOutbox;
}

/** The state of one guest. The constructor throws `internal` for a policy that control could not have created. */
export class LiveGuest implements Guest {
  readonly address: string;
  readonly vmId: string;
  readonly #outbox: NoteOutbox;
  readonly #blocked: BlockedNotes;
  readonly #forgets = new Set<() => void>();
  readonly #judges = new Set<() => void>();
  readonly #counters: JudgedCounters = { ...NO_JUDGED_COUNTERS };
  #policy: CompiledPolicy;
  #grants: ReadonlyMap<string, HeldCredential>;
  #hasEnded = false;

  constructor({ address, vmId, egress, closed, outbox }: LiveGuestOptions) {
    this.address = address;
    this.vmId = vmId;
    this.#outbox = outbox;
    this.#blocked = new BlockedNotes({ offer: (note) => outbox.offer(vmId, note) });
    this.#policy = compileNetworkPolicy(egress.network, closed);
    this.#grants = compileGrants(egress.grants);
  }

  get policy(): CompiledPolicy {
    return this.#policy;
  }

  get grants(): ReadonlyMap<string, HeldCredential> {
    return this.#grants;
  }

  get counters(): JudgedCounters {
    return { ...this.#counters };
  }

  /**
   * Replaces policy and grants, or neither if it throws. All open connections are judged again, or closed, when it
   * returns.
   */
  change(egress: VmEgress): void {
    const policy = compileNetworkPolicy(egress.network, this.#policy.closed);
    const grants = compileGrants(egress.grants);
    this.#policy = policy;
    this.#grants = grants;
    for (const judgeAgain of this.#judges) judgeAgain();
  }

  /** Replaces the addresses that no policy opens. All open connections are judged again when it returns. */
  setClosed(closed: ClosedAddresses): void {
    this.#policy = { ...this.#policy, closed };
    for (const judgeAgain of this.#judges) judgeAgain();
  }

  /** Ends the guest: its address is free or belongs to another guest. Its connections close and its notes are sent. */
  end(): void {
    this.#hasEnded = true;
    const forgets = [...this.#forgets];
    this.#forgets.clear();
    for (const close of forgets) close();
    this.#judges.clear();
    for (const note of this.#blocked.end()) this.#outbox.force(this.vmId, note);
  }

  onForget(close: () => void): () => void {
    if (this.#hasEnded) close();
    else this.#forgets.add(close);
    return () => void this.#forgets.delete(close);
  }

  onChange(judgeAgain: () => void): () => void {
    if (!this.#hasEnded) this.#judges.add(judgeAgain);
    return () => void this.#judges.delete(judgeAgain);
  }

  note(note: EgressNote): void {
    if (note.event === 'network.blocked' && !this.#hasEnded) this.#blocked.add(note);
    else this.#outbox.force(this.vmId, note);
  }

  noteDurably(note: EgressNote): Promise<void> {
    return this.#outbox.offerDurably(this.vmId, note);
  }

  count(counter: CounterName, by = 1): void {
    this.#counters[counter] += by;
  }
}
