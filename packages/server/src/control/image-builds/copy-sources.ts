/** Finds the files of each COPY of a build. */
import type { ContextFiles } from './context-index.ts';
import type { PlannedStep } from './planned-step.ts';
import { missing, selectFiles, type Selection } from './select-files.ts';
import type { StepScope } from './step-scope.ts';

export interface CopySourcesParts {
  context: ContextFiles;
  steps: readonly PlannedStep[];
  signal: AbortSignal;
}

export class CopySources {
  readonly #parts: CopySourcesParts;

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

  #find(source: string): Promise<Selection> {
    const { context, signal } = this.#parts;
    return selectFiles(context.index, source, signal);
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
