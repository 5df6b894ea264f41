/** A guest as in the guest table of the egress process, without the process. */
import { compileNetworkPolicy, type CompiledPolicy, type NetworkPolicy } from '@coppice/contract';
import { compileClosedAddresses } from '@coppice/contract';
import type { EgressNote } from '../../../lib/protocol/egress-protocol.ts';
import type { CounterName, Guest, GuestTable } from '../../guest-table.ts';
import { compileGrants, type ToldGrant } from '../request/compile-grants.ts';

const OPEN: NetworkPolicy = { version: 1, profile: null, default: 'allow', allow: [], deny: [] };

/** Compiles a policy in which loopback, where the tests' servers are, is not closed. */
function compilePolicy(policy: Partial<NetworkPolicy> = {}): CompiledPolicy {
  return compileNetworkPolicy(
    { ...OPEN, ...policy },
    compileClosedAddresses({ openPrivateRanges: [], own: [] }),
  );
}

export class TestGuest implements Guest {
  readonly address: string;
  readonly vmId = 'vm-of-test';
  readonly notes: EgressNote[] = [];
  readonly counts = new Map<CounterName, number>();
  policy = compilePolicy();
  grants = compileGrants([]);
  /** A durable note waits for this promise. */
  recorded: Promise<void> = Promise.resolve();
  isForgotten = false;
  readonly #forgets = new Set<() => void>();
  readonly #changes = new Set<() => void>();

  constructor(address: string) {
    this.address = address;
  }

  onForget(close: () => void): () => void {
    if (this.isForgotten) close();
    else this.#forgets.add(close);
    return () => void this.#forgets.delete(close);
  }

  onChange(judgeAgain: () => void): () => void {
    this.#changes.add(judgeAgain);
    return () => void this.#changes.delete(judgeAgain);
  }

  note(note: EgressNote): void {
    this.notes.push(note);
  }

  async noteDurably(note: EgressNote): Promise<void> {
    await this.recorded;
    this.notes.push(note);
  }

  count(counter: CounterName, by = 1): void {
    this.counts.set(counter, (this.counts.get(counter) ?? 0) + by);
  }

  grant(...grants: ToldGrant[]): void {
    this.grants = compileGrants(grants);
    for (const judgeAgain of this.#changes) judgeAgain();
  }

  restrict(policy: Partial<NetworkPolicy>): void {
    this.policy = compilePolicy(policy);
    for (const judgeAgain of this.#changes) judgeAgain();
  }

  forget(): void {
    this.isForgotten = true;
    const forgets = [...this.#forgets];
    this.#forgets.clear();
    for (const close of forgets) close();
  }

  /** `service method path status` of each noted request. */
  get proxied(): string[] {
    return this.notes.flatMap((note) =>
      note.event === 'credential.proxied'
        ? [`${note.data.service} ${note.data.method} ${note.data.path} ${note.data.status}`]
        : [],
    );
  }

  get watches(): number {
    return this.#forgets.size + this.#changes.size;
  }
}

export class TestGuests implements GuestTable {
  readonly #guests: readonly TestGuest[];

  constructor(...guests: TestGuest[]) {
    this.#guests = guests;
  }

  findByAddress(address: string): Guest | undefined {
    return this.#guests.find((guest) => guest.address === address && !guest.isForgotten);
  }
}
