/** The last samples of one VM, in a flat array: there may be hundreds of VMs, and each has an hour of samples. */
import { METRICS_KEPT_S, METRICS_SAMPLE_S } from '@coppice/contract';

/** A sample has the usage of a VM since it was started, except `memBytes` and `diskBytes`. */
const FIELDS = [
  'atMs',
  /** Cannot be set, unlike the wall clock. */
  'monotonicMs',
  /** Changes when a sandbox gets another VM, whose usage begins at 0. */
  'instance',
  'cpuMs',
  'memBytes',
  'diskBytes',
  'readBytes',
  'writtenBytes',
  'receivedBytes',
  'sentBytes',
  'receivedPackets',
  'sentPackets',
] as const;
export type VmSample = Record<(typeof FIELDS)[number], number>;

/** A point lies between two samples. */
const MAX_SAMPLES = METRICS_KEPT_S / METRICS_SAMPLE_S + 1;
/** Most sandboxes are short-lived: the array grows with the samples. */
const FIRST_CAPACITY = 8;

export class SampleRing {
  #values = new Float64Array(FIRST_CAPACITY * FIELDS.length);
  #count = 0;
  /** Position of the oldest sample. */
  #first = 0;

  /** Adds a sample, in place of the oldest one if there are too many. */
  push(sample: VmSample): void {
    if (this.#count === this.#capacity && this.#capacity < MAX_SAMPLES) this.#grow();
    const isFull = this.#count === this.#capacity;
    const row = (this.#first + this.#count) % this.#capacity;
    for (const [column, field] of FIELDS.entries())
      this.#values[row * FIELDS.length + column] = sample[field];
    if (isFull) this.#first = (this.#first + 1) % this.#capacity;
    else this.#count += 1;
  }

  /** Oldest first. */
  list(): VmSample[] {
    return Array.from({ length: this.#count }, (_, index) => this.#at(index));
  }

  get last(): VmSample | undefined {
    return this.#count === 0 ? undefined : this.#at(this.#count - 1);
  }

  get #capacity(): number {
    return this.#values.length / FIELDS.length;
  }

  #at(index: number): VmSample {
    const row = (this.#first + index) % this.#capacity;
    const value = (column: number): number => this.#values[row * FIELDS.length + column] ?? 0;
    return Object.fromEntries(FIELDS.map((field, column) => [field, value(column)])) as VmSample;
  }

  /** Only while no sample was replaced, so that the oldest one is the first in the array. */
  #grow(): void {
    const grown = new Float64Array(Math.min(2 * this.#capacity, MAX_SAMPLES) * FIELDS.length);
    grown.set(this.#values);
    this.#values = grown;
  }
}
