/**
 * Keeps VMs assembled in advance, so that a create only has to give one its identity.
 *
 *   take(key) ── hit ──► a warm VM                 every create
 *             └─ miss ─► the create assembles its own, and the template's target grows
 *   refill    one at a time, and only while no create runs (except creates that wait for a template): they would
 *             compete for the same cores
 *   give way  ends one when a create would be refused for lack of room
 *   expire    a template without a create for five minutes keeps none
 *   check     every 30 s: expires, and retries refills that lacked room or failed
 *
 * A warm VM is bound to its template; the pool holds at most `limit` of them in total.
 */
import type { Logger } from 'pino';
import { runUntraced } from '../../lib/tracing/tracing.ts';
import type { AssembledVm, TemplateBlueprint } from './vm-assembly.ts';

const EXPIRY_MS = 300_000;
const CHECK_INTERVAL_MS = 30_000;
/** Pause after a VM could not be assembled. */
const RETRY_PAUSE_MS = 5000;

interface Shelf {
  blueprint: TemplateBlueprint;
  target: number;
  lastAskedAt: number;
  ready: AssembledVm[];
}

export interface WarmPoolOptions {
  /** Most warm VMs in total; 0 keeps none. */
  limit: number;
  /** Assembles and rehearses one VM. */
  prepare: (blueprint: TemplateBlueprint) => Promise<AssembledVm>;
  /** Whether its template exists and the machine has spare room for a VM that no caller has requested. */
  canPrepare: (blueprint: TemplateBlueprint) => boolean;
  now: () => number;
  log: Logger;
}

/** Warm VMs now, and the creates so far that got one (`hits`) or had to start their own (`misses`). */
export interface WarmPoolCounts {
  size: number;
  limit: number;
  hits: number;
  misses: number;
}

