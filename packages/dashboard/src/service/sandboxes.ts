/**
 * The live sandboxes that the reader may see, for the list and for quick actions. They are read once, and then one by one
 * as events concern them.
 */
import { effect, signal } from '@preact/signals';
import type { Coppice, EventInfo, SandboxInfo } from '../../../sdk/src/index.ts';
import { onEvents } from './live-events.ts';
import { client } from './session.ts';

/** Undefined until the first list has arrived. */
export const sandboxes = signal<readonly SandboxInfo[] | undefined>(undefined);
export const sandboxesError = signal<unknown>(undefined);

/** Changes of many sandboxes at once are read as a list. */
const MAX_SINGLE_READS = 20;
const GATHER_MS = 200;

/** Keeps `sandboxes` up to date, for as long as the page is open. */
export function followSandboxes(): void {
  effect(() => {
    const current = client.value;
    sandboxes.value = undefined;
    sandboxesError.value = undefined;
    if (current === undefined) return undefined;
    const keeper = new SandboxKeeper(current);
    keeper.readAll();
    const leave = onEvents((event) => keeper.note(event));
    return () => {
      leave();
      keeper.end();
    };
  });
}

/** Reads the list again, for example after a failure. */
export function reloadSandboxes(): void {
  requestReload?.();
}

let requestReload: (() => void) | undefined;

class SandboxKeeper {
  readonly #client: Coppice;
  readonly #end = new AbortController();
  readonly #changed = new Set<string>();
  #isListChanged = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(current: Coppice) {
    this.#client = current;
    requestReload = () => this.readAll();
  }

  end(): void {
    this.#end.abort();
    clearTimeout(this.#timer);
  }

  readAll(): void {
    this.#isListChanged = true;
    this.#gather(0);
  }

  note(event: EventInfo | undefined): void {
    if (event === undefined) this.#isListChanged = true;
    else if (event.runId !== null && event.type.startsWith('sandbox.')) this.#changed.add(event.runId);
    else return;
    this.#gather(GATHER_MS);
  }

  #gather(delayMs: number): void {
    this.#timer ??= setTimeout(() => {
      void this.#read().finally(() => {
        this.#timer = undefined;
        if (this.#isListChanged || this.#changed.size > 0) this.#gather(GATHER_MS);
      });
    }, delayMs);
  }

  /** Reads all. The first pages are shown before the last have arrived. */
  async #readList(): Promise<SandboxInfo[]> {
    const { signal } = this.#end;
    const isFirst = sandboxes.value === undefined;
    const all: SandboxInfo[] = [];
    for await (const page of this.#client.sandboxes.list({ signal }).pages()) {
      all.push(...page.map(({ record }) => record));
      if (isFirst && !signal.aborted) sandboxes.value = [...all];
    }
    return all;
  }

  async #find(id: string): Promise<SandboxInfo | undefined> {
    return (await this.#client.sandboxes.get(id, { signal: this.#end.signal }))?.record;
  }

  async #read(): Promise<void> {
    const { signal } = this.#end;
    const ids = [...this.#changed];
    const isList = this.#isListChanged || ids.length > MAX_SINGLE_READS;
    this.#changed.clear();
    this.#isListChanged = false;
    try {
      const next = isList
        ? await this.#readList()
        : merge(sandboxes.value ?? [], ids, await Promise.all(ids.map((id) => this.#find(id))));
      if (signal.aborted) return;
      sandboxes.value = next;
      sandboxesError.value = undefined;
    } catch (error) {
      if (!signal.aborted) sandboxesError.value = error;
    }
  }
}

/** Replaces the sandboxes with these ids: those that have ended are left out, new ones come first. */
function merge(
  before: readonly SandboxInfo[],
  ids: readonly string[],
  read: readonly (SandboxInfo | undefined)[],
): readonly SandboxInfo[] {
  const changed = new Map(ids.map((id, index) => [id, read[index]]));
  const isLive = (sandbox: SandboxInfo | undefined): sandbox is SandboxInfo =>
    sandbox !== undefined && sandbox.endedAt === null;
  const kept = before.map((sandbox) => (changed.has(sandbox.id) ? changed.get(sandbox.id) : sandbox));
  const known = new Set(before.map(({ id }) => id));
  const added = [...changed.values()].filter((sandbox) => isLive(sandbox) && !known.has(sandbox.id));
  return [...added, ...kept]
    .filter(isLive)
    .sort((a, b) => (a.createdAt < b.createdAt ? 1 : a.createdAt > b.createdAt ? -1 : 0));
}
