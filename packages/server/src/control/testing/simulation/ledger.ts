/**
 * What callers of a service were told, and what therefore must hold from then on. Callers write it (caller.ts), and at
 * rest invariants.ts compares the service with it, and settles what has ended.
 */
import type { SandboxRecord } from '@coppice/contract';
import { RanFor } from './ran-for.ts';

export interface Told {
  /** What its record must say at rest; undefined when that depends on which of two was faster. */
  status: 'running' | 'hibernated' | 'destroyed' | undefined;
  /** Its VM was killed since the last rest: it may have ended. */
  isVmKilled: boolean;
  /** Commands, and rollbacks, that were answered. */
  execs: number;
  rollbacks: number;
  ranFor: RanFor;
}

export interface Asked {
  path: string;
  body: object;
  /** By `performance.now()`, for the first time. */
  atMs: number;
}

export class Ledger {
  /** All that have not ended, and those that have since the last rest. */
  readonly told = new Map<string, Told>();
  /** The records of all others, as JSON. */
  readonly ended = new Map<string, string>();
  /** Those that were answered, and that no caller has asked to delete. */
  readonly snapshots = new Set<string>();
  /** By their Idempotency-Key, creates that were not answered well. */
  readonly asked = new Map<string, Asked>();
  #restedAt = performance.now();

  /** Sandboxes whose end no caller was told. */
  get alive(): string[] {
    return [...this.told].filter(([, { status }]) => status !== 'destroyed').map(([id]) => id);
  }

  /** `asked`: when the caller began to ask for it, by `performance.now()`. */
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

  /** One of which no caller was told: begun since the last rest. */
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

  /** Returns what it was asked. */
  noteAnswered(key: string): Asked | undefined {
    const asked = this.asked.get(key);
    this.asked.delete(key);
    return asked;
  }

  /** At rest, when the record was found to be right: it is believed from then on. */
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

  /** Undefined for an ended sandbox: its record does not change any more. */
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
