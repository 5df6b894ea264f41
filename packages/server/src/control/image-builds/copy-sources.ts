/** Finds the files of each COPY of a build. */
import { Slots } from '../../lib/waiting/slots.ts';
import type { ContextFiles } from './context-index.ts';
import type { PlannedStep } from './planned-step.ts';
import { SearchBudget } from './search-budget.ts';
import { missing, selectFiles, type Selection } from './select-files.ts';
import type { StepScope } from './step-scope.ts';

export interface CopySourcesParts {
  context: ContextFiles;
  steps: readonly PlannedStep[];
  organizationId: string;
  /** Of all builds of the machine: they search and hash in the process that answers everyone. */
  searches: Slots;
  signal: AbortSignal;
}

/** Entries of selections that are kept for the step itself, once its key is known. */
const MAX_KEPT_ENTRIES = 10_000;

export class CopySources {
  readonly #parts: CopySourcesParts;
  readonly #budget = new SearchBudget();
  readonly #kept = new Map<string, Selection>();
  #keptEntries = 0;

  constructor(parts: CopySourcesParts) {
    this.#parts = parts;
  }

  get context(): ContextFiles {
    return this.#parts.context;
  }

  /**
   * Finds what the step with this index copies. As in Docker, a pattern may match nothing, as `yarn.lock*`, if another source of its
   * COPY names files. Throws `build_failed` if none does.
   */
  async select(index: number, scope: StepScope): Promise<Selection> {
    const { steps } = this.#parts;
    const source = sourceOf(steps[index], scope);
    const selection = await this.#find(source);
    if (!isEmpty(selection)) return selection;
    for (const other of this.#listOthers(index))
      if (!isEmpty(await this.#find(sourceOf(other, scope)))) return selection;
    throw missing(source);
  }

  /** Waits for the turn of the organization. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const { searches, organizationId, signal } = this.#parts;
    return searches.run(signal, work, organizationId);
  }

  async #find(source: string): Promise<Selection> {
    const { context, signal } = this.#parts;
    const kept = this.#kept.get(source);
    if (kept !== undefined) return kept;
    const found = await this.inTurn(() => selectFiles(context.index, source, signal, this.#budget));
    const entries = found.entries.length + 1;
    if (this.#keptEntries + entries > MAX_KEPT_ENTRIES) return found;
    this.#keptEntries += entries;
    this.#kept.set(source, found);
    return found;
  }

  /** Each source of a COPY is a step of its own; they have one line. */
  #listOthers(index: number): PlannedStep[] {
    const { steps } = this.#parts;
    const line = steps[index]?.line;
    if (line === undefined) return [];
    return steps.filter((step, at) => at !== index && step.line === line && step.copy !== undefined);
  }
}

export function isEmpty({ files, hasDirectory }: Selection): boolean {
  return files === 0 && !hasDirectory;
}

function sourceOf(step: PlannedStep | undefined, scope: StepScope): string {
  return step === undefined ? '' : (scope.expand(step).copy?.from_path ?? '');
}

export function makeSearches(): Slots {
  return new Slots('searches in contexts of builds', { maxRunning: 2, maxWaiting: 1024 });
}