export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #checks: NodeJS.Timeout;
  #createsUnderWay = 0;
  #hits = 0;
  #misses = 0;
  #pausedUntil = 0;
  #refilling: Promise<void> | undefined;
  /** A refill was requested while one was running. */
  #refillAgain = false;
  #closed = false;

  constructor(options: WarmPoolOptions) {
    this.#options = options;
    this.#checks = setInterval(() => this.check(), CHECK_INTERVAL_MS);
    this.#checks.unref();
  }

  /** Warm VMs of all templates. */
  get size(): number {
    return [...this.#shelves.values()].reduce((sum, shelf) => sum + shelf.ready.length, 0);
  }

  get counts(): WarmPoolCounts {
    return { size: this.size, limit: this.#options.limit, hits: this.#hits, misses: this.#misses };
  }

  /** Runs a create with a warm VM, if there is one. Refilling waits until creates are done. */
  async serve<T>(
    blueprint: TemplateBlueprint,
    create: (warm: AssembledVm | undefined) => Promise<T>,
  ): Promise<T> {
    this.#createsUnderWay += 1;
    const warm = this.#take(blueprint);
    if (warm === undefined) this.#misses += 1;
    else this.#hits += 1;
    try {
      return await create(warm);
    } catch (error) {
      if (warm === undefined) this.#forgetMiss(blueprint.templateKey);
      throw error;
    } finally {
      this.#createsUnderWay -= 1;
      this.#refill();
    }
  }

  /** Waits for a template within a create. Meanwhile the pool refills for creates of existing templates. */
  async waitWith(wait: () => Promise<void>): Promise<void> {
    this.#createsUnderWay -= 1;
    this.#refill();
    try {
      await wait();
    } finally {
      this.#createsUnderWay += 1;
    }
  }

  #take(blueprint: TemplateBlueprint): AssembledVm | undefined {
    const { limit, now } = this.#options;
    if (limit === 0) return undefined;
    const shelf = this.#shelves.get(blueprint.templateKey) ?? {
      blueprint,
      target: 0,
      lastAskedAt: 0,
      ready: [],
    };
    this.#shelves.set(blueprint.templateKey, shelf);
    shelf.lastAskedAt = now();
    const warm = shelf.ready.find((each) => each.driver.phase === 'creating');
    if (warm === undefined) shelf.target = Math.min(shelf.target + 1, limit);
    else shelf.ready = shelf.ready.filter((each) => each !== warm);
    return warm;
  }

  /** A failed create shows no need for a warm VM, and may have left no template for one. */
  #forgetMiss(templateKey: string): void {
    const shelf = this.#shelves.get(templateKey);
    if (shelf !== undefined) shelf.target = Math.max(0, shelf.target - 1);
  }

  /** The VMs that {@link giveWay} can end. */
  get units(): string[] {
    return [...this.#shelves.values()].flatMap((shelf) => shelf.ready.map(({ driver }) => driver.unit));
  }

  /** Ends one VM, of the template used longest ago. Returns false when there is none. */
  async giveWay(): Promise<boolean> {
    const shelves = [...this.#shelves.values()].toSorted((a, b) => a.lastAskedAt - b.lastAskedAt);
    const warm = shelves.find((shelf) => shelf.ready.length > 0)?.ready.shift();
    if (warm === undefined) return false;
    await warm.driver.end('destroyed');
    return true;
  }

  /** Forgets a VM that ended while it waited. */
  drop(unit: string): void {
    for (const shelf of this.#shelves.values()) {
      shelf.ready = shelf.ready.filter((each) => each.driver.unit !== unit);
    }
  }

  /** Forgets an evicted template. The pool holds no VM of it: a template in use is not evicted. */
  forget(templateKey: string): void {
    this.#shelves.delete(templateKey);
  }

  #refill(): void {
    if (this.#refilling !== undefined) {
      this.#refillAgain = true;
      return;
    }
    // For later creates, not for the request that made room for it.
    this.#refilling = runUntraced(() => this.#refillAll()).finally(() => {
      this.#refilling = undefined;
      if (!this.#refillAgain) return;
      this.#refillAgain = false;
      this.#refill();
    });
  }

  async #refillAll(): Promise<void> {
    for (let shelf = this.#neediest(); shelf !== undefined; shelf = this.#neediest()) {
      try {
        const warm = await this.#options.prepare(shelf.blueprint);
        if (this.#closed) await warm.driver.end('destroyed');
        else shelf.ready.push(warm);
      } catch (error) {
        this.#options.log.warn(
          { err: error, template: shelf.blueprint.templateKey },
          'could not keep a VM warm',
        );
        this.#pausedUntil = this.#options.now() + RETRY_PAUSE_MS;
      }
    }
  }

  /** Returns the most recently used of the templates that lack VMs. */
  #neediest(): Shelf | undefined {
    const idle = !this.#closed && this.#createsUnderWay === 0 && this.#options.now() >= this.#pausedUntil;
    if (!idle || this.size >= this.#options.limit) return undefined;
    return [...this.#shelves.values()]
      .filter((shelf) => shelf.ready.length < shelf.target && this.#options.canPrepare(shelf.blueprint))
      .toSorted((a, b) => b.lastAskedAt - a.lastAskedAt)[0];
  }

  check(): void {
    this.#expire();
    this.#refill();
  }

  /** Ends the VMs of templates without recent creates. */
  #expire(): void {
    for (const [key, shelf] of this.#shelves) {
      if (this.#options.now() - shelf.lastAskedAt < EXPIRY_MS) continue;
      this.#shelves.delete(key);
      this.#endAll(shelf.ready);
    }
  }

  #endAll(vms: readonly AssembledVm[]): void {
    for (const { driver } of vms) {
      driver.end('destroyed').catch((error: unknown) => {
        this.#options.log.error({ err: error, unit: driver.unit }, 'a warm VM could not be ended');
      });
    }
  }

  /** Ends all warm VMs, which belong to no sandbox. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#checks);
    await this.#refilling;
    const warm = [...this.#shelves.values()].flatMap((shelf) => shelf.ready);
    this.#shelves.clear();
    await Promise.all(warm.map(({ driver }) => driver.end('destroyed')));
  }
}
