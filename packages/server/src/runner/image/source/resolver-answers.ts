import type { ImageReference } from '@coppice/contract';
import type { ImageLimits } from '../layers/image-limits.ts';

/** The answer of a registry to one access. */
export interface Answer {
  /** Digest of the manifest for this platform. */
  digest: string;
  /** Digest that the reference itself points to, which may be an index. Undefined if it is no longer known. */
  topDigest: string | undefined;
  /** Time of the registry's last answer, on the monotonic clock; undefined for an answer to an earlier run. */
  confirmedAtMs: number | undefined;
}

interface KeptAnswer extends Answer {
  /** Until this time the answer is used without a request. */
  freshUntilMs: number;
}

const MAX_ANSWERS = 8192;

/** Answers by access and name; beyond the limit the oldest one is dropped. */
export class ResolverAnswers {
  readonly #limits: ImageLimits;
  readonly #answers = new Map<string, KeptAnswer>();

  constructor(limits: ImageLimits) {
    this.#limits = limits;
  }

  find(identity: string, reference: ImageReference): Answer | undefined {
    return this.#answers.get(keyOf(identity, reference));
  }

  findFresh(identity: string, reference: ImageReference): Answer | undefined {
    const answer = this.#answers.get(keyOf(identity, reference));
    return answer !== undefined && performance.now() < answer.freshUntilMs ? answer : undefined;
  }

  /** Stores an answer for the reference and for its digests: an access that sees a tag may also use its digests. */
  set(identity: string, reference: ImageReference, answer: Answer): void {
    const freshUntilMs =
      answer.confirmedAtMs === undefined ? 0 : answer.confirmedAtMs + this.#limits.tagTtlMs;
    const { digest, topDigest } = answer;
    this.#put(keyOf(identity, { ...reference, digest }), { ...answer, topDigest: digest, freshUntilMs });
    if (topDigest !== undefined) {
      this.#put(keyOf(identity, { ...reference, digest: topDigest }), { ...answer, freshUntilMs });
    }
    this.#put(keyOf(identity, reference), { ...answer, freshUntilMs });
  }

  /**
   * Returns an old answer while a registry fails, and makes it fresh again, so that not every create asks the registry.
   */
  recall(identity: string, reference: ImageReference, isAnonymous: boolean): Answer | undefined {
    const answer = this.#answers.get(keyOf(identity, reference));
    if (answer === undefined) return undefined;
    const ageMs = performance.now() - (answer.confirmedAtMs ?? Number.NEGATIVE_INFINITY);
    if (!isAnonymous && ageMs > this.#limits.staleAccessTtlMs) return undefined;
    answer.freshUntilMs = performance.now() + this.#limits.tagTtlMs;
    return answer;
  }

  /** Forgets all answers for a repository: if it no longer shows one image, it may not show the others either. */
  forget(identity: string, { registry, repository }: ImageReference): void {
    const prefix = `${identity} ${registry}/${repository}`;
    for (const key of this.#answers.keys()) {
      const next = key.startsWith(prefix) ? key[prefix.length] : undefined;
      if (next === ':' || next === '@') this.#answers.delete(key);
    }
  }

  #put(key: string, answer: KeptAnswer): void {
    this.#answers.delete(key);
    this.#answers.set(key, answer);
    const oldest = this.#answers.keys().next();
    if (this.#answers.size > MAX_ANSWERS && !oldest.done) this.#answers.delete(oldest.value);
  }
}

function keyOf(identity: string, { registry, repository, tag, digest }: ImageReference): string {
  return `${identity} ${registry}/${repository}${digest === undefined ? `:${tag ?? ''}` : `@${digest}`}`;
}
