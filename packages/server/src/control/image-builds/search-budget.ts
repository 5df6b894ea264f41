import { AppError } from '@coppice/contract';

/** Of a build that is made to be slow. 100 000 files need 20 million for a source. */
const MAX_WORK = 4e9;

/** Bounds the work of all sources of a build: characters of names that are looked at. */
export class SearchBudget {
  #left: number;

  constructor(work = MAX_WORK) {
    this.#left = work;
  }

  /** Throws `build_failed` if nothing is left. */
  spend(characters: number): void {
    this.#left -= characters;
    if (this.#left >= 0) return;
    throw new AppError(
      'build_failed',
      'the sources of COPY need too much searching in the context; copy directories instead of patterns and links, or leave files out with .dockerignore',
    );
  }
}
