/**
 * The answers that callers of a service received, and the state that must hold from then on. Callers write the ledger
 * (caller.ts). At rest, invariants.ts compares the service with it, and settles ended sandboxes.
 */
import type { SandboxRecord } from '@coppice/contract';
import { RanFor } from './ran-for.ts';

export interface Told {
  /** Status that its record must have at rest; undefined when that depends on a race. */
  status: 'running' | 'hibernated' | 'destroyed' | undefined;
  /** Whether its VM was killed since the last rest: then it may have ended. */
  isVmKilled: boolean;
  /** Numbers of commands and of rollbacks that were answered. */
  execs: number;
  rollbacks: number;
  ranFor: RanFor;
}

export interface Asked {
  path: string;
  body: object;
  /** Time of the first request, by `performance.now()`. */
  atMs: number;
}

export class Ledger {
  /** All sandboxes that have not ended, and those that have ended since the last rest. */
  readonly told = new Map<string, Told>();
  /** The records of all other sandboxes, as JSON. */
  readonly ended = new Map<string, string>();
  /** Snapshots that were answered, and that no caller has asked to delete. */
  readonly snapshots = new Set<string>();
  /** Creates that were not answered with success, by their Idempotency-Key. */
  readonly asked = new Map<string, Asked>();
  #restedAt = performance.now();

  /** Sandboxes whose end was not answered to a caller. */
  get alive(): string[] {
    return [...this.told].filter(([, { status }]) => status !== 'destroyed').map(([id]) => id);
  }

  /** `asked`: when the caller sent the request for it, by `performance.now()`. */
  noteRunning(id: string, asked?: number): void {
    this.#change(id, { status: 'running' })?.ranFor.noteRunning(performance.now(), asked);
  }

  noteHibernated(id: string): void {
    this.#change(id, { status: 'hibernated' })?.ranFor.noteStopped(performance.now());
  }

  noteDestroyed(id: string): void {
    this.#change(id, { status: 'destroyed' })?.ranFor.noteStopped(performance.now());
  }

  noteUncertain(id: string): void {
    this.#change(id, { status: undefined })?.ranFor.noteUncertain(performance.now());
  }

  noteVmKilled(id: string): void {
    this.#change(id, { isVmKilled: true })?.ranFor.noteUncertain(performance.now());
  }

  /** Notes a sandbox that no caller knows of: it began since the last rest. */
  noteFound(id: string): void {
    if (!this.told.has(id)) this.#change(id, {})?.ranFor.noteRunning(performance.now(), this.#restedAt);
  }

  noteExec(id: string): void {
    this.#change(id, { execs: (this.told.get(id)?.execs ?? 0) + 1 });
  }

  noteRollback(id: string): void {
    this.#change(id, { rollbacks: (this.told.get(id)?.rollbacks ?? 0) + 1 });
  }

  noteAsked(key: string, asked: Asked): void {
    if (!this.asked.has(key)) this.asked.set(key, asked);
  }

  /** Removes a create from `asked`, and returns it. */
  noteAnswered(key: string): Asked | undefined {
    const asked = this.asked.get(key);
    this.asked.delete(key);
    return asked;
  }

  /** Takes over a record that was found to be right at rest: it counts from then on. */
  settle(record: SandboxRecord): void {
    const { id, status } = record;
    this.#change(id, { isVmKilled: false });
    if (status === 'running') this.noteRunning(id);
    else if (status === 'hibernated') this.noteHibernated(id);
    else if (status === 'destroyed' || status === 'failed') {
      this.told.delete(id);
      this.ended.set(id, JSON.stringify(record));
    }
  }

  noteRested(): void {
    this.#restedAt = performance.now();
  }

  /** Returns undefined for an ended sandbox: its record does not change any more. */
  #change(id: string, change: Partial<Told>): Told | undefined {
    if (this.ended.has(id)) return undefined;
    const told = this.told.get(id) ?? {
      status: undefined,
      isVmKilled: false,
      execs: 0,
      rollbacks: 0,
      ranFor: new RanFor(),
    };
    this.told.set(id, Object.assign(told, change));
    return told;
  }
}
